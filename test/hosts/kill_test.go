package hosts

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// arm has the next apply die at its nth passing of the point.
func (h *host) arm(point faultpoint.Point, nth int) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(h.faults, string(point)), []byte(strconv.Itoa(nth)), 0o600))
}

// disarm reports whether no process has died there.
func (h *host) disarm(point faultpoint.Point) bool {
	h.t.Helper()
	err := os.Remove(filepath.Join(h.faults, string(point)))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(h.t, err)
	}
	return err == nil
}

// requireNotWorse wants what must hold at any instant (HOST-7): the host can be reached and managed, and boots as it would have.
func (h *host) requireNotWorse() {
	h.t.Helper()
	stdout, stderr, exit := h.Try("root", "", "/sbin/pfctl", "-nf", "/etc/pf.conf")
	require.Zero(h.t, exit, "pf would not load its rules: %s%s", stdout, stderr)
	stdout, stderr, exit = h.Try("root", "", "/usr/sbin/visudo", "-c")
	require.Zero(h.t, exit, "sudo would refuse everybody: %s%s", stdout, stderr)
	require.True(h.t, h.Reaches("10.0.0.9", "10.0.0.21:22"), "SSH is cut off")
	if text, err := os.ReadFile(h.Root.Path(machost.AppliedFile)); err == nil {
		require.True(h.t, json.Valid(text), "half a record")
	}
	if _, err := os.Stat(h.Root.Path("/usr/local/bin/bullpen")); err == nil {
		_, stderr, exit := h.Try("root", "", "/usr/local/bin/bullpen", "--version")
		require.Zero(h.t, exit, "half a program: %s", stderr)
	}
}

// HOST-1, HOST-7: an apply is killed at its first change, then at a later one of what is left, and so on until one gets
// through. The Mac is never worse than it was, and ends as one whose apply was not disturbed, byte for byte. In make test
// eight changes lie between two kills.
func TestApply_HOST1_KilledAtEveryStepItConverges(t *testing.T) {
	want, stride := newHost(t).converged(), 9
	if deep.Enabled() {
		stride = 1
	}
	// Before a change is after the one before it.
	for _, point := range []faultpoint.Point{faultpoint.HostFileWritten, faultpoint.HostAfterChange} {
		t.Run(string(point), func(t *testing.T) {
			h := newHost(t)
			kills := 0
			for nth := 1; ; nth += stride {
				h.arm(point, nth)
				done := h.apply("-o", "json")
				h.requireNotWorse()
				if h.disarm(point) {
					require.Zero(t, done.state.ExitCode(), "%s\n%s", done.stdout, done.stderr)
					break
				}
				require.True(t, done.killed(), "%s\n%s", done.stdout, done.stderr)
				kills++
			}
			require.Greater(t, kills, 6/stride)
			requireSame(t, want, h.converged())
		})
	}
}

// Each change of a bare Mac's first apply, each on a Mac of its own.
func TestApply_HOST1_KilledAnywhereInTheFirstApplyItConverges(t *testing.T) {
	deep.Only(t, "TestApply_HOST1_KilledAtEveryStepItConverges")
	want := newHost(t).converged()
	for _, point := range faultpoint.HostPoints() {
		for nth, through := 1, false; !through; nth++ {
			t.Run(string(point)+"/"+strconv.Itoa(nth), func(t *testing.T) {
				h := newHost(t)
				h.arm(point, nth)
				done := h.apply("-o", "json")
				h.requireNotWorse()
				if through = h.disarm(point); !through {
					require.True(t, done.killed(), "%s\n%s", done.stdout, done.stderr)
				}
				requireSame(t, want, h.converged())
			})
		}
	}
}

func requireSame(t *testing.T, want, have map[string]string) {
	t.Helper()
	delete(want, machost.AppliedFile) // holds a time
	delete(have, machost.AppliedFile)
	for path, content := range want {
		require.Equal(t, content, have[path], path)
	}
	for path := range have {
		_, is := want[path]
		require.True(t, is, "%s is left", path)
	}
}
