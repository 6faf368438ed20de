// Package installations compares where GitHub says that the App is installed, and what each installation may see, with what the
// ledger believes: the passes that make good a message that never came.
//
// Begin with installations.go, then repositories.go.
package installations
