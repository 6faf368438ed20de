package pool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

type scriptedLogs func(ctx context.Context, pod, container string) ([]byte, error)

func (f scriptedLogs) Tail(ctx context.Context, _, pod, container string) ([]byte, error) {
	return f(ctx, pod, container)
}

const overfullTail = "No space\n\nBullpen: this runner was evicted, because it wrote more than it may: Usage of EmptyDir volume \"bullpen-work\" exceeds the limit \"10Gi\". " +
	"Raise its limit of ephemeral storage (spec.resources.ephemeralStorage of a RunnerPool, or the sizeLimit of the volume), or have the job write less."

// What a runner that died had said last goes with the report of its end, while its pod is there; a log that cannot be read holds up nothing.
func TestReport_TakesTheLastLinesOfARunnerThatDied(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	s.run()
	killed := func(p *corev1.Pod) {
		terminal(p)
		p.Status.Phase = corev1.PodFailed
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].State = ended(137)
		}
	}
	overfull := func(p *corev1.Pod) {
		killed(p)
		p.Status.Reason, p.Status.Message = "Evicted", `Usage of EmptyDir volume "bullpen-work" exceeds the limit "10Gi". `
	}
	var reported runnerapi.PodStopped
	s.server.onReport = func(stopped runnerapi.PodStopped) { reported = stopped }
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		log    func(pod string) ([]byte, error)
		died   bool
		tail   string
	}{
		"killed":             {killed, func(pod string) ([]byte, error) { return fmt.Appendf(nil, "%s:\nout of memory\x00\n", pod), nil }, true, ":\nout of memory"},
		"nobody can read it": {killed, func(string) ([]byte, error) { return nil, errors.New("no kubelet") }, true, ""},
		"TEN-6 evicted":      {overfull, func(string) ([]byte, error) { return []byte("No space\n"), nil }, true, overfullTail},
		"it ended well":      {terminal, func(string) ([]byte, error) { return nil, errors.New("it is nobody's business") }, false, ""},
	} {
		asked := 0
		s.removals.logs = scriptedLogs(func(ctx context.Context, pod, container string) ([]byte, error) {
			asked++
			require.Equal(t, "runner", container)
			require.True(t, s.exists(&corev1.Pod{}, pod))
			until, bounded := ctx.Deadline()
			require.True(t, bounded && time.Until(until) <= tailTimeout)
			return c.log(pod)
		})
		v := s.runner(c.change)
		s.state.podSeen(v, s.now())
		s.removals.add(s.state.key, v.name)
		require.Eventually(t, func() bool { return !s.exists(&corev1.Pod{}, v.name) }, 90*time.Second, 10*time.Millisecond, name)
		require.Equal(t, v.uid, reported.Pod.UID, name)
		require.Equal(t, c.died, reported.Died, name)
		require.Equal(t, c.died, asked == 1, name)
		switch c.tail {
		case "":
		case overfullTail:
			require.Equal(t, overfullTail, reported.Tail, name)
			require.Equal(t, "Evicted", reported.Reason)
		default:
			require.Equal(t, v.name+c.tail, reported.Tail, name)
		}
	}
}

// The poller of a runner that died before it had a job waits on, so that its pod is no terminal one and goes by the fence: what it had said is
// read before.
func TestReport_TakesTheLastLinesBeforeThePodGoes(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	s.run()
	reports := make(chan runnerapi.PodStopped, 1)
	s.server.onReport = func(stopped runnerapi.PodStopped) { reports <- stopped }
	s.removals.logs = scriptedLogs(func(_ context.Context, pod, _ string) ([]byte, error) {
		require.True(t, s.exists(&corev1.Pod{}, pod), "there is nothing to read any more")
		return []byte("out of memory"), nil
	})
	v := s.runner(func(p *corev1.Pod) {
		for i := range p.Status.ContainerStatuses {
			if p.Status.ContainerStatuses[i].Name == runnerpod.ContainerRunner {
				p.Status.ContainerStatuses[i].State, p.Status.ContainerStatuses[i].Ready = ended(137), false
			}
		}
	})
	require.NotEmpty(t, v.defect)
	s.state.podSeen(v, s.now())
	s.state.change(v.name, s.now(), func(m *member) { m.leave.Removal = lifecycle.RemovalGranted })
	s.removals.add(s.state.key, v.name)
	require.Eventually(t, func() bool { return !s.exists(&corev1.Pod{}, v.name) }, 90*time.Second, 10*time.Millisecond)
	s.state.podGone(v.name, "", s.now())
	s.removals.add(s.state.key, v.name)
	select {
	case stopped := <-reports:
		require.True(t, stopped.Died)
		require.Equal(t, "out of memory", stopped.Tail)
		require.EqualValues(t, 137, *stopped.ExitCode)
	case <-time.After(90 * time.Second):
		t.Fatal("its end was not reported")
	}
}

func TestEvents_TEN6_AnEvictedRunnerIsToldOfWhetherOrNotItHadAJob(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	object := &v1alpha1.RunnerPool{}
	writer := &eventWriter{recorder: recorder, object: func(types.NamespacedName) runtime.Object { return object }}
	for _, failed := range []bool{true, false} {
		writer.removed(key, member{name: "linux-4-aaaaaaaa", view: podView{failed: failed, end: ending{reason: "Evicted", evicted: "evicted, because it wrote more than it may"}}})
		told := await.Receive(t, recorder.Events, "an Event is recorded")
		require.Equal(t, "Warning RunnerEvicted linux-4-aaaaaaaa was evicted, because it wrote more than it may", told)
	}
	writer.removed(key, member{name: "linux-4-aaaaaaaa"})
	require.Empty(t, recorder.Events, "one that has done its work")
}

// One that the fleet has taken away has not died, whatever its end looks like.
func TestMember_DiedIsWhatNobodyWanted(t *testing.T) {
	bad := podView{terminal: true, end: ending{exited: true, exitCode: 143}}
	require.True(t, member{view: bad}.died())
	require.True(t, member{view: podView{terminal: true, end: ending{reason: "Evicted"}}}.died(), "it never ran")
	require.False(t, member{view: bad, leave: lifecycle.Leave{Removal: lifecycle.RemovalGranted}}.died())
	require.False(t, member{view: bad, gone: true}.died(), "there is nothing to read")
	require.False(t, member{view: podView{end: bad.end}}.died())
	require.False(t, member{view: podView{terminal: true, end: ending{exited: true}}}.died())
}
