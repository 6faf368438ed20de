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

	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The kernel of this Mac would run five; the licence allows two.
func TestSlots_NODE5_AreCountedByTheAgent(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{VMLimit: 5})
	s := m.open()
	first, second := m.start(s, runs), m.start(s, runs)
	pod, c := m.newPod(runs)
	err := m.tryStart(t.Context(), s, pod, c)
	requireDelayed(t, err, reasonNoSlot)
	require.ErrorContains(t, err, "2 used by pods")
	require.Len(t, m.calls("run"), 2, "it was not even tried")

	again := m.open() // what an agent before has started is counted before anything else can be
	requireDelayed(t, again.Start(t.Context(), pod, c), reasonNoSlot)
	require.NoError(t, s.Remove(t.Context(), string(first.UID)))
	require.NoError(t, s.Start(t.Context(), pod, c))
	require.NoError(t, s.Remove(t.Context(), string(second.UID)))
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// A foreign machine counts against the licence, too, and is left alone.
func TestSlots_NODE5_OthersMachinesCount(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{VMLimit: 5, Rules: []tart.Rule{{Command: "run", Name: "unlisted", Effect: tart.EffectUnlocked}}})
	m.tart("clone", testImage, "mine")
	theirs := exec.Command(programs, "tart", "run", "mine", "--no-graphics")
	theirs.Env = append(os.Environ(), "TART_HOME="+m.home())
	require.NoError(t, theirs.Start())
	t.Cleanup(func() { _ = theirs.Process.Signal(syscall.SIGINT); _ = await.Call(t, theirs.Wait, "the VM ends") })
	require.Eventually(t, func() bool { return m.holder("mine") != 0 }, patience, 5*time.Millisecond)

	s := m.open()
	require.Equal(t, int64(1), allocatable(s))
	pod := m.start(s, runs)
	other, c := m.newPod(runs)
	err := m.tryStart(t.Context(), s, other, c)
	requireDelayed(t, err, reasonNoSlot)
	require.ErrorContains(t, err, "1 by other programs")
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	require.NotZero(t, m.holder("mine"))
}

// Tart lists the machines of the agent's user only; licence and kernel count those of every user.
func TestSlots_NODE5_MachinesOfOtherUsersCount(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{VMLimit: 5, OtherMachines: 1})
	s := m.open()
	require.Equal(t, int64(1), allocatable(s))
	pod := m.start(s, runs)
	other, c := m.newPod(runs)
	requireDelayed(t, m.tryStart(t.Context(), s, other, c), reasonNoSlot)
	require.Len(t, m.calls("run"), 1)
	m.script(tart.Script{VMLimit: 5})
	require.NoError(t, s.Start(t.Context(), other, c))
	require.Equal(t, int64(2), allocatable(s), "its own machines are not counted twice")
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	require.NoError(t, s.Remove(t.Context(), string(other.UID)))
}

// Its record could not be read for a moment when the agent started, so nothing has adopted it yet.
func TestSlots_NODE5_AMachineThatIsNotAdoptedYetCounts(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	before := m.open()
	pod := m.start(before, runs)
	uid := string(pod.UID)
	before.Close()
	file := filepath.Join(before.vmDir(uid), recordFile)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s := m.open(func(o *Options) { o.Processes = nil }) // by Tart's list alone
	require.NoError(t, os.WriteFile(file, kept, 0o600))
	require.NoError(t, s.countForeign(t.Context()))
	require.Equal(t, int64(1), allocatable(s))

	r, err := s.load(uid)
	require.NoError(t, err)
	s.mind(r, true)
	require.NoError(t, s.countForeign(t.Context()))
	require.Equal(t, int64(2), allocatable(s), "it is the pod's")
	s.slots.read(func(l *ledger) { require.True(t, l.held[uid]) })
	require.NoError(t, s.Remove(t.Context(), uid))
	s.slots.read(func(l *ledger) { require.Empty(t, l.held) })
}

func TestSlots_NODE5_NothingStartsWithoutACount(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod, c := m.newPod(runs)
	m.script(tart.Script{Rules: []tart.Rule{{Command: "ps", Effect: tart.EffectAnswer, Exit: 1, Stderr: "ps: no"}}})
	requireDelayed(t, m.tryStart(t.Context(), s, pod, c), reasonTart)
	require.Empty(t, m.calls("run"))
	require.Zero(t, allocatable(s))
	require.Equal(t, string(kindNotCounted), condition(s, ConditionTartReady).Reason)
	m.script(tart.Script{})
	require.NoError(t, s.Start(t.Context(), pod, c))
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// The session may be another user's, with machines that this user's Tart does not list.
func TestSession_NODE3_IsNotRestartedUnderMachinesOfOtherUsers(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]tart.Script{
		"they run":               {OtherMachines: 1},
		"they are not countable": {Rules: []tart.Rule{{Command: "ps", Effect: tart.EffectAnswer, Exit: 1, Stderr: "ps: no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			script.Session = tart.SessionNone
			m.script(script)
			sign := filepath.Join(m.dir, "restarted")
			s := m.open(func(o *Options) { o.Kickstart = []string{"sh", "-c", "touch " + sign} })
			require.Eventually(t, func() bool { return s.Host().Conditions[1].Reason == reasonNoSession }, patience, 5*time.Millisecond)
			pod, c := m.newPod(runs)
			requireDelayed(t, m.tryStart(t.Context(), s, pod, c), reasonNoSession)
			s.Close()
			require.NoFileExists(t, sign)
		})
	}
}

// A host without a GUI session starts nothing, says so, offers no slot, and comes back by itself.
func TestSession_NODE9_IsEnsuredBeforeEachStart(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	var ahead atomic.Int64
	s := m.open(func(o *Options) {
		o.SessionPatience = 3 * time.Second // within it the restart itself ends, on a slow machine too
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Kickstart = []string{"sh", "-c", `echo >> "$0"; exec "$@"`, m.dir + "/kicks", programs, "launchctl"}
	})
	kicks := func() int {
		lines, _ := os.ReadFile(m.dir + "/kicks")
		return len(lines)
	}
	running := m.start(s, runs)
	require.Eventually(t, func() bool { return m.Settled(string(running.UID), "") }, patience, 5*time.Millisecond)
	m.script(tart.Script{Session: tart.SessionNone, LoginwindowRestores: true})
	pod, c := m.newPod(runs)
	err := m.tryStart(t.Context(), s, pod, c)
	requireDelayed(t, err, reasonNoSession)
	require.ErrorContains(t, err, "enable automatic login")
	require.ErrorContains(t, err, "the login window is not restarted while")
	require.Zero(t, kicks(), "NODE-3: a restart would take what runs with it")
	require.Len(t, m.calls("run"), 1, "no machine is started without a session")
	require.Equal(t, int64(1), allocatable(s), "it takes itself out of scheduling, but for what runs")
	require.Equal(t, corev1.ConditionFalse, condition(s, ConditionGUISession).Status)
	require.True(t, m.Settled(string(running.UID), ""))
	require.NoError(t, s.Remove(t.Context(), string(running.UID)))

	m.script(tart.Script{Session: tart.SessionBackground})
	requireDelayed(t, s.Start(t.Context(), pod, c), reasonNoSession)
	require.Equal(t, 1, kicks())
	m.script(tart.Script{Session: tart.SessionNone, LoginwindowRestores: true})
	requireDelayed(t, s.Start(t.Context(), pod, c), reasonNoSession)
	require.Equal(t, 1, kicks(), "whoever logs in by hand is left the time to")

	ahead.Add(int64(firstKickPause))
	require.NoError(t, s.Start(t.Context(), pod, c), "the login window is restarted")
	require.Equal(t, int64(2), allocatable(s))
	require.Equal(t, corev1.ConditionTrue, condition(s, ConditionGUISession).Status)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// NODE-9: no pod is scheduled to a host without slots, so the host must restore its session without a request.
func TestSession_NODE9_ComesBackWithoutAPod(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Session: tart.SessionNone, LoginwindowRestores: true})
	s := m.open()
	require.Equal(t, int64(2), allocatable(s))
	require.Equal(t, "darwin", s.Host().OS)
	require.Equal(t, "arm64", s.Host().Arch)
}

func TestGhostSlot_CoolsDownAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{GhostSlots: 2})
	var ahead atomic.Int64
	s := m.open(func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Cooldown = time.Hour
	})
	pod, c := m.newPod(runs)
	requireDelayed(t, m.tryStart(t.Context(), s, pod, c), reasonGhost)
	require.Equal(t, corev1.ConditionTrue, condition(s, ConditionGhostSlots).Status)
	require.Equal(t, int64(1), allocatable(s))
	state, err := s.Inspect(t.Context(), string(pod.UID))
	require.NoError(t, err)
	require.Empty(t, state.Containers, "it has not started, and may be tried again")
	requireDelayed(t, s.Start(t.Context(), pod, c), reasonGhost)
	require.Zero(t, allocatable(s))
	tried := len(m.calls("run"))
	requireDelayed(t, s.Start(t.Context(), pod, c), reasonNoSlot)
	require.Len(t, m.calls("run"), tried, "a slot that cools down is not tried")

	m.script(tart.Script{})
	ahead.Store(int64(3 * time.Hour))
	require.NoError(t, s.Start(t.Context(), pod, c))
	require.Equal(t, int64(2), allocatable(s))
	require.Equal(t, corev1.ConditionFalse, condition(s, ConditionGhostSlots).Status)
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}
