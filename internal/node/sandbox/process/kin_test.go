package process

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The processes that macOS shows of a container whose supervisor is ours and whose jobs run Apple's programs, whose environment is
// withheld.
func TestKin_NODE7_OnlyWhatCarriesTheMarkAndItsOwn(t *testing.T) {
	self := proc{pid: 50, parent: 40, group: 50}
	all := []proc{
		{1, 0, 1}, {40, 1, 40}, self,
		{100, 1, 100},   // a shim: marked, leads its group
		{110, 100, 110}, // the container's main process: marked, leads its group
		{111, 110, 110}, // bash
		{112, 111, 112}, // what bash put into a group of its own
		{113, 1, 110},   // an orphan in the container's group
		{114, 113, 113}, // a child of the orphan
		{120, 1, 120},   // a foreign bash
		{121, 120, 120},
		{60, 50, 50},    // a child of the agent in the agent's own group, which carries the mark
		{130, 120, 120}, // marked, in a group with a foreign leader
	}
	marked := map[int]bool{100: true, 110: true, 60: true, 130: true, 50: true, 40: true, 1: true}
	require.Equal(t, []int{100, 110, 111, 112, 113, 114, 130}, kin(all, marked, self))
	require.Empty(t, kin(all, map[int]bool{}, self))
	require.Empty(t, kin(all, map[int]bool{999: true}, self), "it has gone meanwhile")
}

func TestEnvironOf(t *testing.T) {
	answer := func(arguments uint32, texts ...string) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, arguments), strings.Join(texts, "\x00")...)
	}
	require.Equal(t, []string{"BULLPEN_SANDBOX=o/p/c", "PATH=/bin"},
		environOf(answer(2, "/bin/tool", "", "", "", "tool", "PATH=no", "BULLPEN_SANDBOX=o/p/c", "PATH=/bin", "", "ptr_munge=", "")))
	require.Equal(t, []string{"A=1"}, environOf(answer(2, "/bin/tool", "tool", "", "A=1", "")), "an empty argument is one")
	require.Empty(t, environOf(answer(1, "/bin/bash", "bash", "")), "Apple's own programs")
	for _, short := range [][]byte{nil, {1}, {1, 0, 0, 0}, answer(9, "/bin/tool", "a"), answer(1<<31, "x", "y", "z")} {
		require.Empty(t, environOf(short))
	}
	require.True(t, carries("BULLPEN_SANDBOX=o/p", "BULLPEN_SANDBOX=o"))
	require.False(t, carries("BULLPEN_SANDBOX=other/p", "BULLPEN_SANDBOX=o"))
}
