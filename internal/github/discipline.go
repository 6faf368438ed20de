package github

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// ResourceConcurrency is our own bound of concurrent requests in an installation's name.
const ResourceConcurrency = "concurrency"

// discipline is what is known of one installation's limits and health, and outlives its tokens.
type discipline struct {
	rates   *rates
	circuit *circuit
	places  *placeCircuits
	pace    *pace
	all     chan struct{} // a slot for each request under way
	sweeps  chan struct{} // the slots of sweeps, a part of all
	fixed   bool          // its token cannot be renewed
}

func newDiscipline(o Options) *discipline {
	return &discipline{
		rates: newRates(), circuit: &circuit{}, places: newPlaceCircuits(), pace: newPace(o.Points),
		all: make(chan struct{}, o.MaxConcurrent), sweeps: make(chan struct{}, max(1, o.MaxConcurrent/5)),
		fixed: o.Token.Reveal() != "",
	}
}

// leaving is called once with what became of a request that was let through.
type leaving func(caller context.Context, resp *gh.Response, err error, now time.Time, jitter float64)

// enter admits a request, or refuses it with a *fleet.RateLimitedError that has the time of the next attempt. It waits only for a slot, and
// no longer than the request itself may take.
func (d *discipline) enter(ctx context.Context, of class, now func() time.Time) (leaving, error) {
	place := placeOf(ctx)
	release, err := d.slot(ctx, of, now)
	if err != nil {
		return nil, err
	}
	at := now()
	if err = d.rates.gate(of, at); err == nil {
		err = d.pace.gate(of, at)
	}
	if err != nil {
		release()
		return nil, err
	}
	probe, err := d.circuit.enter(at)
	if err != nil {
		release()
		return nil, err
	}
	placeProbe, err := d.places.enter(place, at)
	if err != nil {
		d.circuit.leave(probe, resultUnknown, at, 0)
		release()
		return nil, err
	}
	d.pace.spend(of, at)
	return func(caller context.Context, resp *gh.Response, err error, now time.Time, jitter float64) {
		release()
		d.circuit.leave(probe, d.places.leave(place, placeProbe, d.judge(caller, resp, err), ofCredentials(resp, err), now, jitter), now, jitter)
		if resp != nil && resp.Response != nil && limited(resp.StatusCode, resp.Header, err) && resp.Header.Get("X-RateLimit-Remaining") != "0" {
			d.pace.refused(now)
		}
	}, nil
}

func (d *discipline) slot(ctx context.Context, of class, now func() time.Time) (release func(), err error) {
	lanes := []chan struct{}{d.all}
	if of == classSweep {
		lanes = []chan struct{}{d.sweeps, d.all}
	}
	taken := 0
	release = func() {
		for _, lane := range lanes[:taken] {
			<-lane
		}
	}
	for _, lane := range lanes {
		select {
		case lane <- struct{}{}:
			taken++
		case <-ctx.Done(): // nothing was sent
			release()
			return nil, &fleet.RateLimitedError{Resource: ResourceConcurrency, Until: now().Add(time.Second)}
		}
	}
	return release, nil
}

// ofCredentials reports whether a response is about the credentials, or the token that was requested with them, and not about the request.
func ofCredentials(resp *gh.Response, err error) bool {
	var token *ghinstallation.HTTPError
	return errors.As(err, &token) || resp != nil && resp.Response != nil && resp.StatusCode == http.StatusUnauthorized
}

// judge says what a request reveals of the installation's health.
func (d *discipline) judge(caller context.Context, resp *gh.Response, err error) result {
	var token *ghinstallation.HTTPError
	switch {
	case err == nil:
		return resultWorked
	case errors.As(err, &token):
		if token.Response != nil && limited(token.Response.StatusCode, token.Response.Header, nil) {
			return resultUnknown
		}
		return resultFailed
	case resp != nil && resp.Response != nil:
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout {
			return resultFailed
		}
		if resp.StatusCode == http.StatusUnauthorized && d.fixed {
			return resultFailed // as when an installation is refused a token: GitHub bars clients that keep trying
		}
		return resultWorked // it answers
	case caller.Err() != nil:
		return resultUnknown
	default:
		return resultFailed
	}
}
