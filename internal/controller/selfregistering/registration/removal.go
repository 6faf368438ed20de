package registration

import (
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// What GitHub's answers to "remove this runner" mean (RUN-2, EXCL-6):
//
//	204                          granted
//	422                          busy; granted where its container has ended
//	404                          granted where the scope's list can be read and does not show it
//	403                          the same; where the list shows it as busy: busy; as idle: unknown, and granted where its container has ended
//	401, no token given          unknown: nothing was said of the runner
//	429 and other limits         unknown until the limit ends
//	5xx, no answer, other 4xx    unknown
//	other 2xx                    unknown: a proxy may have sent it
//
// A runner whose id is not known is looked for by its name first: absent from a list that can be read, it is granted. The list
// is read after a 404 or 403 and never before, so that it is younger than the refusal: a token that loses its permission, or a
// repository that is deleted, between the two is seen.
//
// A grant lifts the veto of the runner's own signs only for one whose container has ended, or whose node is gone while its
// registration is, too: what GitHub says lags, and a job that has just begun shows in the pod first (EXCL-4).

// removal asks GitHub about one runner.
type removal struct {
	remove func(id int64) error
	find   func() (Registration, error) // by name: the control read of the same scope
}

// ask asks, and returns what was heard last beside what it means.
func (r removal) ask(s Subject) (lifecycle.Answer, error) {
	id := s.ID
	if id == 0 {
		if s.Name == "" {
			return lifecycle.Answer{Detail: "neither its name nor its id at GitHub is known"}, nil
		}
		found, err := r.find()
		if err != nil {
			return s.unfound(err), err
		}
		id = found.ID
	}
	err := r.remove(id)
	answer, control := s.answered(err)
	if !control {
		return answer, err
	}
	found, seen := r.find()            // EXCL-6: after the refusal
	if seen == nil && found.ID != id { // it has registered again since its id was read
		id = found.ID
		err = r.remove(id)
		if answer, control = s.answered(err); !control {
			return answer, err
		}
		found, seen = r.find()
	}
	return s.beside(err, id, found, seen), errors.Join(err, seen)
}

// answered is what GitHub's answer means by itself. Where it means nothing without a control read of the same scope, control is
// true.
func (s Subject) answered(err error) (answer lifecycle.Answer, control bool) {
	switch proof := fleet.ProveRemoval(err, nil); {
	case proof == fleet.ProvenGone:
		return s.granted("GitHub has removed its registration", true), false
	case proof == fleet.ProvenBusy && s.Ended:
		return s.granted("GitHub still reports it busy", false), false
	case proof == fleet.ProvenBusy:
		return lifecycle.Answer{Verdict: lifecycle.Busy, Detail: "GitHub reports a running job"}, false
	case proof == fleet.NeedsScopeRead && !errors.Is(err, github.ErrUnauthorized):
		return lifecycle.Answer{}, true // EXCL-6
	default:
		return unknown("GitHub was asked to remove it", err), false
	}
}

// beside is what a refusal (404, 403) to remove a registration means beside a read of its scope that came after it.
func (s Subject) beside(refusal error, id int64, found Registration, seen error) lifecycle.Answer {
	forbidden := errors.Is(refusal, fleet.ErrForbidden)
	read := fleet.ScopeRead{Err: seen, Listed: seen == nil, Busy: found.ID == id && found.Busy}
	if errors.Is(seen, github.ErrAbsent) {
		read.Err = nil
	}
	proof := fleet.ProveRemoval(refusal, &read)
	switch {
	case proof == fleet.ProvenGone && forbidden:
		return s.granted("GitHub denies its removal with these credentials, and no longer lists it", true)
	case proof == fleet.ProvenGone:
		return s.granted("GitHub has no such runner", true)
	case read.Err != nil:
		return unknown("cannot list GitHub's runners", seen) // EXCL-6
	case !forbidden || found.ID != id:
		return lifecycle.Answer{Detail: "GitHub returns not found, but lists it"}
	case s.Ended:
		return s.granted("GitHub denies its removal with these credentials, and still lists it", false)
	case proof == fleet.ProvenBusy:
		return lifecycle.Answer{Verdict: lifecycle.Busy, Detail: "GitHub denies its removal with these credentials, and lists it as busy"}
	default:
		return lifecycle.Answer{Detail: "GitHub denies its removal with these credentials, and may assign it a job: allow them to administer self-hosted runners"}
	}
}

// unfound is what it means that a runner without an id was not found by its name.
func (s Subject) unfound(err error) lifecycle.Answer {
	switch {
	case !errors.Is(err, github.ErrAbsent):
		return unknown("it was looked for by its name", err)
	case s.NeverStarted:
		return s.granted("it never started, and GitHub has no such runner", true)
	default:
		return s.granted("GitHub has no such runner", true)
	}
}

// granted is a grant. gone says that the registration is known to be gone.
func (s Subject) granted(detail string, gone bool) lifecycle.Answer {
	answer := lifecycle.Answer{Verdict: lifecycle.Granted, Detail: detail}
	switch {
	case s.Ended:
		answer.Proof = "its container exited; " + detail
	case s.Lost && gone: // POOL-7
		answer.Proof = "its node is gone; " + detail
	}
	return answer
}

// unknown is the answer where nothing is known.
func unknown(what string, err error) lifecycle.Answer {
	return lifecycle.Answer{Verdict: lifecycle.Unknown, Detail: sentence(what, err), NotBefore: limitedUntil(err)}
}

// Unasked is the answer about a runner for which there is no Registrar.
func Unasked(err error) lifecycle.Answer { return unknown("GitHub was not asked", err) }

func sentence(what string, err error) string { return fmt.Sprintf("%s: %v", what, err) }

// limitedUntil is when a limit ends; zero where err is none.
func limitedUntil(err error) time.Time {
	var limited *fleet.RateLimitedError
	if errors.As(err, &limited) {
		return limited.Until
	}
	return time.Time{}
}
