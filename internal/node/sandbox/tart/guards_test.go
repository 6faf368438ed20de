//go:build unix

package tart

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A machine whose end is on record and that a user starts again counts against the licence like any other.
func TestSlots_NODE5_AMachineThatRunsAfterItsEndCounts(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod := m.start(s, "exit 3")
	require.Equal(t, int32(3), m.wait(s, pod).Code)
	require.NoError(t, s.countForeign(t.Context()))
	require.Equal(t, int64(2), allocatable(s))

	again := exec.Command(programs, "tart", "run", m.vm(string(pod.UID)), "--no-graphics")
	again.Env = append(os.Environ(), "TART_HOME="+m.home())
	require.NoError(t, again.Start())
	t.Cleanup(func() { _ = await.Call(t, again.Wait, "the VM ends") })
	t.Cleanup(func() { _ = again.Process.Signal(syscall.SIGINT) })
	require.Eventually(t, func() bool { return m.holder(m.vm(string(pod.UID))) != 0 }, patience, 5*time.Millisecond)
	require.NoError(t, s.countForeign(t.Context()))
	require.Equal(t, int64(1), allocatable(s))
}

// Another start may have counted just before, and take what it found: a count that failed must not give it more.
func TestSlots_NODE5_ACountThatFailsFreesNone(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	s.slots.change(func(l *ledger) { l.foreign = 2 })
	m.script(tart.Script{Rules: []tart.Rule{{Command: "list", Effect: tart.EffectAnswer, Message: "unknown"}}})
	require.Error(t, s.countForeign(t.Context()))
	require.Zero(t, allocatable(s))
	m.script(tart.Script{})
	require.NoError(t, s.countForeign(t.Context()))
	require.Equal(t, int64(2), allocatable(s))
}

// An agent that was away has not tried to reach the guest, so it must not hold the time against it.
func TestGuest_NODE3_IsWaitedForAnewByTheNextAgent(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {NoGuestAgent: true}}})
	var ahead atomic.Int64
	change := func(o *Options) {
		o.StayUp, o.GuestPatience = 100*time.Millisecond, time.Hour
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	s := m.open(change)
	pod := m.start(s, runs)
	s.Close()
	tried := len(m.calls("exec"))
	ahead.Store(int64(24 * time.Hour))
	s = m.open(change)
	require.Eventually(t, func() bool {
		r, err := s.load(string(pod.UID))
		require.NoError(t, err)
		require.Empty(t, r.GaveUp)
		return len(m.calls("exec")) > tried
	}, patience, 5*time.Millisecond)
	require.NotZero(t, m.holder(m.vm(string(pod.UID))))
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// The handling of a failed start may take minutes; another pod's minder is found in the meantime.
func TestTakeBack_NODE6_HoldsUpNoOtherPod(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Rules: []tart.Rule{
		{Command: "run", Effect: tart.EffectAnswer, Message: "already-running"}, {Command: "stop", Effect: tart.EffectHang},
	}})
	s := m.open()
	pod, c := m.newPod(runs)
	require.NoError(t, s.Prepare(t.Context(), pod))
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context(), pod, c) }()
	require.Eventually(t, func() bool { return len(m.calls("stop")) == 1 }, patience, 5*time.Millisecond)
	found := make(chan struct{})
	go func() { // as Wait and Signal do that have read the record just before
		s.mind(record{PodRef: sandbox.PodRef{UID: string(pod.UID)}}, true)
		close(found)
	}()
	select {
	case <-found:
	case <-time.After(10 * time.Second):
		t.Error("whoever asks for a minder waits for tart stop")
	}
	s.Close()
	require.Error(t, await.Receive(t, started, "the start that was given up returns"))
	await.Receive(t, found, "the minder is found")
	m.script(tart.Script{})
}

// The host may be short of descriptors for a moment: that says nothing about the guest, whose job goes on.
func TestReport_NODE3_AHostThatCannotReadItStopsNoMachine(t *testing.T) { //nolint:paralleltest // the limit is the whole process's
	m := newMac(t)
	var ends atomic.Int64
	looked := make(chan struct{})
	s := m.open(func(o *Options) {
		o.Now = func() time.Time {
			select {
			case looked <- struct{}{}:
			default:
			}
			return time.Now()
		}
		o.reached = func(step string) {
			if step == "reported" {
				ends.Add(1)
			}
		}
	})
	pod := m.start(s, runs)
	uid := string(pod.UID)
	require.Eventually(t, func() bool { return m.Settled(uid, "") }, patience, 5*time.Millisecond)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	looks, late := 0, time.After(patience)
	for looks < 5 && late != nil { // nothing here may fail, or open anything, before the limit is back
		select {
		case <-looked:
			looks++
		case <-late:
			late = nil
		}
	}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.Equal(t, 5, looks, "it was looked for several times")
	require.Zero(t, ends.Load(), "nothing was reported")
	require.True(t, m.Settled(uid, ""))
	require.Empty(t, m.calls("stop"))
	require.NoError(t, s.Remove(t.Context(), uid))
}

// A restart of the login window ends what runs in the session.
func TestSession_NODE3_IsNotRestartedBecauseLaunchctlCannotBeAsked(t *testing.T) {
	t.Parallel()
	for launchctl, restarted := range map[string]bool{"kill -9 $$": false, "exit 113": true} {
		m := newMac(t)
		sign := filepath.Join(m.dir, "restarted")
		s := m.open(func(o *Options) {
			o.Launchctl, o.Kickstart = []string{"sh", "-c", launchctl}, []string{"sh", "-c", "touch " + sign}
			o.SessionPatience = 3 * time.Second // within it the restart itself ends, on a slow machine too
		})
		require.Eventually(t, func() bool { return s.Host().Conditions[1].Reason == reasonNoSession }, patience, 5*time.Millisecond)
		s.Close()
		if restarted {
			require.FileExists(t, sign)
		} else {
			require.NoFileExists(t, sign)
		}
		require.Zero(t, allocatable(s))
	}
}

// Images that were on the Mac before belong to its user: they are neither removed for space nor left to Tart to remove.
func TestImages_NODE7_OnlyWhatWasFetchedIsRemoved(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	const theirs, ours = "registry.example.com/macos/theirs:1", "registry.example.com/macos/ours:1"
	m.tart("pull", theirs)
	s := m.open()
	for _, image := range []string{theirs, ours} {
		pod, c := m.newPod("exit 0")
		c.Image, pod.Spec.Containers[0].Image = image, image
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		require.NoError(t, m.tryStart(t.Context(), s, pod, c))
		m.wait(s, pod)
		require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	}
	_, err := s.CollectImages(t.Context(), 1<<60)
	require.NoError(t, err)
	list, err := s.tart.List(t.Context())
	require.NoError(t, err)
	var left []string
	for _, vm := range list {
		left = append(left, vm.Name)
	}
	require.Contains(t, left, theirs)
	require.NotContains(t, left, ours)
	require.Empty(t, m.vms(), "the golden bases go")
	fetched, err := os.ReadDir(s.fetchedDir())
	require.NoError(t, err)
	require.Empty(t, fetched)
}

// On a slow host Tart's refusal comes when the machine counts as having stayed up. The pod has failed then; the next one must not.
func TestGhostSlot_NODE5_IsLearnedOfLate(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Rules: []tart.Rule{
		{Command: "run", Times: 1, Effect: tart.EffectAnswer, Message: "limit", After: tart.Duration(time.Second)},
	}})
	s := m.open(func(o *Options) { o.StayUp = 50 * time.Millisecond })
	pod := m.start(s, runs)
	exit := m.wait(s, pod)
	require.Equal(t, reasonRunFailed, exit.Reason, "%+v", exit)
	require.Equal(t, corev1.ConditionTrue, condition(s, ConditionGhostSlots).Status)
	require.Equal(t, int64(1), allocatable(s))
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// A record of an earlier release names neither node nor grace period; they are recorded when its pod is prepared again.
func TestPrepare_NODE3_CompletesARecordWithoutTerms(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod := m.start(s, runs)
	uid := string(pod.UID)
	_, err := s.update(uid, func(r *record) { r.Terms = sandbox.Terms{} })
	require.NoError(t, err)
	before, err := s.load(uid)
	require.NoError(t, err)
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = "mac-1", ptr.To(int64(21600))
	want := before
	want.Terms = sandbox.TermsOf(pod)
	for range 2 {
		require.NoError(t, s.Prepare(t.Context(), pod))
		after, err := s.load(uid)
		require.NoError(t, err)
		require.Equal(t, want, after)
		pod.Spec.NodeName = "mac-2" // what is recorded stays
	}
	require.NoError(t, s.Remove(t.Context(), uid))
}
