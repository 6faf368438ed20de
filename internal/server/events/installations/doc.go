// Package installations compares where GitHub says that the App is installed, and what each installation may see, with what the
// ledger believes: the passes that make good a message that never came.
//
// It must not import a database driver, net/http or a Kubernetes client. Begin with installations.go, then
// repositories.go.
package installations
