package machine

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// on switches a machine on, and returns how to switch it off.
func on(t *testing.T, dir string) (*Sandbox, func()) {
	t.Helper()
	socket := filepath.Join(dir, "s")
	ctx, off := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, "m", socket, filepath.Join(dir, "diary"), 0) }()
	box := Dial(socket)
	require.Eventually(t, func() bool {
		_, err := box.List(t.Context())
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	var stopped bool
	stop := func() {
		if !stopped {
			stopped = true
			off()
			require.NoError(t, await.Receive(t, served, "the server stops"))
		}
	}
	t.Cleanup(stop)
	return box, stop
}

// Pods on a machine are found by every agent that connects (NODE-3), and by those that connect after the machine was off: then they have
// ended, in an unknown way (NODE-4).
func TestMachine_NODE3_NODE4_RemembersWhatWasOnIt(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "bullpen-machine-") // short: it holds a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	first, off := on(t, dir)
	require.NoError(t, first.Admit(pod))
	require.NoError(t, first.Prepare(t.Context(), pod))
	names := []string{"c", "d", "e", "f"}
	var starting sync.WaitGroup
	for _, name := range names { // an agent starts them side by side
		starting.Go(func() { assert.NoError(t, first.Start(t.Context(), pod, sandbox.Container{Name: name})) })
	}
	await.Return(t, starting.Wait, "all starts return")
	require.NoError(t, first.Start(t.Context(), pod, sandbox.Container{Name: "c"}), "it is started once")
	code, err := Dial(filepath.Join(dir, "s")).Exec(t.Context(), "u", "c", nil, sandbox.Streams{})
	require.NoError(t, err, "another agent finds it")
	require.Zero(t, code)
	_, err = first.Wait(t.Context(), "u", "other")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	var invalid *sandbox.InvalidError
	bad := pod.DeepCopy()
	bad.Annotations = map[string]string{"synthetic.bullpen.dev/prepare": "soon"}
	require.ErrorAs(t, first.Admit(bad), &invalid)
	off()

	again, _ := on(t, dir)
	for _, name := range names {
		exit, err := again.Wait(t.Context(), "u", name)
		require.NoError(t, err)
		require.True(t, exit.Unknown)
	}
	require.NoError(t, again.Signal(t.Context(), "u", "c", sandbox.Kill))
	require.NoError(t, again.Remove(t.Context(), "u"))
	_, err = again.Inspect(t.Context(), "u")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	pods, err := again.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, pods)
}
