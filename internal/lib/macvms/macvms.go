package macvms

import (
	"regexp"
	"strings"
)

// tartRun is how a machine that runs looks among processes; the frameworks' own process runs for each, too.
var (
	tartRun        = regexp.MustCompile(`(^|/)tart run( |$)`)
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
