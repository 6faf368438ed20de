package node_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A hook runs for as long as the grace period, and TERM comes when that is shortened. KILL leaves time for it.
func TestDelete_AShorterGracePeriodEndsAHook(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	c := shared(sh("main", `trap ': > /shared/term; exit 5' TERM; : > /shared/up; while :; do sleep 0.02; done`))
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", ": > /shared/hook; sleep 1000"}}}}
	pod := f.awaitPhase(f.create(nil, c), corev1.PodRunning)
	f.awaitFile(filepath.Join(f.volume(pod), "up"))
	f.delete(pod, ptr.To(int64(3600)))
	f.awaitFile(filepath.Join(f.volume(pod), "hook"))
	require.NoFileExists(t, filepath.Join(f.volume(pod), "term"))
	f.delete(pod, ptr.To(int64(1)))
	over := f.await(pod, "over", func(p *corev1.Pod) bool { return p == nil || terminated(p, "main") != nil })
	require.NotNil(t, over, "the end is reported before the pod is gone")
	require.Equal(t, int32(5), terminated(over, "main").ExitCode)
	f.await(pod, "gone", isGone)
}
