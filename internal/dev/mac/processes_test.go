//go:build unix

package mac

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A guest that was forked and has not called exec yet looks like the machine that starts it.
func TestMachinesAmong_CountsNoForkOfOne(t *testing.T) {
	const tart = "/mac/opt/homebrew/bin/tart"
	machine := process{pid: 10, parent: 1, executable: tart, args: []string{tart, "run", "vm"}}
	second := process{pid: 20, parent: 1, executable: tart, args: []string{tart, "run", "other"}}
	forked := process{pid: 11, parent: 10, executable: tart, args: machine.args}
	guest := process{pid: 12, parent: 10, executable: tart, args: []string{tart, "__guest", "dir"}}
	listing := process{pid: 30, parent: 1, executable: tart, args: []string{tart, "list"}}
	require.Equal(t, []process{machine, second}, machinesAmong([]process{machine, forked, guest, second, listing}))
}
