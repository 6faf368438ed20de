package runnerowner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// F 8.14: why a runner has ended under its job is reported once, with the runner's name at GitHub. A runner without a job lost none: the
// job that it could have received is still queued, and counts for its replacement.
func TestEnded_F814_TheReasonIsToldByTheNameThatTheJobHas(t *testing.T) {
	evicted := func(v *registered.View) {
		v.Running, v.Ready, v.Signs, v.Ended = false, false, lifecycle.Signs{}, true
		v.End = registered.Ending{At: t0, Exited: true, ExitCode: 137, Reason: "Evicted"}
	}
	named := func(v *registered.View) { v.RunnerName = v.Name + "-abcde" }
	s, o := newState(t)
	for _, name := range []string{"idle", "busy", "told", "done"} {
		shown(s, name, named)
	}
	podShown(s, "busy", busyPod)
	podShown(s, "done", busyPod)
	s.change("told", "", t0, func(m *member) { m.leave.Removal = lifecycle.RemovalAsked })
	s.answered("told", "pod-told", lifecycle.Answer{Verdict: lifecycle.Busy}, lifecycle.ReasonScaleDown, t0) // GitHub has said that it works
	require.Empty(t, s.makePlan(o, -1, t0).lost)
	podShown(s, "idle", evicted)
	podShown(s, "busy", evicted)
	podShown(s, "told", evicted)
	podShown(s, "done", endedPod(0))
	lost := s.makePlan(o, -1, t0).lost
	require.Len(t, lost, 2)
	require.Equal(t, []string{"busy", "told"}, []string{lost[0].member, lost[1].member})
	podShown(s, "busy", evicted)
	require.Empty(t, s.makePlan(o, -1, t0).lost, "once")

	recorder := events.NewFakeRecorder(10)
	(&eventWriter{recorder}).jobLost(s, lost[0])
	told := await.Receive(t, recorder.Events, "an Event is recorded")
	require.Contains(t, told, "Warning JobLost")
	require.Contains(t, told, "busy-abcde")
	require.Contains(t, told, "Evicted, exit code 137")

	lost[0].end.Evicted = "evicted: it exceeded its limit of ephemeral storage"
	(&eventWriter{recorder}).jobLost(s, lost[0])
	told = await.Receive(t, recorder.Events, "an Event is recorded")
	require.Contains(t, told, "exited during a job: evicted: it exceeded its limit of ephemeral storage. ", "TEN-6")
}
