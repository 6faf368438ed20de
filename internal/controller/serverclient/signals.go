package serverclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// Signals asks what every pool is asked for. After any error nothing is known of any pool, and no pool may shrink for
// it (POOL-8); the same goes for a pool that the answer does not name. An error is a *StatusError when the server
// refused, ErrBadAnswer when what it said cannot be used.
func (c *Client) Signals(ctx context.Context) (runnerapi.Signals, error) {
	content, err := c.exchange(ctx, http.MethodGet, runnerapi.PathSignals, nil)
	if err != nil {
		return runnerapi.Signals{}, fmt.Errorf("reading signals: %w", err)
	}
	signals, err := decodeSignals(content)
	if err != nil {
		return runnerapi.Signals{}, fmt.Errorf("reading signals: %w: %w", ErrBadAnswer, err)
	}
	return signals, nil
}

// decodeSignals takes nothing for granted: what is missing, negative or said twice would be read as no demand. Fields
// that a newer server adds are ignored.
func decodeSignals(content []byte) (runnerapi.Signals, error) {
	var signals runnerapi.Signals
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&signals); err != nil {
		return runnerapi.Signals{}, fmt.Errorf("decoding: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return runnerapi.Signals{}, errors.New("unexpected data after the response")
	}
	if signals.At.IsZero() {
		return runnerapi.Signals{}, errors.New("it has no timestamp")
	}
	if signals.Pools == nil {
		return runnerapi.Signals{}, errors.New("it has no list of pools")
	}
	type pool struct{ namespace, name string }
	seen := make(map[pool]bool, len(signals.Pools))
	for _, p := range signals.Pools {
		if err := checkPool(p); err != nil {
			return runnerapi.Signals{}, fmt.Errorf("pool %q: %w", p.Namespace+"/"+p.Name, err)
		}
		if seen[pool{p.Namespace, p.Name}] {
			return runnerapi.Signals{}, fmt.Errorf("pool %q occurs twice", p.Namespace+"/"+p.Name)
		}
		seen[pool{p.Namespace, p.Name}] = true
	}
	for _, r := range signals.Removals {
		// EXCL-4: what names no pod, or gives no proof, removes nothing.
		if r.Pod.Namespace == "" || r.Pod.Name == "" || r.Pod.UID == "" || r.Proof == "" {
			return runnerapi.Signals{}, errors.New("a removal without a pod or without a proof")
		}
	}
	return signals, nil
}

// mostRunners is more than any fleet has; sums of such numbers still fit.
const mostRunners = 1_000_000_000

func checkPool(p runnerapi.PoolSignals) error {
	if p.Namespace == "" || p.Name == "" {
		return errors.New("it has no name")
	}
	for _, n := range []int{p.Occupied, p.Claimed, p.Queued, p.P95LastHour} {
		if n < 0 || n > mostRunners {
			return fmt.Errorf("invalid number of runners %d", n)
		}
	}
	for reason, jobs := range p.Blocked {
		if jobs < 0 || jobs > mostRunners {
			return fmt.Errorf("invalid number of jobs %d (%q)", jobs, reason)
		}
	}
	return nil
}
