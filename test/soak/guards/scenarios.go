package guards

import (
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// The scenarios. Each comes to its end with zeros in every row when nothing is switched off: -sound shows it.

func calm() Scenario {
	return Scenario{Name: "calm", Says: "jobs and no faults", Jobs: 12, Length: 12 * time.Second}
}

// limits has bursts that are far above what their accounts may run, of two label sets at a time, at two servers.
func limits() Scenario {
	s := Scenario{
		Name: "limits", Says: "bursts of jobs of both pools, for accounts that may run two at a time",
		Length: 30 * time.Second, Runners: 10, Patience: 40 * time.Second,
	}
	for account, target := range []string{"1", "2", "3"} {
		s.Steps = append(s.Steps, schedule.Step{At: at(0.5 + float64(account)/10), Kind: schedule.LimitChange, Target: target, Value: 2})
		first := 3 + float64(account)
		s.Load = append(s.Load, bursts(account+1, schedule.PoolBulk, first, 6, 26, 4, 0.3)...)
		s.Load = append(s.Load, bursts(account+1, schedule.PoolAuto, first, 6, 26, 2, 0.3)...)
	}
	sortLoad(s.Load)
	return s
}

// refusedMints has the last jobs refused: any later one's runner would be given those, and re-binding (CLAIM-9) would then have
// the later one queued again.
func refusedMints() Scenario {
	return Scenario{
		Name: "refused mints", Says: "GitHub refuses the registrations for the last jobs", Length: 14 * time.Second, Patience: 40 * time.Second,
		Load:  bursts(1, schedule.PoolBulk, 2, 6, 9, 4, 0.5),
		Steps: []schedule.Step{gitHub(7.5, 4, schedule.Step{Fault: "rest-status", Status: 422, Route: "generate-jitconfig", Percent: 100})},
	}
}

// crowds has more jobs than runners, so that runners are often given another job than the one that they were registered for.
func crowds() Scenario {
	return Scenario{
		Name: "crowds", Says: "more jobs than runners, which GitHub deals as it likes", Length: 20 * time.Second, Patience: 40 * time.Second,
		Load: bursts(1, schedule.PoolBulk, 2, 4, 18, 10, 0.5),
	}
}

func lostHooks() Scenario {
	return Scenario{
		Name: "lost hooks", Says: "webhooks fail, or are never sent at all", Jobs: 30, Length: 25 * time.Second,
		Steps: []schedule.Step{
			gitHub(1, 12, schedule.Step{Fault: "hook-drop", Percent: 50}),
			gitHub(8, 12, schedule.Step{Fault: "hook-vanish", Percent: 60}),
		},
	}
}

func starved() Scenario {
	return Scenario{
		Name: "starved runners", Says: "runners are online, and GitHub gives them no job", Jobs: 20, Length: 20 * time.Second,
		Steps: []schedule.Step{gitHub(2, 10, schedule.Step{Fault: "runner-starved", Percent: 60})},
	}
}

// deadMachines lose their power while their runners wait for jobs. GitHub itself reports the fate of a running job.
func deadMachines() Scenario {
	s := Scenario{
		Name: "dead machines", Says: "machines lose their power while runners wait for the job they were registered for", Length: 16 * time.Second,
		Load:  bursts(1, schedule.PoolBulk, 2, 8, 12, 6, 1),
		Steps: []schedule.Step{gitHub(0.5, 4, schedule.Step{Fault: "runner-starved", Percent: 100})},
	}
	for _, node := range []string{schedule.Node1, schedule.Node2} {
		s.Steps = append(s.Steps, schedule.Step{At: at(4.7), Kind: schedule.MachineKill, Target: node, For: at(1)})
	}
	return s
}

func dyingMints() Scenario {
	s := Scenario{Name: "dying mints", Says: "servers die before and after GitHub registers a runner", Jobs: 30, Length: 30 * time.Second}
	for i, point := range []string{"mint-answered", "claim-inserted", "mint-recorded", "answer-written", "mint-answered", "mint-intended"} {
		s.Steps = append(s.Steps, schedule.Step{At: at(1 + 4*float64(i)), Kind: schedule.DieAt, Target: point, For: at(8), Value: 1 + i%2})
	}
	return s
}

// renames has jobs that are longer than pools live.
func renames() Scenario {
	s := Scenario{
		Name: "renames", Says: "the large pool is renamed, rolled and emptied while jobs run", Length: 30 * time.Second,
		Load:  bursts(1, schedule.PoolBulk, 2, 5, 26, 4, 6),
		Kinds: []string{schedule.PoolRoll, schedule.PoolZero}, Faults: 3,
	}
	for _, when := range []float64{6, 14, 22} {
		s.Steps = append(s.Steps, schedule.Step{At: at(when), Kind: schedule.PoolRename, Target: schedule.PoolBulk})
	}
	return s
}

func visits() Scenario {
	s := Scenario{
		Name: "visits", Says: "an administrator drains nodes and deletes busy pods", Length: 25 * time.Second,
		Load: bursts(1, schedule.PoolBulk, 2, 5, 22, 4, 5),
	}
	for i, when := range []float64{4, 9, 14, 19} {
		s.Steps = append(s.Steps,
			schedule.Step{At: at(when), Kind: schedule.NodeDrain, Target: []string{schedule.Node1, schedule.Node2}[i%2], For: at(2)},
			schedule.Step{At: at(when + 0.5), Kind: schedule.PodDelete, Target: "busy", Value: i % 2})
	}
	return s
}

// stops has pods deleted around the moment in which their runner acquires a job: half a second before its worker starts.
func stops() Scenario {
	s := Scenario{
		Name: "stops", Says: "runners are deleted while they acquire their job", Length: 40 * time.Second, Real: 3, Patience: 90 * time.Second,
		Load: append(bursts(1, schedule.PoolReal, 2, 4, 36, 3, 0.5), bursts(2, schedule.PoolBulk, 2, 4, 36, 4, 0.5)...),
	}
	for i := range 16 {
		stop := schedule.Step{At: at(2 + 2*float64(i)), Kind: schedule.PodStop, Target: schedule.PoolReal, For: at(6), Fault: schedule.AfterStart, Value: 20 * (i % 8)}
		if i%4 == 3 {
			stop.Target, stop.Fault, stop.Value = schedule.PoolBulk, schedule.AfterClaim, 60*i
		}
		s.Steps = append(s.Steps, stop)
	}
	sortLoad(s.Load)
	return s
}

// busyRemovals has jobs that run for longer than recovery's patience, at a GitHub that would remove their runners.
func busyRemovals() Scenario {
	return Scenario{
		Name: "busy removals", Says: "GitHub removes busy runners when it is asked to; jobs are long", Length: 20 * time.Second, Patience: 90 * time.Second,
		Load:  bursts(1, schedule.PoolBulk, 1, 6, 4, 4, 36), // less than the 45 s after which GitHub fails the job of a runner that is silent
		Steps: []schedule.Step{gitHub(0.5, 50, schedule.Step{Fault: "remove-busy", Percent: 100})},
	}
}

func stuckMints() Scenario {
	s := Scenario{
		Name: "stuck mints", Says: "at saturation, servers die with a claim in hand", Length: 30 * time.Second, Patience: 150 * time.Second,
		Keep:   &schedule.Saturation{Open: 6, Each: at(1), Bound: at(60)},
		Server: []string{"--recovery-patience=75s"},
	}
	for i := range 8 {
		s.Steps = append(s.Steps, schedule.Step{At: at(4 + 3*float64(i)), Kind: schedule.DieAt, Target: "claim-inserted", For: at(8), Value: 1})
	}
	return s
}

func daemons() Scenario {
	return Scenario{
		Name: "daemons", Says: "real jobs leave processes behind", Length: 12 * time.Second, Real: 2,
		Load: bursts(1, schedule.PoolReal, 1, 3, 8, 2, 0.5),
	}
}

func sortLoad(load []schedule.Batch) {
	slices.SortStableFunc(load, func(a, b schedule.Batch) int { return int(a.At - b.At) })
}
