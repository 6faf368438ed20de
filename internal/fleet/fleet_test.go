package fleet

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// jobTable is the whole machine once more, written the other way round: a row a state, a column an event. A dash keeps
// the state, a point refuses.
const jobTable = `
state       waiting   queued   in_progress  completed  cancelled  claim    mint    release  transfer  expire     returned
(absent)    waiting   queued   executing    completed  cancelled  .        .       .        .         .          .
waiting     -         queued   executing    completed  cancelled  .        .       .        .         stale      -
queued      -         -        executing    completed  cancelled  claimed  .       -        minted    stale      -
claimed     -         -        executing    completed  cancelled  .        minted  queued   .         .          .
minted      -         -        executing    completed  cancelled  .        -       queued   .         .          .
executing   -         -        -            completed  cancelled  .        -       -        .         .          queued
completed   -         -        -            -          -          .        -       -        .         -          -
cancelled   -         -        -            -          -          .        -       -        .         -          -
stale       -         -        -            -          -          .        -       -        .         -          -
`

const claimTable = `
state       claim    mint    unclaim  started    completed  release  adopt      retire
(absent)    claimed  .       .        .          .          .        executing  retired
claimed     .        minted  (absent) executing  spent      spent    .          .
minted      .        -       .        executing  spent      spent    .          .
executing   .        -       .        -          spent      spent    -          .
spent       .        .       .        .          -          -        executing  -
retired     .        .       .        .          -          -        executing  -
`

// CLAIM-3: every pair of state and event is defined, exactly as the table above says.
func TestNextJobState_CLAIM3_EveryPair(t *testing.T) {
	checkTable(t, jobTable, len(JobStates()), len(JobEvents()), func(state, event string) (string, Outcome) {
		next, outcome := NextJobState(JobState(state), JobEvent(event))
		return string(next), outcome
	})
}

// EXCL-5: every pair of claim state and event; a live claim is never retired, a retired or spent pod never claimed.
func TestNextClaimState_EXCL5_EveryPair(t *testing.T) {
	checkTable(t, claimTable, len(ClaimStates()), len(ClaimEvents()), func(state, event string) (string, Outcome) {
		next, outcome := NextClaimState(ClaimState(state), ClaimEvent(event))
		return string(next), outcome
	})
}

func checkTable(t *testing.T, table string, states, events int, next func(state, event string) (string, Outcome)) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	columns := strings.Fields(lines[0])[1:]
	require.Len(t, columns, events)
	require.Len(t, lines[1:], states)
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		state := strings.TrimPrefix(cells[0], "(absent)")
		require.Len(t, cells[1:], events, "row %s", cells[0])
		for i, cell := range cells[1:] {
			got, outcome := next(state, columns[i])
			where := fmt.Sprintf("%s + %s", cells[0], columns[i])
			switch cell {
			case ".":
				require.Equal(t, Refuse, outcome, where)
				require.Equal(t, state, got, where)
			case "-":
				require.Equal(t, Keep, outcome, where)
				require.Equal(t, state, got, where)
			default:
				require.Equal(t, Move, outcome, where)
				require.Equal(t, strings.TrimPrefix(cell, "(absent)"), got, where)
			}
		}
	}
}

// CLAIM-4: whatever follows a terminal state, in any order and number, the job stays there.
func TestNextJobState_CLAIM4_TerminalIsFinal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := JobAbsent
		var ended JobState
		for _, event := range rapid.SliceOf(rapid.SampledFrom(JobEvents())).Draw(t, "events") {
			state, _ = NextJobState(state, event)
			if ended == "" && state.Terminal() {
				ended = state
			}
			if ended != "" && state != ended {
				t.Fatalf("%s became %s", ended, state)
			}
		}
	})
}

// CLAIM-5: filling the room exactly never exceeds a limit, and one more always would.
func TestRoom_CLAIM5_IsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		limits := Limits{MilliCPU: draw("cpu", 64_000), MemoryMB: draw("memory", 128_000), Jobs: draw("jobs", 50)}
		shape := Shape{draw("shape cpu", 8000), draw("shape memory", 16_000)}
		used := Usage{draw("used cpu", 70_000), draw("used memory", 140_000), draw("used jobs", 60)}
		n := limits.Room(used, shape)
		fits := func(n int64) bool {
			return used.Jobs+n <= limits.Jobs &&
				(shape.MilliCPU == 0 || used.MilliCPU+n*shape.MilliCPU <= limits.MilliCPU) &&
				(shape.MemoryMB == 0 || used.MemoryMB+n*shape.MemoryMB <= limits.MemoryMB)
		}
		if n < 0 || n > 0 && !fits(n) || fits(n+1) {
			t.Fatalf("room %d for %+v in %+v with %+v used", n, shape, limits, used)
		}
	})
}

// NET-3: a secret is printed only by code that asks for it by name.
func TestSecret_NET3_NeverShowsItself(t *testing.T) {
	secret := NewSecret("hunter2")
	raw, err := json.Marshal(struct{ S Secret }{secret})
	require.NoError(t, err)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "jit", secret, "in", JIT{Encoded: secret})
	for _, seen := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%v %+v %#v %s %q", secret, secret, secret, secret, secret),
		fmt.Sprintf("%+v", JIT{Encoded: secret}), string(raw), log.String(),
	} {
		require.NotContains(t, seen, "hunter2")
	}
	require.Equal(t, "hunter2", secret.Reveal())
}

func TestParseScope(t *testing.T) {
	for text, want := range map[string]Scope{
		"acme": {Owner: "acme"}, "acme/app": {Owner: "acme", Repo: "app"}, "enterprises/big": {Enterprise: "big"},
		"enterprises": {Owner: "enterprises"},
	} {
		scope, err := ParseScope(text)
		require.NoError(t, err)
		require.Equal(t, want, scope)
		require.Equal(t, text, scope.String())
	}
	for _, text := range []string{"", "/app", "acme/", "a/b/c", "enterprises/", "enterprises/a/b"} {
		_, err := ParseScope(text)
		require.Error(t, err, text)
	}
}

func TestDefinite_OnlyWhatProvesThatNothingHappened(t *testing.T) {
	for _, err := range []error{
		ErrRejected, ErrForbidden, ErrNotFound, ErrNameTaken, &RateLimitedError{Resource: "core", Until: time.Unix(0, 0)},
	} {
		require.True(t, Definite(fmt.Errorf("minting: %w", err)), err)
	}
	require.False(t, Definite(ErrUncertain))
	require.False(t, Definite(ErrRunnerBusy))
	require.False(t, Definite(nil))
}
