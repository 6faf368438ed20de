package registration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

var limitEnds = time.Unix(1_800_000_090, 0)

// answers are all that GitHub says to a removal or a search, as the client translates it.
var answers = map[string]error{
	"204": nil, "422": fleet.ErrRunnerBusy, "404": fleet.ErrNotFound, "403": fleet.ErrForbidden, "401": github.ErrUnauthorized,
	"429": &fleet.RateLimitedError{Resource: "core", Until: limitEnds}, "5xx": fleet.ErrUncertain, "400": fleet.ErrRejected,
	"absent": github.ErrAbsent,
}

// script is a GitHub that answers one removal and one search.
type script struct {
	removed, searched string // of answers
	listed            Registration
	calls             []string
}

func (s *script) removal() removal {
	return removal{
		remove: func(id int64) error {
			s.calls = append(s.calls, fmt.Sprintf("remove %d", id))
			return wrapped(answers[s.removed])
		},
		find: func() (Registration, error) {
			s.calls = append(s.calls, "find")
			if s.listed.ID != 0 {
				return s.listed, nil
			}
			return Registration{}, wrapped(answers[s.searched])
		},
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("asking: %w", err)
}

// Each row is an answer to "remove this runner", each column what the scope's list shows afterwards: the runner is absent,
// listed as idle, listed as busy; or the list itself is answered with 404 (which the client says is uncertain), 403, 401, 429
// or 5xx. G: granted. W: granted with a warning. B: busy. U: unknown. L: unknown until the limit ends. A dot: the same, and
// the list must not be read.
const table = `
      absent idle busy 404 403 401 429 5xx
204   G.     G.   G.   G.  G.  G.  G.  G.
422   B.     B.   B.   B.  B.  B.  B.  B.
404   G      U    U    U   U   U   L   U
403   W      U    B    U   U   U   L   U
401   U.     U.   U.   U.  U.  U.  U.  U.
429   L.     L.   L.   L.  L.  L.  L.  L.
5xx   U.     U.   U.   U.  U.  U.  U.  U.
400   U.     U.   U.   U.  U.  U.  U.  U.
`

// tableEnded is the same for a runner whose container has ended: a 422 may last for minutes after that, and 403 keeps nothing.
const tableEnded = `
      absent idle busy 404 403 401 429 5xx
204   G.     G.   G.   G.  G.  G.  G.  G.
422   G.     G.   G.   G.  G.  G.  G.  G.
404   G      U    U    U   U   U   L   U
403   G      G    G    U   U   U   L   U
401   U.     U.   U.   U.  U.  U.  U.  U.
429   L.     L.   L.   L.  L.  L.  L.  L.
5xx   U.     U.   U.   U.  U.  U.  U.  U.
400   U.     U.   U.   U.  U.  U.  U.  U.
`

type cell struct{ removed, seen, want string }

func cells(text string) (all []cell) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		for i, column := range columns {
			all = append(all, cell{fields[0], column, fields[i+1]})
		}
	}
	return all
}

func (c cell) script(id int64) *script {
	s := &script{removed: c.removed, searched: c.seen}
	switch c.seen {
	case "404":
		s.searched = "5xx" // as the client translates it (EXCL-6)
	case "idle", "busy":
		s.listed = Registration{ID: id, Name: "r-1", Busy: c.seen == "busy"}
	}
	return s
}

func TestRemove_RUN2_EXCL6_EveryAnswerBesideEveryControlRead(t *testing.T) {
	for kind, subject := range map[string]Subject{
		"running": {ID: 5, Name: "r-1"}, "lost": {ID: 5, Name: "r-1", Lost: true}, "ended": {ID: 5, Name: "r-1", Ended: true},
	} {
		rows := cells(table)
		if subject.Ended {
			rows = cells(tableEnded)
		}
		require.Len(t, rows, 64)
		for _, one := range rows {
			t.Run(kind+"/"+one.removed+"/"+one.seen, func(t *testing.T) {
				s := one.script(5)
				got, _ := s.removal().ask(subject)
				require.Equal(t, want(one.want), verdictOf(got), "%+v", got)
				require.NotEmpty(t, got.Detail)
				require.Equal(t, one.want == "L" || one.want == "L.", got.NotBefore.Equal(limitEnds), "%+v", got)
				calls := []string{"remove 5"}
				if !strings.HasSuffix(one.want, ".") {
					calls = []string{"remove 5", "find"} // EXCL-6: after the refusal, never before
				}
				require.Equal(t, calls, s.calls)
				require.Equal(t, one.want == "W", !subject.Ended && got.Verdict == lifecycle.Granted && strings.Contains(got.Detail, "denies its removal"))
				requireProof(t, subject, one, got)
			})
		}
	}
}

func want(mark string) lifecycle.Verdict {
	switch mark[0] {
	case 'G', 'W':
		return lifecycle.Granted
	case 'B':
		return lifecycle.Busy
	default:
		return lifecycle.Unknown
	}
}

func verdictOf(a lifecycle.Answer) lifecycle.Verdict { return a.Verdict }

// requireProof: the veto of a runner's own signs is lifted for one that has ended, and for a lost one whose registration is
// known to be gone (EXCL-4, POOL-7).
func requireProof(t *testing.T, subject Subject, one cell, got lifecycle.Answer) {
	t.Helper()
	gone := one.removed == "204" || one.seen == "absent"
	proven := got.Verdict == lifecycle.Granted && (subject.Ended || subject.Lost && gone)
	require.Equal(t, proven, got.Proof != "", "%+v", got)
}

func TestRemove_RUN2_WithoutAnIDItIsLookedForByItsName(t *testing.T) {
	for name, one := range map[string]struct {
		subject Subject
		script  script
		want    lifecycle.Verdict
		calls   []string
		proof   bool
	}{
		"absent":             {Subject{Name: "r-1"}, script{searched: "absent"}, lifecycle.Granted, []string{"find"}, false},
		"never started":      {Subject{Name: "r-1", NeverStarted: true}, script{searched: "absent"}, lifecycle.Granted, []string{"find"}, false},
		"lost and absent":    {Subject{Name: "r-1", Lost: true}, script{searched: "absent"}, lifecycle.Granted, []string{"find"}, true},
		"ended and absent":   {Subject{Name: "r-1", Ended: true}, script{searched: "absent"}, lifecycle.Granted, []string{"find"}, true},
		"not readable, 5xx":  {Subject{Name: "r-1"}, script{searched: "5xx"}, lifecycle.Unknown, []string{"find"}, false},
		"not readable, 403":  {Subject{Name: "r-1"}, script{searched: "403"}, lifecycle.Unknown, []string{"find"}, false},
		"not readable, 404":  {Subject{Name: "r-1"}, script{searched: "404"}, lifecycle.Unknown, []string{"find"}, false},
		"not readable, 401":  {Subject{Name: "r-1"}, script{searched: "401"}, lifecycle.Unknown, []string{"find"}, false},
		"never, unreadable":  {Subject{Name: "r-1", NeverStarted: true}, script{searched: "5xx"}, lifecycle.Unknown, []string{"find"}, false},
		"ended, unreadable":  {Subject{Name: "r-1", Ended: true}, script{searched: "403"}, lifecycle.Unknown, []string{"find"}, false},
		"found and removed":  {Subject{Name: "r-1"}, script{removed: "204", listed: Registration{ID: 7}}, lifecycle.Granted, []string{"find", "remove 7"}, false},
		"found and busy":     {Subject{Name: "r-1"}, script{removed: "422", listed: Registration{ID: 7}}, lifecycle.Busy, []string{"find", "remove 7"}, false},
		"nothing to ask for": {Subject{}, script{searched: "absent"}, lifecycle.Unknown, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := one.script.removal().ask(one.subject)
			require.Equal(t, one.want, got.Verdict, "%+v", got)
			require.Equal(t, one.calls, one.script.calls)
			require.Equal(t, one.proof, got.Proof != "", "%+v", got)
		})
	}
	limited := &script{searched: "429"}
	got, _ := limited.removal().ask(Subject{Name: "r-1"})
	require.Equal(t, lifecycle.Unknown, got.Verdict)
	require.True(t, got.NotBefore.Equal(limitEnds))
}

// A static runner that configures itself again has another id by then: the known one is not found, although the runner is alive.
func TestRemove_EXCL6_ARegistrationThatWasRenewedIsFollowed(t *testing.T) {
	for again, want := range map[string]lifecycle.Verdict{
		"204": lifecycle.Granted, "422": lifecycle.Busy, "5xx": lifecycle.Unknown, "429": lifecycle.Unknown, "401": lifecycle.Unknown,
		"404": lifecycle.Unknown, // it is listed
	} {
		t.Run(again, func(t *testing.T) {
			var calls []string
			got, _ := removal{
				remove: func(id int64) error {
					calls = append(calls, fmt.Sprint(id))
					if id == 5 {
						return fleet.ErrNotFound
					}
					return answers[again]
				},
				find: func() (Registration, error) { return Registration{ID: 6, Name: "r-1"}, nil },
			}.ask(Subject{ID: 5, Name: "r-1"})
			require.Equal(t, want, got.Verdict, "%+v", got)
			require.Equal(t, []string{"5", "6"}, calls)
		})
	}
}

func TestUnasked_WaitsForTheLimitThatKeepsFromAsking(t *testing.T) {
	got := Unasked(wrapped(answers["429"]))
	require.Equal(t, lifecycle.Unknown, got.Verdict)
	require.True(t, got.NotBefore.Equal(limitEnds))
	require.True(t, Unasked(ErrCredentials).NotBefore.IsZero())
}
