package guard

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers_FindATree(t *testing.T) {
	t.Parallel()
	all := []seen{
		{pid: 1},
		{pid: 10, parent: 1, group: 10, session: 10, started: 100},                // the root, a child of the guard
		{pid: 11, parent: 10, group: 10, session: 10, started: 101},               // its child
		{pid: 12, parent: 11, group: 12, session: 12, started: 102},               // a grandchild in a session of its own
		{pid: 13, parent: 1, group: 10, session: 10, started: 103},                // an orphan in its group
		{pid: 14, parent: 1, group: 14, session: 14, started: 104},                // an orphan in a session of its own
		{pid: 15, parent: 14, group: 14, session: 14, started: 105},               // a child of that
		{pid: 16, parent: 10, group: 10, session: 10, started: 106, zombie: true}, // it has ended
		{pid: 20, parent: 1, group: 20, session: 20, started: 90},                 // a daemon of an earlier step
		{pid: 21, parent: 20, group: 20, session: 20, started: 110},               // a child of that
		{pid: 30, parent: 1, group: 30, session: 30, started: 120},                // another child of the guard
		{pid: 31, parent: 30, group: 30, session: 30, started: 121},               // a child of that
	}
	known := map[int]bool{10: true, 30: true}
	found := members(root{pid: 10, started: 100, orphans: true}, all, known)
	slices.Sort(found)
	require.Equal(t, []int{10, 11, 12, 13, 14, 15}, found)
	sameTick := append(slices.Clone(all), seen{pid: 9, parent: 1, group: 9, session: 9, started: 100}, seen{pid: 17, parent: 1, group: 17, session: 17, started: 100})
	found = members(root{pid: 10, started: 100, orphans: true}, sameTick, known)
	slices.Sort(found)
	require.Equal(t, []int{10, 11, 12, 13, 14, 15, 17}, found, "a daemon of the step before may be of the same tick")
	found = members(root{pid: 10, started: 100}, all, known)
	slices.Sort(found)
	require.Equal(t, []int{10, 11, 12, 13}, found)
	require.Empty(t, members(root{pid: 40, started: 200, orphans: true}, all, known))
}

func TestProcesses_HaveThisOne(t *testing.T) {
	t.Parallel()
	at := slices.IndexFunc(processes(), func(s seen) bool { return s.pid == os.Getpid() })
	require.GreaterOrEqual(t, at, 0)
	self, found := readStat(os.Getpid())
	require.True(t, found)
	require.Equal(t, os.Getppid(), self.parent)
	require.Positive(t, self.started)
	_, found = readStat(1 << 30)
	require.False(t, found)
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0\n"))
	f.Fuzz(func(_ *testing.T, content []byte) { _, _ = parseStat(content) })
}
