// Package installations compares where GitHub says that the App is installed with what the ledger believes: the pass that
// makes good a message that never came.
//
// It must not import a database driver, net/http or a Kubernetes client. Begin with installations.go.
package installations
