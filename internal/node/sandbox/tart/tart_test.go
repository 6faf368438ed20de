//go:build unix

package tart

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// calls are the commands of that kind that Tart was given.
func (m mac) calls(command string) [][]string {
	m.t.Helper()
	all, err := tart.Calls(m.home())
	require.NoError(m.t, err)
	var args [][]string
	for _, c := range all {
		if len(c.Args) > 0 && c.Args[0] == command {
			args = append(args, c.Args)
		}
	}
	return args
}

// tryStart starts a pod of its own, which may fail.
func (m mac) tryStart(ctx context.Context, s *Sandbox, pod *corev1.Pod, c sandbox.Container) error {
	m.t.Helper()
	require.NoError(m.t, s.Prepare(ctx, pod))
	return s.Start(ctx, pod, c)
}

func requireDelayed(t *testing.T, err error, reason string) {
	t.Helper()
	var delayed *sandbox.DelayedError
	require.ErrorAs(t, err, &delayed)
	require.Equal(t, reason, delayed.Reason, "%v", err)
	require.NotEmpty(t, delayed.Message)
}

func allocatable(s *Sandbox) int64 {
	q := s.Host().Allocatable[runnerpod.ResourceMacOSVM]
	return q.Value()
}

func condition(s *Sandbox, kind string) sandbox.Condition {
	for _, c := range s.Host().Conditions {
		if c.Type == kind {
			return c
		}
	}
	return sandbox.Condition{}
}

// While one pod's image does not arrive, and another pod's machine cannot be stopped, a third is served.
func TestPods_NODE6_DoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Rules: []tart.Rule{
		{Command: "pull", Name: "registry.example.com/slow/image:1", Effect: tart.EffectHang},
		{Command: "stop", Name: "*-aaaaaaaa-*", Effect: tart.EffectHang},
	}})
	s := m.open()
	stuck, c := m.newPod(`trap '' TERM; ` + runs)
	stuck.UID = "aaaaaaaa-0000-4000-8000-000000000000"
	c = m.fill(stuck, c.Command[2])
	require.NoError(t, m.tryStart(t.Context(), s, stuck, c))

	slow, c := m.newPod(runs)
	c.Image, slow.Spec.Containers[0].Image = "registry.example.com/slow/image:1", "registry.example.com/slow/image:1"
	ctx, cancel := context.WithCancel(t.Context())
	pulling := make(chan error, 1)
	require.NoError(t, s.Prepare(ctx, slow))
	go func() { pulling <- s.Start(ctx, slow, c) }()
	require.Eventually(t, func() bool { return len(m.calls("pull")) == 2 }, patience, 5*time.Millisecond)
	stopping := make(chan error, 1)
	stopCtx, giveUp := context.WithCancel(t.Context())
	go func() { stopping <- s.Remove(stopCtx, string(stuck.UID)) }()
	require.Eventually(t, func() bool { return len(m.calls("stop")) == 1 }, patience, 5*time.Millisecond)

	quick := m.start(s, "exit 3")
	require.Equal(t, int32(3), m.wait(s, quick).Code)
	require.NoError(t, s.Remove(t.Context(), string(quick.UID)))

	cancel() // the pod is deleted
	require.ErrorIs(t, await.Receive(t, pulling, "the pull that was cancelled returns"), context.Canceled)
	require.NoError(t, s.Remove(t.Context(), string(slow.UID)))
	giveUp()
	require.Error(t, await.Receive(t, stopping, "the stop that was given up returns"))
	m.script(tart.Script{})
	require.NoError(t, s.Remove(t.Context(), string(stuck.UID)))
	require.Empty(t, m.runners())
}

// `tart run` exits with 0 when the guest crashes; a job may write anything for a report.
func TestExit_NODE4_UnknownIsNoSuccess(t *testing.T) {
	t.Parallel()
	crashes := []tart.Rule{{Command: "run", Effect: tart.EffectCrash, After: tart.Duration(3 * time.Second)}}
	for name, test := range map[string]struct {
		script string
		rule   []tart.Rule
		end    func(m mac, uid string)
		want   sandbox.Exit
	}{
		"crash": {script: runs, rule: crashes,
			want: sandbox.Exit{Code: 137, Unknown: true, Reason: reasonUnknown}},
		"no JSON": {script: `echo '{"code":0' > "$BULLPEN_STATUS_DIR/exit.json"; ` + runs, rule: crashes, want: sandbox.Exit{Code: 137, Unknown: true, Reason: reasonUnknown}},
		"code":    {script: `echo '{"code":256}' > "$BULLPEN_STATUS_DIR/exit.json"; ` + runs, rule: crashes, want: sandbox.Exit{Code: 137, Unknown: true, Reason: reasonUnknown}},
		"Tart killed": {script: runs, end: func(m mac, uid string) { _ = syscall.Kill(m.holder(m.vm(uid)), syscall.SIGKILL) },
			want: sandbox.Exit{Code: 137, Signal: 9, Reason: reasonRunFailed}},
		"reported": {script: "exit 5", want: sandbox.Exit{Code: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			m.script(tart.Script{Rules: test.rule})
			s := m.open()
			pod := m.start(s, test.script)
			if test.end != nil {
				require.Eventually(t, func() bool { return m.Settled(string(pod.UID), "") }, patience, 5*time.Millisecond)
				test.end(m, string(pod.UID))
			}
			exit := m.wait(s, pod)
			require.Equal(t, test.want.Code, exit.Code, "%+v", exit)
			require.Equal(t, test.want.Signal, exit.Signal)
			require.Equal(t, test.want.Unknown, exit.Unknown)
			require.Equal(t, test.want.Reason, exit.Reason)
			require.Empty(t, m.holder(m.vm(string(pod.UID))))
			require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
		})
	}
}

// A machine with a name of ours and without a record is foreign; so is one that a record names and whose name is not ours.
func TestOwnership_NODE7_NeedsMarkAndRecord(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	uid := uuid.NewString()
	for _, name := range []string{m.vm(uid), "sequoia", "bullpen-00000000-" + uid, goldenName(m.owner(), "sha256:0011223344556677")} {
		m.tart("clone", testImage, name)
	}
	before := m.vms()
	require.NoError(t, s.Remove(t.Context(), uid), "there is no record of it")
	// A forged record names a foreign machine.
	require.NoError(t, os.MkdirAll(s.statusDir(uid), 0o700))
	for _, vm := range []string{"sequoia", "bullpen-00000000-" + uid} {
		require.NoError(t, s.save(record{PodRef: sandbox.PodRef{UID: uid}, Owner: s.owner, VM: vm, Begun: true}))
		_, err := s.Inspect(t.Context(), uid)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.NoError(t, s.Remove(t.Context(), uid))
		require.ErrorContains(t, s.deleteVM(t.Context(), vm), "does not belong to Bullpen")
		require.ErrorContains(t, s.stopVM(t.Context(), vm), "does not belong to Bullpen")
	}
	s.sweep(t.Context())
	_, err := s.CollectImages(t.Context(), 1<<50)
	require.NoError(t, err)
	require.Equal(t, before, m.vms())
	require.Empty(t, m.calls("delete"))
	require.Empty(t, m.calls("stop"))
}

// The pod's object may go when Remove says nil, and not before.
func TestRemove_NODE2_SucceedsWhenTheMachineIsGone(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod := m.start(s, runs)
	uid := string(pod.UID)
	require.Eventually(t, func() bool { return m.Settled(uid, "") }, patience, 5*time.Millisecond)
	m.script(tart.Script{Rules: []tart.Rule{{Command: "delete", Effect: tart.EffectAnswer, Message: "unknown"}}})
	require.Error(t, s.Remove(t.Context(), uid))
	require.Equal(t, []string{m.vm(uid)}, m.runners())
	require.False(t, m.Settled(uid, ""))
	_, err := s.Inspect(t.Context(), uid)
	require.NoError(t, err, "it stays on record")

	// A failure with the intended effect is distinguished from one without.
	m.script(tart.Script{Rules: []tart.Rule{{Command: "delete", Effect: tart.EffectFailAfterwards, Message: "unknown"}}})
	require.NoError(t, s.Remove(t.Context(), uid))
	m.requireNothingOf(s, uid)
}

// Tart does not know that the machine runs, and cannot stop it.
func TestRemove_NODE2_EndsAMachineThatTartCallsStopped(t *testing.T) {
	t.Parallel()
	for _, effect := range []tart.Effect{tart.EffectUnlocked, tart.EffectIgnoreInterrupt} {
		m := newMac(t)
		m.script(tart.Script{Rules: []tart.Rule{{Command: "run", Effect: effect}}})
		s := m.open(func(o *Options) { o.StayUp = 100 * time.Millisecond })
		// Without its lock the guest cannot be reached from the host: it starts its agent on boot.
		pod, c := m.newPod(runs)
		require.NoError(t, m.tryStart(t.Context(), s, pod, c))
		require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
		m.requireNothingOf(s, string(pod.UID))
	}
}

// The goroutines of adopted machines send news before and while TellNews sets the receiver.
func TestNews_AreToldWhileWhoListensIsNamed(t *testing.T) {
	s := &Sandbox{}
	var reports atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for reports.Load() == 0 && t.Context().Err() == nil {
			s.news("pod", "Silent", "its guest says nothing")
		}
	}()
	s.TellNews(func(string, sandbox.News) { reports.Add(1) })
	await.Receive(t, done, "news arrive")
}

// One pull, one base, two clones with identities and shapes of their own.
func TestGolden_IsMadeOncePerDigest(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	var reports sync.Map
	s.TellNews(func(podUID string, news sandbox.News) { reports.Store(news.Reason, podUID+" "+news.Message) })
	var wg sync.WaitGroup
	pods := make([]*corev1.Pod, 2)
	for i := range pods {
		pod, c := m.newPod(runs)
		pods[i] = pod
		require.NoError(t, s.Prepare(t.Context(), pod))
		wg.Go(func() {
			if err := s.Start(t.Context(), pod, c); err != nil {
				t.Errorf("starting: %v", err)
			}
		})
	}
	await.Return(t, wg.Wait, "all pods start")
	require.Len(t, m.calls("pull"), 1)
	for _, reason := range []string{"Pulling", "Pulled"} {
		text, ok := reports.Load(reason)
		require.True(t, ok, reason)
		require.Contains(t, text, pods[0].Spec.Containers[0].Image)
	}
	base := ""
	for _, call := range m.calls("clone") {
		if strings.Contains(call[2], goldenInfix) {
			require.Empty(t, base, "it is made once")
			base = call[2]
		}
	}
	for _, pod := range pods {
		vm := m.vm(string(pod.UID))
		require.True(t, slices.ContainsFunc(m.calls("clone"), func(c []string) bool { return c[1] == base && c[2] == vm }))
		set := strings.Join(m.calls("set")[slices.IndexFunc(m.calls("set"), func(c []string) bool { return c[1] == vm })], " ")
		require.Equal(t, "set "+vm+" --cpu 4 --memory 8192 --random-mac --random-serial", set)
		i := slices.IndexFunc(m.calls("run"), func(c []string) bool { return c[1] == vm })
		run := strings.Join(m.calls("run")[i], " ")
		require.Contains(t, run, "--no-graphics")
		require.Contains(t, run, "--root-disk-opts caching=cached")
		require.Contains(t, run, "shared:ro")
	}
	require.Equal(t, base, m.vms()[slices.IndexFunc(m.vms(), func(n string) bool { return strings.Contains(n, goldenInfix) })])
	for _, pod := range pods {
		require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	}
	freed, err := s.CollectImages(t.Context(), 1)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.Empty(t, m.vms())
}

func TestGolden_ThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]tart.Rule{
		"clone of the image": {Command: "clone", Name: "bullpen-*-golden-*", Times: 1, Effect: tart.EffectFailAfterwards, Message: "unknown"},
		"clone of the base":  {Command: "clone", Skip: 1, Times: 1, Effect: tart.EffectAnswer, Message: "corrupt"},
		"set":                {Command: "set", Times: 1, Effect: tart.EffectAnswer, Message: "corrupt"},
		"run":                {Command: "run", Times: 1, Effect: tart.EffectAnswer, Message: "corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			m.script(tart.Script{Rules: []tart.Rule{rule}})
			s := m.open()
			pod, c := m.newPod("exit 4")
			requireDelayed(t, m.tryStart(t.Context(), s, pod, c), reasonCreate)
			require.False(t, slices.ContainsFunc(m.vms(), func(n string) bool { return strings.Contains(n, goldenInfix) }), "it is suspect")
			require.NoError(t, s.Start(t.Context(), pod, c))
			require.Equal(t, int32(4), m.wait(s, pod).Code)
			require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
		})
	}
}

func TestPull_MakesRoomOnce(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	old := m.start(s, "exit 0")
	m.wait(s, old)
	m.script(tart.Script{Rules: []tart.Rule{{Command: "pull", Times: 1, Effect: tart.EffectAnswer, Message: "no-space"}}})
	pod, c := m.newPod("exit 0")
	c.Image, pod.Spec.Containers[0].Image = "registry.example.com/macos/new:1", "registry.example.com/macos/new:1"
	require.NoError(t, m.tryStart(t.Context(), s, pod, c))
	require.Len(t, m.calls("pull"), 3, "the old image, a failure, and again")

	m.script(tart.Script{Rules: []tart.Rule{{Command: "pull", Effect: tart.EffectAnswer, Message: "no-space"}}})
	full, c := m.newPod("exit 0")
	c.Image, full.Spec.Containers[0].Image = "registry.example.com/macos/newer:1", "registry.example.com/macos/newer:1"
	m.wait(s, pod)
	requireDelayed(t, m.tryStart(t.Context(), s, full, c), reasonDisk)
	for _, p := range []*corev1.Pod{old, pod, full} {
		require.NoError(t, s.Remove(t.Context(), string(p.UID)))
	}
}

// The poller is a process of the host, and receives the path of the supervisor's signals.
func TestStart_RunsPollerAndAgentOnTheHost(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod, _ := m.newPod(runs)
	uid := string(pod.UID)
	ctx := t.Context()
	require.ErrorIs(t, s.Start(ctx, pod, sandbox.Container{Name: runnerpod.ContainerPoller, Command: []string{"true"}}), sandbox.ErrNotFound)
	require.NoError(t, s.Prepare(ctx, pod))
	require.NoError(t, s.Start(ctx, pod, sandbox.Container{
		Name: runnerpod.ContainerPoller, Command: []string{"sh", "-c", `test "$BULLPEN_STATUS_DIR" = "$1"`, "sh", m.status(uid)},
	}))
	exit, err := s.Wait(ctx, uid, runnerpod.ContainerPoller)
	require.NoError(t, err)
	require.Zero(t, exit.Code)
	require.NoError(t, s.Start(ctx, pod, sandbox.Container{
		Name: runnerpod.ContainerAgent, Command: []string{runnerpod.MacAgentCommand, "tart", "--version"},
	}))
	exit, err = s.Wait(ctx, uid, runnerpod.ContainerAgent)
	require.NoError(t, err)
	require.NotEqual(t, int32(128), exit.Code, "the image's binary is this machine's")
	state, err := s.Inspect(ctx, uid)
	require.NoError(t, err)
	require.Len(t, state.Containers, 2)
	require.NoError(t, s.Remove(ctx, uid))
}

// Whatever is wrong with Tart is one condition of the node; a machine that runs goes on.
func TestTart_ThatCannotBeUsedIsOneCondition(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open(func(o *Options) { o.RefreshEvery = 20 * time.Millisecond })
	running := m.start(s, `while ! test -e "$BULLPEN_STATUS_DIR/go"; do sleep 0.02; done; exit 9`)
	healthy := func() bool {
		return allocatable(s) == 2 && condition(s, ConditionTartReady).Status == corev1.ConditionTrue
	}
	for reason, script := range map[string]tart.Script{
		"Unreadable": {Rules: []tart.Rule{{Command: "list", Effect: tart.EffectAnswer, Stdout: "[{"}}},
		"TooOld":     {Version: "1.9.0"},
		"Usage":      {Rules: []tart.Rule{{Command: "list", Effect: tart.EffectAnswer, Message: "bad-arguments"}}},
		"Unknown":    {Rules: []tart.Rule{{Command: "list", Effect: tart.EffectAnswer, Message: "unknown"}}},
	} {
		require.Eventually(t, healthy, patience, 5*time.Millisecond, reason)
		m.script(script)
		require.Eventually(t, func() bool { return condition(s, ConditionTartReady).Reason == reason }, patience, 5*time.Millisecond, reason)
		require.Equal(t, corev1.ConditionFalse, condition(s, ConditionTartReady).Status)
		require.NotEmpty(t, condition(s, ConditionTartReady).Message)
		require.Equal(t, int64(1), allocatable(s), "what runs, and no more")
		if strings.HasPrefix(reason, "U") {
			pod, c := m.newPod(runs)
			require.Error(t, m.tryStart(t.Context(), s, pod, c), "who cannot count starts nothing")
			require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
		}
		m.script(tart.Script{})
	}
	require.NoError(t, os.WriteFile(filepath.Join(m.status(string(running.UID)), "go"), nil, 0o600))
	require.Equal(t, int32(9), m.wait(s, running).Code)
	require.NoError(t, s.Remove(t.Context(), string(running.UID)))

	missing := m.options()
	missing.Tart = []string{"/no/such/tart"}
	none, err := New(missing)
	require.NoError(t, err)
	defer none.Close()
	require.Equal(t, "NoProgram", condition(none, ConditionTartReady).Reason)
	require.Zero(t, allocatable(none))
}

// A pod's refusals and delays are what its author reads.
func TestStart_SaysWhyAnImageIsNotThere(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.script(tart.Script{Images: map[string]tart.Image{testImage: {Missing: true}}})
	s := m.open()
	pod, c := m.newPod(runs)
	err := m.tryStart(t.Context(), s, pod, c)
	requireDelayed(t, err, reasonPull)
	require.ErrorContains(t, err, testImage)
	m.script(tart.Script{})
	require.NoError(t, s.Start(t.Context(), pod, c))
	require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
}

// Cleanup ends the machines of a state directory, and keeps their records.
func TestCleanup_LeavesNoMachine(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod := m.start(s, runs)
	s.Close()
	pods, err := Cleanup(t.Context(), m.options())
	require.NoError(t, err)
	require.Equal(t, 1, pods)
	require.Empty(t, m.runners())
	again := m.open()
	exit := m.wait(again, pod)
	require.Equal(t, int32(137), exit.Code)
	require.False(t, exit.Unknown)
	require.NoError(t, again.Remove(t.Context(), string(pod.UID)))
}

// A record survives being written and read.
func TestRecord_IsJSON(t *testing.T) {
	r := record{PodRef: sandbox.PodRef{UID: "u"}, Exit: &sandbox.Exit{Code: 3, Reason: "x"}}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var back record
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, r, back)
	require.Equal(t, guestshare.FileAgent, runnerpod.FileMacAgent, "the guest starts what the init container installs")
}

// An agent that ends, or is upgraded, stops no machine; the next one looks after it as if it had started it.
func TestClose_NODE3_StopsNoMachine(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	s := m.open()
	pod := m.start(s, runs)
	uid := string(pod.UID)
	require.Eventually(t, func() bool { return m.Settled(uid, "") }, patience, 5*time.Millisecond)
	s.Close()
	require.True(t, m.Settled(uid, ""))
	require.Empty(t, m.calls("stop"))

	next := m.open()
	next.slots.read(func(l *ledger) {
		require.Equal(t, map[string]bool{uid: true}, l.held, "counted before anything is started")
	})
	require.NoError(t, next.Signal(t.Context(), uid, runnerpod.ContainerRunner, sandbox.Terminate))
	require.Equal(t, int32(15), m.wait(next, pod).Signal)
	require.Len(t, m.calls("run"), 1)
	require.NoError(t, next.Remove(t.Context(), uid))
}
