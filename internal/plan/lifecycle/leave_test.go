package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func askAbout(stage Stage, why Reason) Action {
	return Action{Runner: Runner{Name: "a", UID: "1", Stage: stage}, Reason: why}
}

func TestLeave_RUN6_IsWithdrawnUntilItIsGranted(t *testing.T) {
	var l Leave
	require.False(t, l.Withdraw(), "there is no removal")
	l.Ask(askAbout(StageIdle, ReasonScaleDown), ServerPace(), t0)
	require.Equal(t, Leave{Removal: RemovalAsked, Why: ReasonScaleDown, Since: t0, AskAt: t0.Add(time.Minute)}, l)
	l.Ask(askAbout(StageIdle, ReasonTemplate), ServerPace(), t0.Add(time.Hour))
	require.Equal(t, t0, l.Since, "since the first time")
	require.Equal(t, ReasonTemplate, l.Why)
	require.True(t, l.Withdraw())
	require.Equal(t, RemovalNone, l.Removal)

	l.Answered(Answer{Verdict: Granted, Proof: "its row says so"}, ReasonTemplate, StageIdle, ServerPace(), t0.Add(2*time.Hour))
	require.Equal(t, RemovalGranted, l.Removal, "the grant stays: the runner gets no more jobs")
	require.Equal(t, ReasonTemplate, l.Why)
	require.Equal(t, t0.Add(2*time.Hour), l.Since)
	require.False(t, l.Withdraw())
	l.Vetoed(ServerPace(), t0.Add(3*time.Hour))
	require.Empty(t, l.Proof, "a proof that has lifted no veto lifts none later")
	require.Equal(t, t0.Add(3*time.Hour+time.Minute), l.AskAt)
	l.Accepted(t0.Add(4 * time.Hour))
	require.True(t, l.Deleted)
	require.Equal(t, t0.Add(4*time.Hour), l.Since)
}

func TestLeave_EXCL3_UnknownIsAskedAgainLessAndLessOften(t *testing.T) {
	var l Leave
	l.Answered(Answer{}, ReasonScaleDown, StageIdle, ServerPace(), t0)
	require.Zero(t, l, "there is no removal")
	l.Ask(askAbout(StageIdle, ReasonScaleDown), ServerPace(), t0)
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		l.Answered(Answer{}, ReasonScaleDown, StageIdle, ServerPace(), t0)
		require.Equal(t, RemovalAsked, l.Removal)
		require.Equal(t, t0.Add(wait), l.AskAt)
	}
	l.Answered(Answer{Verdict: Granted}, ReasonScaleDown, StageIdle, ServerPace(), t0)
	l.Answered(Answer{}, ReasonScaleDown, StageIdle, ServerPace(), t0)
	require.Equal(t, RemovalAsked, l.Removal, "what is not known right before is not deleted")
	require.Equal(t, t0.Add(time.Second), l.AskAt, "an answer begins anew")
}

func TestLeave_EXCL4_BusyHolds(t *testing.T) {
	for name, c := range map[string]struct {
		pace         Pace
		asked, shown Stage
		until        time.Duration // the word holds by the clock
		as           bool          // it holds until something else is shown
		askAt        time.Duration
	}{
		"of a pool":                         {ServerPace(), StageIdle, StageIdle, 30 * time.Second, false, 30 * time.Second},
		"of a static runner":                {GitHubPace(false), StageIdle, StageIdle, time.Minute, false, time.Minute},
		"of an ephemeral one":               {GitHubPace(true), StageIdle, StageIdle, 0, true, 0},
		"of an ephemeral one that is lost":  {GitHubPace(true), StageLost, StageLost, 0, true, time.Minute},
		"of an ephemeral one without a pod": {GitHubPace(true), StageIdle, 0, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var l Leave
			l.Ask(askAbout(c.asked, ReasonScaleDown), c.pace, t0)
			l.Answered(Answer{Verdict: Busy}, ReasonScaleDown, c.shown, c.pace, t0)
			require.Equal(t, RemovalNone, l.Removal)
			require.Equal(t, c.until > 0, l.SaidBusy(StageStarting, t0.Add(c.until-1)))
			require.False(t, l.SaidBusy(StageStarting, t0.Add(c.until)))
			require.Equal(t, c.as, l.SaidBusy(c.shown, t0.Add(24*time.Hour)))
			if c.askAt == 0 {
				require.Zero(t, l.AskAt)
			} else {
				require.Equal(t, t0.Add(c.askAt), l.AskAt)
			}
		})
	}
}

func TestLeave_EXCL4_ABusyAnswerCountsUntilSomethingElseIsShown(t *testing.T) {
	for shown, holds := range map[Stage]bool{StageIdle: true, StageTerminating: true, StageStarting: false, StageBusy: false, StageLost: false} {
		l := Leave{BusyAs: StageIdle}
		l.Showed(shown)
		require.Equal(t, holds, l.SaidBusy(StageIdle, t0), shown)
	}
}

func TestLeave_EXCL4_NoAnswerAboutAPodHoldsForTheNext(t *testing.T) {
	l := Leave{
		Removal: RemovalGranted, Why: ReasonScaleDown, Since: t0, AskAt: t0, Unknowns: 2, Proof: "of the first pod", Lost: true, Deleted: true,
		BusyUntil: t0.Add(time.Hour), BusyAs: StageIdle,
	}
	l.Replaced()
	require.Equal(t, Leave{Since: t0, Lost: true, Deleted: true}, l)
}

func TestLeave_OverlayKeepsWhatIsShown(t *testing.T) {
	idle := Runner{Stage: StageIdle, Since: t0}
	shown := idle
	(&Leave{}).Overlay(&shown)
	require.Equal(t, idle, shown)
	l := Leave{Removal: RemovalAsked, Why: ReasonScaleDown, Since: t0.Add(time.Second), AskAt: t0.Add(time.Minute)}
	l.Overlay(&shown)
	require.Equal(t, Runner{
		Stage: StageTerminating, Removal: RemovalAsked, Why: ReasonScaleDown, Since: t0.Add(time.Second), AskAt: t0.Add(time.Minute),
		Shown: StageIdle, ShownSince: t0,
	}, shown)
}

// EXCL-2, EXCL-3, EXCL-4: for any order of questions, answers and withdrawals, a runner is granted if, and only if, that is
// the fence's last answer, and a proof belongs to that answer.
func TestLeave_EXCL2_GrantedIsTheLastWordOfTheFence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pace := rapid.SampledFrom([]Pace{ServerPace(), GitHubPace(true), GitHubPace(false)}).Draw(rt, "pace")
		var l Leave
		granted, proof, now := false, "", t0
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second)
			stage := rapid.SampledFrom([]Stage{StageStarting, StageIdle, StageLost}).Draw(rt, "stage")
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				if l.Removal != RemovalGranted || stage == StageLost { // as the engine asks
					l.Ask(askAbout(stage, ReasonScaleDown), pace, now)
					granted = false
				}
			case 1:
				require.Equal(rt, l.Removal == RemovalAsked, l.Withdraw())
			case 2:
				l.Vetoed(pace, now)
				proof = ""
			case 3:
				answer := Answer{Verdict: Verdict(rapid.IntRange(0, 2).Draw(rt, "verdict"))}
				if answer.Verdict == Granted {
					answer.Proof = rapid.SampledFrom([]string{"", "GitHub", "the ledger"}).Draw(rt, "proof")
					proof = answer.Proof
				}
				wanted := l.Removal != RemovalNone
				l.Answered(answer, ReasonScaleDown, stage, pace, now)
				granted = answer.Verdict == Granted
				require.Equal(rt, answer.Verdict == Unknown && wanted, l.Removal == RemovalAsked)
				if answer.Verdict != Granted && l.Removal != RemovalNone {
					require.True(rt, l.AskAt.After(now), "a fence that is asked without a pause is a storm")
				}
			}
			require.Equal(rt, granted, l.Removal == RemovalGranted)
			if granted {
				require.Equal(rt, proof, l.Proof)
				require.NotEmpty(rt, l.Why)
			}
		}
	})
}
