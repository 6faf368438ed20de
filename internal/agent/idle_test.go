package agent

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// idler is a supervisor's signs, and the container that waits for their end.
type idler struct {
	*supervisor
	stops chan struct{}
	ended chan error
}

// stopping is a context whose end is received, so that a test knows that it was noticed.
type stopping struct {
	context.Context
	stops <-chan struct{}
}

func (s stopping) Done() <-chan struct{} { return s.stops }

// newIdler has a supervisor that shows that no job has started, and a container idle that reads the directory only so often.
func newIdler(t *testing.T, every time.Duration) *idler {
	t.Helper()
	jit := filepath.Join(t.TempDir(), "jitconfig")
	i := &idler{supervisor: &supervisor{files: filesIn(jit, "")}}
	require.NoError(t, i.placeSigns())
	require.FileExists(t, i.files.idle)
	require.NoError(t, Ready(jit, ""))
	i.begin(t, every)
	return i
}

func (i *idler) begin(t *testing.T, every time.Duration) {
	i.stops, i.ended = make(chan struct{}), make(chan error, 1)
	ctx := stopping{t.Context(), i.stops}
	go func() { i.ended <- Idle(ctx, IdleOptions{JITFile: i.files.jit, LookEvery: every}) }()
}

// stop returns when the container has noticed TERM, and so waits.
func (i *idler) stop(t *testing.T) {
	t.Helper()
	select {
	case i.stops <- struct{}{}:
	case err := <-i.ended:
		t.Fatal("it exited already", err)
	case <-time.After(await.Limit):
		t.Fatal("it does not notice TERM")
	}
}

func (i *idler) awaitEnd(t *testing.T) {
	t.Helper()
	require.NoError(t, await.Receive(t, i.ended, "the container idle exits"))
}

// EXCL-4: the container exits at a job's start, by the lock alone: it reads the directory once an hour.
func TestIdle_EXCL4_ExitsWhenAJobStarts(t *testing.T) {
	t.Parallel()
	i := newIdler(t, time.Hour)
	i.stop(t)
	i.files.jobStartedByHook(t)
	i.showJob()
	i.awaitEnd(t)
}

func (f files) jobStartedByHook(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.jobStarted, nil, 0o600))
	require.NoError(t, os.Remove(f.jobless))
}

// EXCL-4: a supervisor that was stopped, or is slow, does not keep a job from being shown: the hook's file is enough.
func TestIdle_EXCL4_TheHookAloneIsEnough(t *testing.T) {
	t.Parallel()
	i := newIdler(t, time.Millisecond)
	i.files.jobStartedByHook(t)
	i.awaitEnd(t)
	i.showJob()
}

// EXCL-8: TERM to the pod does not end it while the runner may be given a job.
func TestIdle_EXCL8_OutlivesTERMWhileItsSupervisorRuns(t *testing.T) {
	t.Parallel()
	i := newIdler(t, time.Millisecond)
	i.stop(t)
	other, err := os.Open(i.files.jobless)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	require.ErrorIs(t, syscall.Flock(int(other.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK, "the supervisor holds it")
	select {
	case err := <-i.ended:
		t.Fatal("it exited, and the pod shows a job that it does not have", err)
	case <-time.After(100 * time.Millisecond): // a hundred looks
	}
	i.removeSigns()
	i.awaitEnd(t)
	require.NoFileExists(t, i.files.jobless)
	require.NoFileExists(t, i.files.idle)
}

// A supervisor that was killed leaves the file and no lock: the pod may end at once when it is deleted, and shows no job before.
func TestIdle_EndsWithADeletedPodWhoseSupervisorWasKilled(t *testing.T) {
	t.Parallel()
	i := newIdler(t, time.Millisecond)
	require.NoError(t, i.lock.Close()) // as the kernel does
	require.FileExists(t, i.files.jobless)
	i.stop(t)
	i.awaitEnd(t)
}

// EXCL-8: a pod is deleted while its containers start. The supervisor has stopped, and the container idle has missed TERM: it had no handler yet.
func TestIdle_EXCL8_StartsAfterASupervisorThatWasStopped(t *testing.T) {
	t.Parallel()
	i := &idler{supervisor: &supervisor{files: filesIn(filepath.Join(t.TempDir(), "jitconfig"), "")}}
	require.NoError(t, i.placeSigns())
	i.removeSigns()
	i.begin(t, time.Hour)
	i.awaitEnd(t)
}

// It waits for a supervisor that has not started yet, and for none that has come and gone.
func TestIdle_BeforeAndAfterASupervisor(t *testing.T) {
	t.Parallel()
	jit := filepath.Join(t.TempDir(), "jitconfig")
	i := &idler{supervisor: &supervisor{files: filesIn(jit, "")}}
	i.begin(t, time.Hour)
	i.stop(t)
	i.awaitEnd(t)
	i.begin(t, time.Hour)
	require.NoError(t, i.placeSigns())
	i.removeSigns()
	require.NoError(t, os.WriteFile(i.files.taken, nil, 0o600))
	i.awaitEnd(t)
	i.begin(t, time.Hour)
	i.awaitEnd(t)

	require.ErrorContains(t, Idle(t.Context(), IdleOptions{}), "missing shared directory")
	require.ErrorContains(t, Idle(t.Context(), IdleOptions{JITFile: "/no/such/jitconfig"}), "/no/such")
}
