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
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/sandboxtest"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
)

type machine struct{ *synthetic.Machine }

func (m machine) Open(*testing.T) sandbox.Sandbox { return synthetic.New(m.Machine) }

func (m machine) Make(_ *testing.T, pod *corev1.Pod, name string, b sandboxtest.Behaviour) sandbox.Container {
	text := fmt.Sprintf("exit=%d", b.ExitCode)
	if !b.Runs {
		text += ",after=1ns"
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

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(*testing.T) sandboxtest.Machine { return machine{synthetic.NewMachine(nil)} })
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
	code, err := sb.Exec(t.Context(), "u", "a", nil)
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
	for _, text := range []string{"exit=x", "exit=256", "after=soon", "after=-1s", "exec=", "sleep=1"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{synthetic.AnnotationPrefix + "c": text}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		}
		var invalid *sandbox.InvalidError
		require.ErrorAs(t, synthetic.New(synthetic.NewMachine(nil)).Admit(pod), &invalid, text)
		require.Contains(t, invalid.Message, text)
	}
}
