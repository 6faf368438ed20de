package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawRunner(t *rapid.T, i int) Runner {
	r := Runner{
		Name: fmt.Sprintf("r%03d", i), UID: fmt.Sprintf("u%03d", i),
		TemplateHash: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "hash"),
		Created:      t0.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "age")) * 20 * time.Second),
		Stage:        rapid.SampledFrom(Stages()).Draw(t, "stage"),
	}
	r.Since = r.Created
	switch r.Stage {
	case StageStarting:
		r.Expected = rapid.Bool().Draw(t, "expected")
		if rapid.Bool().Draw(t, "unplaced") {
			r.Since = time.Time{}
		}
	case StageTerminating:
		r.Removal = rapid.SampledFrom([]Removal{RemovalAsked, RemovalGranted, RemovalDeleting}).Draw(t, "removal")
		r.Why = rapid.SampledFrom([]Reason{ReasonScaleDown, ReasonTemplate, ReasonDefective}).Draw(t, "why")
		r.Shown = rapid.SampledFrom([]Stage{0, StageStarting, StageIdle}).Draw(t, "shown")
		r.ShownSince = t0.Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "shownSince")) * time.Minute)
	case StageLost:
		r.Removal = rapid.SampledFrom([]Removal{RemovalNone, RemovalAsked, RemovalGranted, RemovalDeleting}).Draw(t, "removal")
	}
	if r.Stage == StageTerminating || r.Stage == StageLost {
		r.AskAt = t0.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "askAt")) * time.Second)
	}
	if !r.Expected && rapid.IntRange(0, 9).Draw(t, "doubt") == 0 {
		r.Doubt = Unfit{ReasonNodeNotReady, "because"}
	}
	if !r.Expected && rapid.IntRange(0, 9).Draw(t, "unfit") == 0 {
		r.Unfit = Unfit{rapid.SampledFrom([]Reason{ReasonDefective, ReasonNodeCordoned, ReasonRegistrationTimeout}).Draw(t, "reason"), "because"}
	}
	return r
}

func drawWish(t *rapid.T) Wish {
	return Wish{
		Desired: rapid.IntRange(0, 12).Draw(t, "desired"), TemplateHash: "b",
		MaxUnavailable: rapid.IntRange(0, 4).Draw(t, "maxUnavailable"), MaxSurge: rapid.IntRange(0, 4).Draw(t, "maxSurge"),
		StartTimeout:         time.Duration(rapid.IntRange(0, 2).Draw(t, "startTimeout")) * 45 * time.Second,
		UnschedulableTimeout: time.Duration(rapid.IntRange(0, 2).Draw(t, "unschedulableTimeout")) * 45 * time.Second,
		IdleTimeout:          time.Duration(rapid.IntRange(0, 2).Draw(t, "idleTimeout")) * 45 * time.Second,
		MaxAge:               time.Duration(rapid.IntRange(0, 2).Draw(t, "maxAge")) * 45 * time.Second,
		LimitStarts:          rapid.Bool().Draw(t, "limitStarts"), Starts: rapid.IntRange(0, 3).Draw(t, "starts"),
		LeaveTimeout: time.Duration(rapid.IntRange(0, 2).Draw(t, "leaveTimeout")) * 45 * time.Second,
		HoldUntil:    t0.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "hold")) * time.Second),
		KeepBooting:  rapid.Bool().Draw(t, "keepBooting"), KeepPending: rapid.Bool().Draw(t, "keepPending"), Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
		Terminating: rapid.IntRange(0, 4).Draw(t, "terminating") == 0,
	}
}

func drawRunners(t *rapid.T) []Runner {
	var runners []Runner
	for i := range rapid.IntRange(0, 25).Draw(t, "runners") {
		runners = append(runners, drawRunner(t, i))
	}
	return runners
}

// EXCL-2, EXCL-4: whatever is desired, a runner with a sign of work is in no plan, and only runners that have ended
// or were granted are deleted.
func TestMakePlan_EXCL2_EXCL4_OnlyEndedOrGrantedAreDeletedAndBusyIsNeverAVictim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, runners := drawWish(t), drawRunners(t)
		plan := MakePlan(wish, NewSet(runners...), t0)
		seen := map[string]bool{}
		for _, a := range slices.Concat(plan.Ask, plan.Delete, plan.Withdraw) {
			require.NotEqual(t, StageBusy, a.Runner.Stage, "%s is busy", a.Runner.Name)
			require.False(t, a.Runner.Expected, "%s was never observed", a.Runner.Name)
			require.False(t, seen[a.Runner.Name], "%s is in the plan twice", a.Runner.Name)
			require.NotEmpty(t, a.Reason)
			seen[a.Runner.Name] = true
		}
		for _, a := range plan.Delete {
			require.True(t, a.Runner.Stage == StageFinished || a.Runner.Removal == RemovalGranted,
				"%s is %s and would be deleted", a.Runner.Name, a.Runner.Stage)
		}
		for _, a := range plan.Ask {
			require.False(t, wish.KeepBooting && registers(a.Runner, wish), "RUN-2: a runner that registers itself was asked for")
			require.False(t, t0.Before(a.Runner.AskAt), "asked again too soon")
		}
		if wish.Terminating || wish.Paused {
			require.Zero(t, plan.Create)
		}
	})
}

// registers reports whether a runner is about to register itself at t0: a second implementation.
func registers(r Runner, wish Wish) bool {
	stage, since := r.Stage, r.Since
	if stage == StageTerminating {
		stage, since = r.Shown, r.ShownSince
	}
	late := wish.StartTimeout > 0 && t0.Sub(since) >= wish.StartTimeout
	return stage == StageStarting && !since.IsZero() && !late && r.Unfit.Reason != ReasonRegistrationTimeout
}

// Where pending runners are kept, a smaller number takes none of them, and leaves as many that serve as it wishes for (RUN-1).
func TestMakePlan_RUN1_PendingRunnersAreNoVictimsOfANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, runners := drawWish(t), drawRunners(t)
		wish.KeepPending, wish.Terminating, wish.Paused = true, false, false
		set := NewSet(runners...)
		left := set.Count(StageIdle) + set.Count(StageBusy)
		taken := 0
		for _, a := range MakePlan(wish, set, t0).Ask {
			if a.Reason != ReasonScaleDown {
				continue
			}
			pending := a.Runner.Stage == StageStarting && a.Runner.TemplateHash == wish.TemplateHash && !a.Runner.Since.IsZero()
			require.False(t, pending && a.Runner.Doubt == (Unfit{}) && wish.MaxAge == 0, "%s is pending, and asked for", a.Runner.Name)
			if a.Runner.Stage == StageIdle {
				taken++
			}
		}
		require.True(t, taken == 0 || left-taken >= wish.Desired, "%d of %d that serve were taken, and %d are wished for", taken, left, wish.Desired)
	})
}

// EXCL-1 at the level of the plan: a request that was not granted is never turned into a deletion, and a grant is
// never taken back.
func TestMakePlan_EXCL1_EXCL3_AskedIsNeverDeletedAndGrantedIsNeverWithdrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := MakePlan(drawWish(t), NewSet(drawRunners(t)...), t0)
		for _, a := range plan.Delete {
			require.NotEqual(t, RemovalAsked, a.Runner.Removal)
			require.NotEqual(t, RemovalDeleting, a.Runner.Removal)
		}
		for _, a := range plan.Withdraw {
			require.Equal(t, RemovalAsked, a.Runner.Removal)
		}
	})
}

// POOL-4: what has ended never holds a place, so its replacement does not wait for its removal.
func TestMakePlan_POOL4_EndedRunnersAreReplacedAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish := drawWish(t)
		wish.Terminating, wish.Paused, wish.HoldUntil, wish.MaxSurge, wish.LimitStarts = false, false, time.Time{}, 0, false
		runners := drawRunners(t)
		present := 0
		for _, r := range runners {
			stuck := r.Stage == StageTerminating && r.Removal == RemovalDeleting && wish.LeaveTimeout > 0 && t0.Sub(r.Since) >= wish.LeaveTimeout
			if r.Stage != StageFinished && r.Stage != StageLost && !stuck {
				present++
			}
		}
		plan := MakePlan(wish, NewSet(runners...), t0)
		require.Equal(t, max(0, wish.Desired-present), plan.Create)
	})
}

// The order in which runners were learnt of changes nothing.
func TestMakePlan_IsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, runners := drawWish(t), drawRunners(t)
		other := NewSet(runners...)
		for _, r := range rapid.Permutation(runners).Draw(t, "order") {
			other.Remove(r.Name)
			other.Put(r)
		}
		require.Equal(t, MakePlan(wish, NewSet(runners...), t0), MakePlan(wish, other, t0))
	})
}

// perfect applies plans as a perfect cluster would, with a fence that answers as drawn.
type perfect struct {
	set  *Set
	now  time.Time
	made int
}

func (w *perfect) apply(t *rapid.T, wish Wish, plan Plan, grants func() bool) {
	for _, a := range plan.Delete {
		w.set.Remove(a.Runner.Name)
	}
	for _, a := range plan.Ask {
		r := a.Runner
		r.Why, r.Removal = a.Reason, RemovalAsked
		if r.Stage == StageStarting || r.Stage == StageIdle {
			r.Shown, r.ShownSince, r.Stage, r.Since = r.Stage, r.Since, StageTerminating, w.now
		}
		r.AskAt = w.now.Add(2 * time.Second)
		if grants() {
			r.Removal = RemovalGranted
		}
		w.set.Put(r)
	}
	for _, a := range plan.Withdraw {
		r := a.Runner
		r.Stage, r.Since = StageIdle, w.now
		w.set.Put(r)
	}
	for range plan.Create {
		w.made++
		w.set.Put(Runner{Name: fmt.Sprintf("new%04d", w.made), UID: "x", TemplateHash: wish.TemplateHash,
			Created: w.now, Since: w.now, Stage: StageStarting})
	}
	for _, name := range w.set.Names() {
		if r, _ := w.set.Get(name); r.Removal == RemovalDeleting {
			w.set.Remove(name)
		} else if r.Stage == StageStarting && r.Unfit == (Unfit{}) && w.now.Sub(r.Created) >= time.Second {
			r.Stage, r.Expected, r.Since = StageIdle, false, w.now
			w.set.Put(r)
		}
	}
	w.now = w.now.Add(time.Second)
}

// Whatever was there, a pool whose fence eventually answers reaches exactly the desired number of the desired
// template, and a terminating one zero; busy runners stay all the while (POOL-2, POOL-5, EXCL-4).
func TestMakePlan_POOL2_POOL5_Converges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, w := drawWish(t), &perfect{set: NewSet(drawRunners(t)...), now: t0}
		wish.Paused, wish.IdleTimeout, wish.MaxAge = false, 0, 0
		if wish.KeepBooting {
			wish.StartTimeout = max(wish.StartTimeout, 45*time.Second) // protected runners have a timeout
		}
		wish.Starts = max(wish.Starts, 1)
		var busyNames []string
		for _, name := range w.set.Names() {
			if r, _ := w.set.Get(name); r.Stage == StageBusy {
				busyNames = append(busyNames, name)
			}
		}
		for step := 0; step < 200; step++ {
			plan := MakePlan(wish, w.set, w.now)
			serving := w.set.Count(StageIdle) + w.set.Count(StageBusy)
			rolled := 0
			for _, a := range plan.Ask {
				if a.Reason == ReasonTemplate && a.Runner.Stage == StageIdle {
					rolled++
				}
			}
			require.LessOrEqual(t, rolled, max(1, serving-wish.Desired+max(wish.MaxUnavailable, 1)), "POOL-5: a roll took too many")
			w.apply(t, wish, plan, func() bool { return rapid.IntRange(0, 3).Draw(t, "grant") > 0 })
			require.LessOrEqual(t, w.set.Count(StageStarting), max(25, wish.Desired+wish.MaxSurge), "runaway creation")
		}
		for _, name := range busyNames {
			r, exists := w.set.Get(name)
			require.True(t, exists && r.Stage == StageBusy, "%s was busy and is gone", name)
		}
		if wish.Terminating {
			require.Equal(t, len(busyNames), w.set.Len())
			return
		}
		require.Equal(t, max(wish.Desired, len(busyNames)), w.set.Len())
		for _, name := range w.set.Names() {
			if r, _ := w.set.Get(name); r.Stage != StageBusy {
				require.Equal(t, wish.TemplateHash, r.TemplateHash)
			}
		}
	})
}

// The cost of a plan does not grow with a pool (P9): the set is queried, not walked.
func BenchmarkMakePlan(b *testing.B) {
	for _, size := range []int{50, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := NewSet(at(StageIdle, "b", size)...)
			wish := Wish{Desired: size, TemplateHash: "b", StartTimeout: time.Minute, UnschedulableTimeout: time.Minute,
				IdleTimeout: time.Hour, MaxAge: time.Hour, LeaveTimeout: time.Minute}
			event := at(StageIdle, "b", size)[size/2]
			for b.Loop() {
				event.Stage = StageFinished
				s.Put(event)
				if plan := MakePlan(wish, s, t0); plan.Create != 1 || len(plan.Delete) != 1 {
					b.Fatal("not replaced")
				}
				event.Stage = StageIdle
				s.Put(event)
			}
		})
	}
}
