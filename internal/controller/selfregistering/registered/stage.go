package registered

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// ReasonRegistrationTimeout is for runners that GitHub does not know although they have been up for long.
const ReasonRegistrationTimeout lifecycle.Reason = "RegistrationTimeout"

// DefaultRegistrationTimeout is that of RunnerSpec, for specs that were made without the API server's defaulting.
const DefaultRegistrationTimeout = 10 * time.Minute

// How long a node must have been absent; see NODE-8. A node agent whose Node was deleted registers it again within ten seconds.
const (
	// vanishedAfter is when runners that show no work leave.
	vanishedAfter = 20 * time.Second
	// lostAfter is when the pod's status no longer proves anything (POOL-7).
	lostAfter = time.Minute
)

// Place is what a runner's node means for it. The zero value is a node that is well, or none.
type Place struct {
	// Absent is since when the node is known not to exist, by uncached reads; zero when it may.
	Absent time.Time
	// Departure says why runners should leave the node, if they should.
	Departure nodes.Departure
	// Unready is when the node was last reported ready; zero for one that is ready.
	Unready time.Time
}

// doubtful reports whether the node has been silent for so long that what a runner there shows may be long past.
func (p Place) doubtful(now time.Time) bool {
	return !p.Unready.IsZero() && !now.Before(p.Unready.Add(nodes.UnreadyFor))
}

// vanished reports whether the node has been gone for so long that nothing of it is expected back.
func (p Place) vanished(now time.Time) bool {
	return !p.Absent.IsZero() && !now.Before(p.Absent.Add(vanishedAfter))
}

// Lost reports whether it has been gone for so long that the pod's status proves nothing.
func (p Place) Lost(now time.Time) bool {
	return !p.Absent.IsZero() && !now.Before(p.Absent.Add(lostAfter))
}

// Next is when the Place means something else by the clock alone; zero for never.
func (p Place) Next(now time.Time) time.Time {
	var next time.Time
	for _, clock := range []struct {
		since time.Time
		after time.Duration
	}{{p.Absent, vanishedAfter}, {p.Absent, lostAfter}, {p.Unready, nodes.UnreadyFor}} {
		if due := clock.since.Add(clock.after); !clock.since.IsZero() && now.Before(due) {
			next = earliest(next, due)
		}
	}
	return next
}

// Runner is the pod as the engine sees it, without its owner's knowledge of a removal in progress: the owner adds its own requests. Name is
// the pod's; an owner whose members have other names replaces it. registrationTimeout is that of RunnerSpec; 0 for the one that the pod was
// made with.
//
// A grant that is written on the pod takes precedence over its signs: RemovalGranted, and once it is being deleted, or busy to its end,
// RemovalDeleting or StageBusy with the grant.
func (v *View) Runner(place Place, registrationTimeout time.Duration, now time.Time) lifecycle.Runner {
	r := lifecycle.Runner{Name: v.Name, UID: v.UID, TemplateHash: v.TemplateHash, Created: v.Created, Node: v.Node}
	granted := !v.Unregistered.IsZero()
	switch {
	case v.Ended:
		r.Stage = lifecycle.StageFinished
	case place.Lost(now):
		r.Stage = lifecycle.StageLost
		if granted {
			r.Removal, r.Since = lifecycle.RemovalGranted, v.Unregistered
		}
	case v.Signs.Work() != "": // EXCL-4: before any removal of ours, granted or not
		r.Stage = lifecycle.StageBusy
		if granted {
			r.Removal = lifecycle.RemovalGranted
		}
	case !v.Deleting.IsZero():
		r.Stage, r.Removal, r.Since = lifecycle.StageTerminating, lifecycle.RemovalDeleting, v.Deleting
		r.Shown, r.ShownSince = v.shown()
	case granted:
		r.Stage, r.Removal, r.Since = lifecycle.StageTerminating, lifecycle.RemovalGranted, v.Unregistered
		r.Shown, r.ShownSince = v.shown()
	default:
		r.Stage, r.Since = v.shown()
	}
	r.Unfit, r.Waiting = v.unfit(place, registrationTimeout, now), v.Waiting
	if r.Stage != lifecycle.StageFinished && r.Stage != lifecycle.StageBusy && place.doubtful(now) {
		r.Doubt = lifecycle.Unfit{
			Reason: lifecycle.ReasonNodeNotReady, Detail: "its node " + v.Node + " is not ready since " + place.Unready.UTC().Format(time.RFC3339),
		}
	}
	return r
}

// shown is the stage of a pod that has not ended, shows no work, and is neither being removed nor unregistered.
func (v *View) shown() (lifecycle.Stage, time.Time) {
	if v.Ready && v.known() {
		return lifecycle.StageIdle, v.ReadySince
	}
	return lifecycle.StageStarting, v.Placed
}

// known reports whether GitHub could give it a job: an ephemeral runner is registered before its pod is made, a static one
// registers itself.
func (v *View) known() bool { return v.Ephemeral || !v.Registered.IsZero() }

// Overdue is the time by which GitHub should have known the runner; zero when it does, or when no timeout applies.
func (v *View) Overdue(registrationTimeout time.Duration) time.Time {
	if registrationTimeout <= 0 {
		registrationTimeout = v.RegistrationTimeout
	}
	if registrationTimeout <= 0 {
		registrationTimeout = DefaultRegistrationTimeout
	}
	if !v.Ready || v.ReadySince.IsZero() || !v.Registered.IsZero() {
		return time.Time{}
	}
	return v.ReadySince.Add(registrationTimeout)
}

// unfit says why a runner that shows no work should go at once.
func (v *View) unfit(place Place, registrationTimeout time.Duration, now time.Time) lifecycle.Unfit {
	due, leaving := v.Overdue(registrationTimeout), place.Departure.For(v.tolerations)
	switch {
	case v.Ended || v.Signs.Work() != "":
		return lifecycle.Unfit{}
	case place.vanished(now):
		return lifecycle.Unfit{Reason: lifecycle.ReasonLost, Detail: "its node " + v.Node + " does not exist any more"}
	case v.Ephemeral && !v.Started && !v.SecretMissing.IsZero(): // RUN-7: there is no second configuration for it
		return lifecycle.Unfit{Reason: lifecycle.ReasonDefective, Detail: "its Secret is missing or incomplete, so it cannot start"}
	case leaving != "":
		return lifecycle.Unfit{Reason: lifecycle.ReasonNodeCordoned, Detail: leaving}
	case !due.IsZero() && !now.Before(due) && !v.Unseen.IsZero(): // POOL-8: a list that cannot be read proves nothing
		return lifecycle.Unfit{Reason: ReasonRegistrationTimeout, Detail: fmt.Sprintf(
			"the runner has been up since %s, but GitHub does not list it: check its log and its network access to GitHub", v.ReadySince.UTC().Format(time.RFC3339))}
	default:
		return lifecycle.Unfit{}
	}
}
