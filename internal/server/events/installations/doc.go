// Package installations compares where GitHub says that the App is installed, and what each installation may access, with
// the ledger: the passes that make up for messages that never came.
//
// Begin with installations.go, then repositories.go.
package installations
