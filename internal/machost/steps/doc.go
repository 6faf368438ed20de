// Package steps holds the steps that make a Mac a host of the fleet, and their order. Each says what differs, changes it, and verifies that
// it is in force (see machost.Step); the facts about macOS that it depends on are at its file's head.
//
// It touches the host through machost.Host alone. Begin with For in steps.go.
package steps
