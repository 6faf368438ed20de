package uninstall

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func TestDecide_R9_NamesWhatItWaitsFor(t *testing.T) {
	pool := Owner{Kind: v1alpha1.KindRunnerPool, Name: "linux", Deleting: true, Protected: true}
	idle := Runner{Name: "linux-a", Pool: "linux", Node: "n1"}
	busy := idle
	busy.Work = "it has a job for acme"
	own := Runner{Name: "gpu-a", Node: "n1"}
	for name, c := range map[string]struct {
		controller Liveness
		owner      Owner
		runner     Runner
		why        string
		blocked    bool
		plan       func(Plan) bool
	}{
		"a busy runner, with a controller":    {controller: Running, owner: pool, runner: busy, why: "busy: it has a job for acme"},
		"a busy runner, without one":          {controller: Gone, owner: pool, runner: busy, why: "busy: it has a job for acme"},
		"an idle one, with a controller":      {controller: Running, owner: pool, runner: idle, why: "the controller removes it"},
		"an idle one, before it is known":     {owner: pool, runner: idle, why: "the controller removes it"},
		"an idle one, without a controller":   {controller: Gone, owner: pool, runner: idle, plan: func(p Plan) bool { return len(p.Retire) == 1 }},
		"one that is being stopped":           {controller: Gone, owner: pool, runner: Runner{Name: "linux-a", Pool: "linux", Deleting: true, Node: "n1"}, why: "stopping on node n1"},
		"one that has ended":                  {controller: Gone, owner: pool, runner: Runner{Name: "linux-a", Pool: "linux", Ended: true, Work: "its poller has ended"}, plan: func(p Plan) bool { return len(p.Remove) == 1 }},
		"one whose node is gone":              {controller: Gone, owner: pool, runner: Runner{Name: "linux-a", Pool: "linux", Lost: true, Node: "n1"}, why: "its node n1 no longer exists", blocked: true},
		"one that registers itself":           {controller: Gone, owner: Owner{Kind: v1alpha1.KindRunner, Name: "gpu-a", Deleting: true, Protected: true}, runner: own, why: "only a controller unregisters it", blocked: true},
		"one that registers itself, is busy":  {controller: Gone, owner: pool, runner: Runner{Name: "gpu-a", Work: "a job has started in it"}, why: "busy: a job has started in it"},
		"a pool that is not deleted yet":      {controller: Gone, owner: Owner{Kind: v1alpha1.KindRunnerPool, Name: "linux", Protected: true}, runner: own, plan: func(p Plan) bool { return len(p.Delete) == 1 && len(p.Release) == 0 }},
		"a pool of which nothing is left":     {controller: Gone, owner: pool, runner: own, plan: func(p Plan) bool { return len(p.Release) == 1 }},
		"a pool of which nothing is left yet": {controller: Running, owner: pool, runner: own, why: "the controller removes its finalizer after its last runner", plan: func(p Plan) bool { return len(p.Release) == 0 }},
		"a finalizer of others":               {controller: Gone, owner: Owner{Kind: v1alpha1.KindRunnerPool, Name: "linux", Deleting: true, Foreign: []string{"example.com/backup"}}, runner: own, why: "blocked by the finalizer example.com/backup", blocked: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(State{Controller: c.controller, Owners: []Owner{c.owner}, Runners: []Runner{c.runner}})
			if c.plan != nil {
				require.True(t, c.plan(p), "%+v", p)
			}
			if c.why != "" {
				require.True(t, slices.ContainsFunc(p.Waiting, func(w Waiting) bool {
					return len(w.Why) >= len(c.why) && w.Why[:len(c.why)] == c.why && w.Blocked == c.blocked
				}), "%+v", p.Waiting)
			}
		})
	}
}

// POOL-13: for any observation, a runner with a sign of work is in no plan, nothing is removed while a controller may run, and no owner
// with a runner is released.
func TestDecide_POOL13_EXCL4_RemovesNothingThatIsWanted(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		s := State{
			Controller: rapid.SampledFrom([]Liveness{Unknown, Running, Gone}).Draw(t, "controller"),
			Owners: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Owner {
				return Owner{
					Kind: rapid.SampledFrom([]string{v1alpha1.KindRunnerPool, v1alpha1.KindRunner, v1alpha1.KindRunnerSet}).Draw(t, "kind"), Name: names.Draw(t, "name"),
					Deleting: rapid.Bool().Draw(t, "deleting"), Protected: rapid.Bool().Draw(t, "held"),
				}
			}), 0, 4).Draw(t, "owners"),
			Runners: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Runner {
				return Runner{
					Name: names.Draw(t, "name"), Pool: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "pool"), Ended: rapid.Bool().Draw(t, "ended"),
					Lost: rapid.Bool().Draw(t, "lost"), Deleting: rapid.Bool().Draw(t, "deleting"), Protected: rapid.Bool().Draw(t, "held"),
					Work: rapid.SampledFrom([]string{"", "it has a job for acme"}).Draw(t, "work"),
				}
			}), 0, 4).Draw(t, "runners"),
			Accounts:     rapid.SliceOfN(names, 0, 3).Draw(t, "accounts"),
			StatefulSets: rapid.SliceOfN(names, 0, 1).Draw(t, "sets"),
		}
		p := Decide(s)
		for _, r := range p.Retire {
			require.True(t, r.Work == "" && r.Pool != "" && !r.Ended && !r.Lost, "%+v", r)
		}
		for _, r := range p.Remove {
			require.True(t, r.Ended, "%+v", r)
		}
		for _, o := range p.Release {
			require.True(t, o.Deleting && o.Protected, "%+v", o)
			for _, r := range s.Runners {
				pool := o.Kind == v1alpha1.KindRunnerPool
				require.False(t, pool && r.Pool == o.Name || !pool && r.Pool == "", "%+v is left of %+v", r, o)
			}
			require.True(t, o.Kind == v1alpha1.KindRunnerPool || len(s.StatefulSets) == 0)
		}
		for _, name := range p.Accounts {
			require.False(t, slices.ContainsFunc(s.Runners, func(r Runner) bool { return r.Name == name }))
		}
		if s.Controller != Gone {
			require.Empty(t, len(p.Retire)+len(p.Remove)+len(p.Release)+len(p.Accounts))
		}
		if s.Controller == Gone && !s.Done() && p.stepless() && len(p.Retire) == 0 {
			for _, o := range s.Owners {
				require.True(t, o.Deleting)
			}
			require.NotEmpty(t, p.Waiting, "nothing is done, and nothing says why: %+v", s)
		}
	})
}

// A controller is judged by whether its Lease changes: clocks differ.
func TestLiveness(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	l := liveness{patience: 20 * time.Second}
	require.Equal(t, Unknown, l.see(at(1000), at(0)))
	require.Equal(t, Unknown, l.see(at(1000), at(2)), "it may be renewed a moment later")
	require.Equal(t, Running, l.see(at(1002), at(4)))
	require.Equal(t, Running, l.see(at(1002), at(23)))
	require.Equal(t, Gone, l.see(at(1002), at(24)))
	require.Equal(t, Running, l.see(at(1030), at(26)), "it was started again")
	missing := liveness{patience: 20 * time.Second}
	require.Equal(t, Unknown, missing.see(time.Time{}, at(0)))
	require.Equal(t, Gone, missing.see(time.Time{}, at(20)))
}
