package dispatchtest

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// InstantGitHub registers at once and forgets: for tests of what is around a dispatcher, and for benchmarks of it.
type InstantGitHub struct{}

// InstantJIT is the configuration that InstantGitHub gives every runner.
const InstantJIT = "the-jit-blob"

// Mint succeeds.
func (InstantGitHub) Mint(_ context.Context, _ int64, req fleet.MintRequest) (fleet.JIT, error) {
	return fleet.JIT{RunnerID: 1, Name: req.Name, Encoded: fleet.NewSecret(InstantJIT)}, nil
}

// RemoveRunner succeeds.
func (InstantGitHub) RemoveRunner(context.Context, int64, fleet.Scope, int64) error { return nil }

// FindRunner finds none.
func (InstantGitHub) FindRunner(context.Context, int64, fleet.Scope, string) (fleet.Registration, error) {
	return fleet.Registration{}, fleet.ErrNotFound
}

// ControlRead succeeds.
func (InstantGitHub) ControlRead(context.Context, int64, fleet.Scope) error { return nil }

// GroupAccess is that of every repository.
func (InstantGitHub) GroupAccess(context.Context, int64, string, string, int64, string) (fleet.GroupAccess, error) {
	return fleet.GroupAccess{Serves: true}, nil
}

// MintRate is unknown.
func (InstantGitHub) MintRate(int64) (fleet.RateState, bool) { return fleet.RateState{}, false }
