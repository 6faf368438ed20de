package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func imagesMissing(r *Runner) { r.ImagesMissing = true }

// A roll begins on a node when the images of the new template are there. Everything else goes on: what ends is replaced, what does not
// serve is replaced, and every other reason to remove a runner holds.
func TestMakePlan_POOL5_ARollWaitsForTheImagesOfANode(t *testing.T) {
	later := t0.Add(time.Minute)
	elsewhere := func(r *Runner) { r.Name = "elsewhere-" + r.Name }
	cases{
		{name: "no node has them", wish: Wish{Desired: 3, TemplateHash: "b"}, runners: set(at(StageIdle, "a", 3, imagesMissing))},
		{name: "one node has them", wish: Wish{Desired: 3, TemplateHash: "b", MaxUnavailable: 3},
			runners: set(at(StageIdle, "a", 2, imagesMissing), at(StageIdle, "a", 1, elsewhere)),
			ask:     []string{"elsewhere-idle-a-0 TemplateChanged"}},
		{name: "no surge for runners that are not replaced yet", wish: Wish{Desired: 3, TemplateHash: "b", MaxSurge: 2},
			runners: set(at(StageIdle, "a", 2, imagesMissing), at(StageIdle, "a", 1, elsewhere)), create: 1, why: ReasonSurge},
		{name: "what has ended is replaced at once", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 2, imagesMissing), at(StageFinished, "a", 1)),
			create:  1, why: ReasonReplace, remove: []string{"finished-a-0 Finished"}},
		{name: "what does not serve is replaced at once", wish: Wish{Desired: 1, TemplateHash: "b"}, runners: set(at(StageStarting, "a", 1, imagesMissing)),
			ask: []string{"starting-a-0 TemplateChanged"}},
		{name: "runners of the present template need no roll", wish: Wish{Desired: 2, TemplateHash: "b"}, runners: set(at(StageIdle, "b", 2, imagesMissing))},
		{name: "a maximum age holds", wish: Wish{Desired: 1, TemplateHash: "b", MaxAge: time.Minute},
			runners: set(at(StageIdle, "a", 1, imagesMissing)), ask: []string{"idle-a-0 MaxAge"}},
		{name: "and so does an idle timeout", wish: Wish{Desired: 1, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageIdle, "a", 1, imagesMissing)), ask: []string{"idle-a-0 IdleTimeout"}},
		{name: "and doubt", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 1, imagesMissing, func(r *Runner) { r.Doubt = Unfit{ReasonNodeNotReady, "silent"} })),
			ask:     []string{"idle-a-0 NodeNotReady"}},
		{name: "a cordoned node is left", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 1, imagesMissing, func(r *Runner) { r.Unfit = Unfit{ReasonNodeCordoned, "cordoned"} })),
			ask:     []string{"idle-a-0 NodeCordoned"}},
		{name: "a smaller number takes those of the older template first", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 1, imagesMissing), at(StageIdle, "b", 1)), ask: []string{"idle-a-0 ScaleDown"}},
		{name: "a request that is not granted is withdrawn when the images are gone", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageTerminating, "a", 1, removal(RemovalAsked, ReasonTemplate, later), imagesMissing,
				func(r *Runner) { r.Shown, r.ShownSince = StageIdle, t0 })),
			withdraw: []string{"terminating-a-0 NeededAgain"}},
		{name: "but not of one that has not started", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageTerminating, "a", 1, removal(RemovalAsked, ReasonTemplate, t0), imagesMissing,
				func(r *Runner) { r.Shown, r.ShownSince = StageStarting, t0 })),
			ask: []string{"terminating-a-0 TemplateChanged"}},
	}.check(t)
}

// Whatever is desired and observed, no serving runner is asked for because of its template while its node lacks the images, and a roll
// never takes more than it would take with all images there.
func TestMakePlan_POOL5_NoServingRunnerIsRolledWithoutItsImages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, runners := drawWish(t), drawRunners(t)
		for i := range runners {
			runners[i].ImagesMissing = rapid.Bool().Draw(t, "imagesMissing")
		}
		plan := MakePlan(wish, NewSet(runners...), t0)
		for _, a := range plan.Ask {
			shown, _ := a.Runner.shows()
			require.False(t, a.Reason == ReasonTemplate && shown == StageIdle && a.Runner.ImagesMissing, "%s is rolled without its images", a.Runner.Name)
		}
		for i := range runners {
			runners[i].ImagesMissing = false
		}
		require.LessOrEqual(t, plan.Create, MakePlan(wish, NewSet(runners...), t0).Create, "a missing image creates no runner")
	})
}
