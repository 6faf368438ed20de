package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	table "github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// mostStops is how many steps a pod that is being deleted may be from its end, once no further fault happens.
const mostStops = 6

var stops = []walked{
	{name: "one pod, two jobs", config: config{pods: 1, jobs: 2, stops: 1}},
	{name: "one pod, one job, any fault beside it", config: config{pods: 1, jobs: 1, faults: 1, allow: butRestores, stops: 1}},
	{name: "one pod, two jobs, GitHub's word lags, a removal's too",
		config: config{pods: 1, jobs: 2, faults: 1, allow: faultLag, prompt: true, stops: 1}},
	{name: "one pod, one job, a restore and its hold", config: config{pods: 1, jobs: 1, faults: 1, allow: faultRestore, stops: 1}, large: true},
	{name: "two pods, one job, room for one", config: config{pods: 2, jobs: 1, requests: 1, budget: 1, removable: -1, stops: 1}, large: true},
}

// TestStops_EXCL8_SIGTERMAtAnyMomentCostsNoJob walks SIGTERM at every state, with a deletionTimestamp and without. No
// acquired job is lost, none is run twice, each one ends or is queued again, and a pod that is being deleted is gone within
// a few steps.
func TestStops_EXCL8_SIGTERMAtAnyMomentCostsNoJob(t *testing.T) {
	for _, w := range stops {
		t.Run(w.name, func(t *testing.T) {
			if w.large {
				deep.Only(t, "each other row of TestStops_EXCL8_SIGTERMAtAnyMomentCostsNoJob")
			}
			r := requireNothing(t, w.config)
			t.Logf("steps to the goals: %v", r.longest)
			require.Positive(t, r.longest["the stopped pod A goes"])
			require.LessOrEqual(t, r.longest["the stopped pod A goes"], mostStops)
		})
	}
}

// TestStops_EXCL8_MeetEveryPhaseAndEveryAnswer checks that the walk covers its subject: pods are being deleted in every phase of their runner,
// and GitHub answers the removal of its registration in every way that it can.
func TestStops_EXCL8_MeetEveryPhaseAndEveryAnswer(t *testing.T) {
	w := newWalk(config{pods: 1, jobs: 1, faults: 1, allow: faultScope, stops: 1, noLiveness: true})
	w.all()
	met := map[string]map[string]bool{}
	for i := range w.states {
		s := &w.states[i]
		if s.pod[0].life != dropped || s.rec.kind == recoverNothing || s.rec.removed == 1 {
			continue
		}
		phase := s.phase(0)
		if met[phase] == nil {
			met[phase] = map[string]bool{}
		}
		t := *s
		met[phase][map[removed]string{removedAll: "204", removedBusy: "422", removedUnknown: "unknown"}[w.m.remove(&t, 0, true)]] = true
	}
	none, job := map[string]bool{"204": true, "unknown": true}, map[string]bool{"422": true, "unknown": true}
	require.Equal(t, map[string]map[string]bool{
		"waiting": none, "configured": none, "listening": none, "acquired": job, "running": job, "exited": none,
	}, met)
}

func (s *state) phase(p int) string {
	q := &s.pod[p]
	switch {
	case s.acquired(p):
		return "acquired"
	case q.runner == runOnline && s.busy(p):
		return "running"
	case q.runner == runOnline:
		return "listening"
	default:
		return runnerWords[q.runner]
	}
}

func stopMutants() []mutant {
	return []mutant{
		{name: "EXCL8 the agent signals a runner that shows no job", broken: "EXCL-8 an acquired job is lost",
			config: config{stops: 1, without: without{silence: true}}},
		{name: "EXCL8 nothing removes the registration of a stopped pod, at once or later", config: config{stops: 1, allow: faultCancel},
			broken: "RECV-5 nothing leads any more to where the stopped pod A goes",
			rules:  withoutKinds(table.StoppedPod, table.IdleRunner, table.AgentNeverRegistered)},
	}
}
