package github

import (
	"context"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

type placeKey struct{}

// atPlace notes where a call goes. Failures at one repository's address say nothing of the installation (CLAIM-19).
func atPlace(ctx context.Context, scope fleet.Scope) context.Context {
	if scope.Repo == "" {
		return ctx
	}
	return context.WithValue(ctx, placeKey{}, scope.String())
}

func placeOf(ctx context.Context) string {
	place, _ := ctx.Value(placeKey{}).(string)
	return place
}

// placeCircuits are the circuits of repositories at whose addresses calls fail: as many as do.
type placeCircuits struct {
	mu sync.Mutex
	at map[string]*circuit
}

func newPlaceCircuits() *placeCircuits { return &placeCircuits{at: map[string]*circuit{}} }

// enter lets a call to the place through, or refuses it. No place: it is not about one.
func (p *placeCircuits) enter(place string, now time.Time) (probe bool, err error) {
	p.mu.Lock()
	failing := p.at[place]
	p.mu.Unlock()
	if failing == nil {
		return false, nil
	}
	if probe, err = failing.enter(now); err == nil {
		return probe, nil
	}
	limited := &fleet.RateLimitedError{Resource: fleet.ResourceRepository, Until: now.Add(circuitFirst)}
	failing.mu.Lock()
	if failing.until.After(now) {
		limited.Until = failing.until
	}
	failing.mu.Unlock()
	return false, limited
}

// leave notes the result of a call to the place, and says what that reveals of the installation: nothing, where this is the
// only place that fails.
func (p *placeCircuits) leave(place string, probe bool, r result, credentials bool, now time.Time, jitter float64) result {
	if place == "" || credentials {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch failing := p.at[place]; {
	case r == resultWorked:
		delete(p.at, place)
	case failing != nil:
		failing.leave(probe, r, now, jitter)
	case r == resultFailed:
		p.at[place] = &circuit{}
		p.at[place].leave(false, r, now, jitter)
	}
	if r == resultFailed && len(p.at) == 1 {
		return resultUnknown
	}
	return r
}
