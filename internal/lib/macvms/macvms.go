package macvms

import (
	"regexp"
	"strings"
)

// tartRun is how a machine that runs looks among processes, and not a wrapper that has it as its argument; the frameworks' own process runs for
// each, too, and for Linux guests of other programs.
var (
	tartRun        = regexp.MustCompile(`^(\S*/)?tart run( |$)`)
	virtualMachine = regexp.MustCompile(`/com\.apple\.Virtualization\.VirtualMachine( |$)`)
)

// Count counts the virtual machines in the output of `ps -axww -o command=`.
func Count(processes string) int {
	byTart, byFramework := 0, 0
	for line := range strings.Lines(processes) {
		line = strings.TrimSuffix(line, "\n")
		if tartRun.MatchString(line) {
			byTart++
		}
		if virtualMachine.MatchString(line) {
			byFramework++
		}
	}
	return max(byTart, byFramework)
}
