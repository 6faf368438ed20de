package sandboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Behaviour is what a container should do for the suite.
type Behaviour struct {
	// ExitCode is the code with which it exits at once, unless Runs.
	ExitCode int32
	// Runs makes it run until a signal ends it.
	Runs bool
	// IgnoreTerminate makes Terminate of no avail.
	IgnoreTerminate bool
	// Writes is a line, of letters, that it writes to its standard output before anything else.
	Writes string
}

// Machine is a back end under test.
type Machine interface {
	// Open is a new life of the node agent on the same machine.
	Open(t *testing.T) sandbox.Sandbox
	// Make gives the pod a container of that behaviour and returns what to start.
	Make(t *testing.T, pod *corev1.Pod, name string, b Behaviour) sandbox.Container
	// Settled indicates that a started container has come to where its behaviour is in force.
	Settled(podUID, name string) bool
	// Lose ends the container in a way that no one can observe.
	Lose(t *testing.T, podUID, name string)
	// Intrude puts something on the machine that looks like a pod but does not carry the sandbox's mark; exists reports whether it still
	// exists.
	Intrude(t *testing.T, ref sandbox.PodRef) (exists func() bool)
	// True is a command for Exec that succeeds.
	True() []string
	// Script is a command for Exec that writes text, which is of letters, to its standard error, copies its standard input to its
	// standard output, and exits with code.
	Script(text string, code int) []string
	// TerminalSize is a command for Exec that writes its terminal's lines and columns, "24 80", for each line that it reads; nil where
	// there are no terminals.
	TerminalSize() []string
}

// Named is implemented by machines whose sandbox knows containers by certain names only.
type Named interface {
	// ContainerName is that of the container under test; others call it main.
	ContainerName() string
}

const patience = 20 * time.Second

// Run holds a back end to the contract of sandbox.Sandbox. newMachine is called once for each test.
func Run(t *testing.T, newMachine func(t *testing.T) Machine) {
	tests := map[string]func(*fixture){
		"ExitCodes":                                 exitCodes,
		"StartIsOnce":                               startIsOnce,
		"UnknownNames":                              unknownNames,
		"PrepareIsIdempotent":                       prepareIsIdempotent,
		"TerminateAsks":                             terminateAsks,
		"TerminateMayBeIgnored_KillNot":             killEnds,
		"WaitEndsWithItsContext":                    waitEndsWithItsContext,
		"Exec":                                      execs,
		"ExecNeedsARunningContainer":                execNeedsARunningContainer,
		"ExecStreams":                               execStreams,
		"ExecEndsWithItsContext":                    execEndsWithItsContext,
		"ExecEndsWithItsContainer":                  execEndsWithItsContainer,
		"ExecHoldsNoContainerUp":                    execHoldsNoContainerUp,
		"ExecTerminal":                              execTerminal,
		"Log":                                       logs,
		"LogOutlivesItsContainer":                   logOutlivesItsContainer,
		"NODE2_RemoveEndsAndForgets":                removeEndsAndForgets,
		"NODE3_NewAgentFindsWhatRuns":               newAgentFindsWhatRuns,
		"NODE3_NewAgentLearnsExitOfItsPredecessors": newAgentLearnsExits,
		"NODE4_LostEndIsUnknown":                    lostEndIsUnknown,
		"NODE6_PodsDoNotWaitForEachOther":           podsAreIndependent,
		"NODE7_LeavesStrangersAlone":                leavesStrangersAlone,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			m := newMachine(t)
			name := "main"
			if named, ok := m.(Named); ok {
				name = named.ContainerName()
			}
			test(&fixture{T: t, ctx: ctx, machine: m, name: name, sb: m.Open(t)})
		})
	}
}

type fixture struct {
	*testing.T
	ctx     context.Context
	machine Machine
	name    string // of the container under test
	sb      sandbox.Sandbox
}

func (f *fixture) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID(uuid.NewString()), Annotations: map[string]string{}}}
	f.Cleanup(func() {
		if err := f.sb.Remove(context.WithoutCancel(f.ctx), string(pod.UID)); err != nil {
			f.Errorf("removing the pod after the test: %v", err)
		}
	})
	return pod
}

// start brings one container up in a pod of its own.
func (f *fixture) start(b Behaviour) *corev1.Pod {
	f.Helper()
	pod := f.pod()
	c := f.machine.Make(f.T, pod, f.name, b)
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = "node", ptr.To(int64(900))
	require.NoError(f, f.sb.Prepare(f.ctx, pod))
	require.NoError(f, f.sb.Start(f.ctx, pod, c))
	if b.Runs {
		require.Eventually(f, func() bool { return f.machine.Settled(string(pod.UID), f.name) }, patience, 5*time.Millisecond)
	}
	return pod
}

func (f *fixture) wait(pod *corev1.Pod) sandbox.Exit {
	f.Helper()
	exit, err := f.sb.Wait(f.ctx, string(pod.UID), f.name)
	require.NoError(f, err)
	return exit
}

func exitCodes(f *fixture) {
	for _, code := range []int32{0, 1, 3, 255} {
		pod := f.start(Behaviour{ExitCode: code})
		exit := f.wait(pod)
		require.Equal(f, code, exit.Code)
		require.False(f, exit.Unknown)
		require.Zero(f, exit.Signal)
		require.False(f, exit.StartedAt.IsZero())
		require.False(f, exit.FinishedAt.Before(exit.StartedAt))

		again := f.wait(pod)
		require.Equal(f, exit.Code, again.Code, "the answer stays")
		state, err := f.sb.Inspect(f.ctx, string(pod.UID))
		require.NoError(f, err)
		c, ok := state.Container(f.name)
		require.True(f, ok)
		require.NotNil(f, c.Exit)
		require.Equal(f, code, c.Exit.Code)
		require.NotEmpty(f, c.ID)
	}
}

func startIsOnce(f *fixture) {
	pod := f.pod()
	c := f.machine.Make(f.T, pod, f.name, Behaviour{Runs: true})
	require.NoError(f, f.sb.Prepare(f.ctx, pod))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := f.sb.Start(f.ctx, pod, c); err != nil {
				f.Errorf("starting: %v", err)
			}
		})
	}
	await.Return(f, wg.Wait, "all starts return")
	before, err := f.sb.Inspect(f.ctx, string(pod.UID))
	require.NoError(f, err)
	require.Len(f, before.Containers, 1)

	require.NoError(f, f.machine.Open(f.T).Start(f.ctx, pod, c), "a new agent does not start it again")
	after, err := f.sb.Inspect(f.ctx, string(pod.UID))
	require.NoError(f, err)
	require.Equal(f, before.Containers[0].ID, after.Containers[0].ID)

	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Kill))
	first := f.wait(pod)
	require.NoError(f, f.sb.Start(f.ctx, pod, c), "nor when it has ended")
	require.Equal(f, first.Code, f.wait(pod).Code)
}

func unknownNames(f *fixture) {
	_, err := f.sb.Inspect(f.ctx, "nobody")
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	require.NoError(f, f.sb.Remove(f.ctx, "nobody"))

	pod := f.pod()
	uid := string(pod.UID)
	require.Error(f, f.sb.Start(f.ctx, pod, f.machine.Make(f.T, pod, f.name, Behaviour{})), "not prepared")
	require.NoError(f, f.sb.Prepare(f.ctx, pod))
	_, err = f.sb.Wait(f.ctx, uid, f.name)
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	_, err = f.sb.Exec(f.ctx, uid, f.name, f.machine.True(), sandbox.Streams{})
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	require.ErrorIs(f, f.sb.Signal(f.ctx, uid, f.name, sandbox.Kill), sandbox.ErrNotFound)
}

func prepareIsIdempotent(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	require.NoError(f, f.sb.Prepare(f.ctx, pod))
	state, err := f.sb.Inspect(f.ctx, string(pod.UID))
	require.NoError(f, err)
	require.Equal(f, sandbox.PodRef{UID: string(pod.UID), Namespace: "ns", Name: "pod"}, state.PodRef)
	require.Len(f, state.Containers, 1)
	require.Nil(f, state.Containers[0].Exit)
}

func terminateAsks(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Terminate))
	exit := f.wait(pod)
	require.Equal(f, int32(15), exit.Signal)
	require.Equal(f, int32(128+15), exit.Code)
	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Terminate), "what has ended may be asked again")
}

func killEnds(f *fixture) {
	pod := f.start(Behaviour{Runs: true, IgnoreTerminate: true})
	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Terminate))
	short, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := f.sb.Wait(short, string(pod.UID), f.name)
	require.ErrorIs(f, err, context.DeadlineExceeded)
	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Kill))
	exit := f.wait(pod)
	require.Equal(f, int32(9), exit.Signal)
	require.Equal(f, int32(128+9), exit.Code)
	require.False(f, exit.Unknown, "a kill of our own is no mystery")
}

func waitEndsWithItsContext(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := f.sb.Wait(ctx, string(pod.UID), f.name)
		done <- err
	}()
	cancel()
	require.ErrorIs(f, await.Receive(f, done, "the wait returns"), context.Canceled)
}

func execs(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	code, err := f.sb.Exec(f.ctx, string(pod.UID), f.name, f.machine.True(), sandbox.Streams{})
	require.NoError(f, err)
	require.Zero(f, code)
}

func removeEndsAndForgets(f *fixture) {
	pod := f.start(Behaviour{Runs: true, IgnoreTerminate: true})
	uid := string(pod.UID)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = f.sb.Wait(f.ctx, uid, f.name) // the result does not matter, as long as it returns
	}()
	require.NoError(f, f.sb.Remove(f.ctx, uid))
	await.Receive(f, ended, "the wait returns")
	require.False(f, f.machine.Settled(uid, f.name), "nothing runs any more")
	_, err := f.sb.Inspect(f.ctx, uid)
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	refs, err := f.sb.List(f.ctx)
	require.NoError(f, err)
	require.Empty(f, refs)
	require.NoError(f, f.sb.Remove(f.ctx, uid), "removing twice is fine")
}

func newAgentFindsWhatRuns(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	uid := string(pod.UID)
	second := f.machine.Open(f.T)
	refs, err := second.List(f.ctx)
	require.NoError(f, err)
	require.Equal(f, []sandbox.PodRef{{UID: uid, Namespace: "ns", Name: "pod"}}, refs)
	state, err := second.Inspect(f.ctx, uid)
	require.NoError(f, err)
	require.Equal(f, sandbox.TermsOf(pod), state.Terms, "for an agent to which the API server does not show the pod")
	require.Len(f, state.Containers, 1)
	require.Nil(f, state.Containers[0].Exit)
	require.False(f, state.Containers[0].StartedAt.IsZero())
	require.True(f, f.machine.Settled(uid, f.name), "and it still runs")

	code, err := second.Exec(f.ctx, uid, f.name, f.machine.True(), sandbox.Streams{})
	require.NoError(f, err)
	require.Zero(f, code)
	require.NoError(f, second.Signal(f.ctx, uid, f.name, sandbox.Terminate))
	exit, err := second.Wait(f.ctx, uid, f.name)
	require.NoError(f, err)
	require.Equal(f, int32(15), exit.Signal)
}

func newAgentLearnsExits(f *fixture) {
	pod := f.start(Behaviour{ExitCode: 7})
	f.wait(pod)
	exit, err := f.machine.Open(f.T).Wait(f.ctx, string(pod.UID), f.name)
	require.NoError(f, err)
	require.Equal(f, int32(7), exit.Code)
	require.False(f, exit.Unknown)
}

func lostEndIsUnknown(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	uid := string(pod.UID)
	f.machine.Lose(f.T, uid, f.name)
	for _, sb := range []sandbox.Sandbox{f.sb, f.machine.Open(f.T)} {
		exit, err := sb.Wait(f.ctx, uid, f.name)
		require.NoError(f, err)
		require.True(f, exit.Unknown)
		require.Equal(f, int32(sandbox.UnknownExitCode), exit.Code)
		require.Equal(f, "ContainerStatusUnknown", exit.Reason)
	}
	// Processes in a virtual machine end with the machine, which the guest notices a moment later.
	require.Eventually(f, func() bool { return !f.machine.Settled(uid, f.name) }, patience, 5*time.Millisecond, "what it left behind is ended")
}

func podsAreIndependent(f *fixture) {
	slow := f.start(Behaviour{Runs: true, IgnoreTerminate: true})
	require.NoError(f, f.sb.Signal(f.ctx, string(slow.UID), f.name, sandbox.Terminate))
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		_, _ = f.sb.Wait(f.ctx, string(slow.UID), f.name)
	}()
	quick := f.start(Behaviour{ExitCode: 0})
	require.Zero(f, f.wait(quick).Code)
	require.NoError(f, f.sb.Remove(f.ctx, string(quick.UID)))
	select {
	case <-waiting:
		f.Fatal("the slow pod has ended")
	default:
	}
	require.NoError(f, f.sb.Remove(f.ctx, string(slow.UID)))
	await.Receive(f, waiting, "the wait returns")
}

func leavesStrangersAlone(f *fixture) {
	ref := sandbox.PodRef{UID: uuid.NewString(), Namespace: "ns", Name: "stranger"}
	exists := f.machine.Intrude(f.T, ref)
	refs, err := f.sb.List(f.ctx)
	require.NoError(f, err)
	require.Empty(f, refs)
	_, err = f.sb.Inspect(f.ctx, ref.UID)
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	require.NoError(f, f.sb.Remove(f.ctx, ref.UID))
	require.True(f, exists())
}
