package macvms_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/macvms"
)

func TestCount_NODE5_CountsMachinesOfAnyProgramOnce(t *testing.T) {
	const (
		tart      = "/opt/homebrew/bin/tart run vm-1 --no-graphics\n"
		framework = "/System/Library/Frameworks/Virtualization.framework/Versions/A/XPCServices/com.apple.Virtualization.VirtualMachine.xpc/Contents/MacOS/com.apple.Virtualization.VirtualMachine\n"
	)
	for processes, want := range map[string]int{
		"":                                   0,
		"/sbin/launchd\ngrep tart run\n":     0,
		tart:                                 1,
		tart + framework:                     1,
		tart + framework + framework:         2,
		"tart run vm-2\n" + tart + framework: 2,
		"tart run vm-2":                      1,
		"caffeinate -i " + tart + tart:       1,
		"sh -c " + tart + tart:               1,
	} {
		require.Equal(t, want, macvms.Count(processes), processes)
	}
}
