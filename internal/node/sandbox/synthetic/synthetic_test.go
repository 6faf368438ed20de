package synthetic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/sandboxtest"
)

type machine struct{ *synthetic.Machine }

func (m machine) Open(*testing.T) sandbox.Sandbox { return synthetic.New(m.Machine) }

func (m machine) Make(_ *testing.T, pod *corev1.Pod, name string, b sandboxtest.Behaviour) sandbox.Container {
	text := fmt.Sprintf("exit=%d", b.ExitCode)
	if !b.Runs {
		text += ",after=1ns"
	}
	if b.Writes != "" {
		text += ",log=" + b.Writes
	}
	if b.IgnoreTerminate {
		text += ",ignore-terminate"
	}
	pod.Annotations[synthetic.AnnotationPrefix+name] = text
	return sandbox.Container{Name: name}
}

func (m machine) Settled(uid, name string) bool {
	state, err := synthetic.New(m.Machine).Inspect(context.Background(), uid)
	if err != nil {
		return false
	}
	c, ok := state.Container(name)
	return ok && c.Exit == nil
}

func (m machine) Lose(t *testing.T, uid, name string) { require.NoError(t, m.Machine.Lose(uid, name)) }

func (m machine) Intrude(_ *testing.T, ref sandbox.PodRef) func() bool {
	m.Machine.Intrude(ref)
	return func() bool { return m.Has(ref.UID) }
}

func (m machine) True() []string { return []string{"true"} }

func (m machine) Script(text string, code int) []string { return synthetic.Script(text, code) }

func (m machine) TerminalSize() []string { return nil }

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(*testing.T) sandboxtest.Machine { return machine{synthetic.NewMachine(nil)} })
}

// programs is a machine whose containers are programs: they read what to do from the pod's annotation.
type programs struct{ machine }

func (m programs) Make(t *testing.T, pod *corev1.Pod, name string, b sandboxtest.Behaviour) sandbox.Container {
	m.Install(name, synthetic.Program{Run: func(ctx context.Context, terminate <-chan struct{}, _ *corev1.Pod, _ sandbox.Container) int32 {
		switch {
		case !b.Runs:
			return b.ExitCode
		case b.IgnoreTerminate:
			terminate = nil
		}
		select {
		case <-ctx.Done():
			return 128 + 9
		case <-terminate:
			return 128 + 15
		}
	}})
	return m.machine.Make(t, pod, name, b)
}

func TestConformance_Programs(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Machine {
		m := synthetic.NewMachine(nil)
		t.Cleanup(m.Off)
		return programs{machine{m}}
	})
}

// NODE-2, NODE-3: a program goes on without the agent that started it, and Remove does not return before it has ended.
func TestProgram_NODE2_RemoveWaitsForItsEnd(t *testing.T) {
	m := synthetic.NewMachine(nil)
	killed, end := make(chan struct{}), make(chan struct{})
	m.Install("a", synthetic.Program{
		Run: func(ctx context.Context, _ <-chan struct{}, pod *corev1.Pod, c sandbox.Container) int32 {
			<-ctx.Done()
			close(killed)
			await.OrEnd(t, end)
			return 0
		},
		Exec: func(_ context.Context, c sandbox.Container, command []string) (int, error) {
			return len(c.Name) + len(command), nil
		},
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	agent, stop := context.WithCancel(t.Context())
	sb := synthetic.New(m)
	require.NoError(t, sb.Prepare(agent, pod))
	require.NoError(t, sb.Start(agent, pod, sandbox.Container{Name: "a"}))
	stop()
	code, err := sb.Exec(t.Context(), "u", "a", []string{"x", "y"}, sandbox.Streams{})
	require.NoError(t, err)
	require.Equal(t, 3, code)

	removed := make(chan error, 1)
	go func() { removed <- synthetic.New(m).Remove(t.Context(), "u") }()
	await.Receive(t, killed, "the container is killed")
	require.True(t, m.Has("u"))
	close(end)
	require.NoError(t, await.Receive(t, removed, "the sandbox is removed"))
	require.False(t, m.Has("u"))
	m.Off()
}

func TestReadinessFollowsItsTimetable(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	sb := synthetic.New(synthetic.NewMachine(clock))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{
		synthetic.AnnotationPrefix + "a": "start=1s, ready=2s, unready=5s",
	}}}
	require.NoError(t, sb.Prepare(t.Context(), pod))
	started := make(chan error, 1)
	go func() { started <- sb.Start(t.Context(), pod, sandbox.Container{Name: "a"}) }()
	require.Eventually(t, clock.HasWaiters, 20*time.Second, time.Millisecond)
	_, err := sb.Wait(t.Context(), "u", "a")
	require.ErrorIs(t, err, sandbox.ErrNotFound, "it is starting")
	clock.Step(time.Second)
	require.NoError(t, await.Receive(t, started, "the container starts"))
	for _, want := range []int{1, 1, 0, 0, 0, 1, 1} { // at 0 s, 1 s, …
		code, err := sb.Exec(t.Context(), "u", "a", nil, sandbox.Streams{})
		require.NoError(t, err)
		require.Equal(t, want, code)
		clock.Step(time.Second)
	}
}

func TestRunsAsLongAsToldAndEndsAsTold(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	m := synthetic.NewMachine(clock)
	sb := synthetic.New(m)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{
		synthetic.AnnotationPrefix + "a": "exit=4, after=2s, exec=1",
	}}}
	require.NoError(t, sb.Prepare(t.Context(), pod))
	require.NoError(t, sb.Start(t.Context(), pod, sandbox.Container{Name: "a"}))
	require.NoError(t, sb.Start(t.Context(), pod, sandbox.Container{Name: "b"}))
	code, err := sb.Exec(t.Context(), "u", "a", nil, sandbox.Streams{})
	require.NoError(t, err)
	require.Equal(t, 1, code)

	clock.Step(2 * time.Second)
	exit, err := sb.Wait(t.Context(), "u", "a")
	require.NoError(t, err)
	require.Equal(t, int32(4), exit.Code)
	require.Equal(t, 2*time.Second, exit.FinishedAt.Sub(exit.StartedAt))

	require.NoError(t, m.Exit("u", "b", 9))
	exit, err = sb.Wait(t.Context(), "u", "b")
	require.NoError(t, err)
	require.Equal(t, int32(9), exit.Code)
	require.Equal(t, 2, m.Starts())
}

func TestAdmitNamesTheBadAnnotation(t *testing.T) {
	for _, text := range []string{"exit=x", "exit=256", "after=soon", "after=-1s", "start=-1s", "ready=x", "unready=", "exec=", "sleep=1"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{synthetic.AnnotationPrefix + "c": text}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		}
		var invalid *sandbox.InvalidError
		require.ErrorAs(t, synthetic.New(synthetic.NewMachine(nil)).Admit(pod), &invalid, text)
		require.Contains(t, invalid.Message, text)
	}
}
