// Package steps holds the steps that make a Mac a host of the fleet, and their order. Each says what differs, changes it, and proves
// that it is in force (see machost.Step); what of macOS each goes by stands at its file's head.
//
// It touches the host through machost.Host alone. Begin with For in steps.go.
package steps
