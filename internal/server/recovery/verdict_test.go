package recovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func upTo[T ~uint8](last T) []T {
	var all []T
	for v := T(0); v <= last; v++ {
		all = append(all, v)
	}
	return all
}

// everyEvidence calls visit with all combinations that can be.
func everyEvidence(visit func(Evidence)) (visited int) {
	yesNo := upTo(Yes)
	var e Evidence
	pods := func() {
		for _, e.Pod = range upTo(Gone) {
			for _, e.Poller = range upTo(Failed) {
				for _, e.Runner = range upTo(Stopped) {
					for _, e.Label = range yesNo {
						for _, e.Registrations = range upTo(SomeOpen) {
							for _, e.Session = range yesNo {
								for _, e.RunnerAtGitHub = range upTo(RunnerUnreadable) {
									for _, e.JobAtGitHub = range upTo(JobUnreadable) {
										if e.possible() {
											visited++
											visit(e)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	for _, e.Claim = range upTo(Retired) {
		for _, e.Acked = range yesNo {
			for _, e.Leased = range yesNo {
				for _, e.Proven = range yesNo {
					for _, e.Age = range upTo(Old) {
						for _, e.Job = range upTo(Ended) {
							pods()
						}
					}
				}
			}
		}
	}
	return visited
}

// The table answers every combination that can be, and every row of it decides some.
func TestJudge_EveryCombinationIsDefined(t *testing.T) {
	decided := make([]int, len(table))
	visited := everyEvidence(func(e Evidence) {
		at := slices.IndexFunc(table[:], func(r row) bool { return r.matches(&e) })
		if at < 0 {
			t.Fatalf("no row for: %s", e)
		}
		decided[at]++
		v := Judge(e)
		if v.Do == Undefined || v.Why == "" || v.Do != table[at].do {
			t.Fatalf("%+v for: %s", v, e)
		}
	})
	t.Logf("%d combinations", visited)
	for i, n := range decided {
		require.NotZerof(t, n, "row %d decides nothing: %s (%s)", i, table[i].why, table[i].kind)
	}
}

// Every action has a kind, by which it is counted and can be switched off; a verdict without an action has none.
func TestJudge_RECV9_EveryActionHasItsKind(t *testing.T) {
	used := map[Kind]bool{}
	for _, r := range table {
		acts := r.do != Leave && r.do != Wait && r.do != Ask
		require.Equal(t, acts, r.kind != None, r.why)
		require.False(t, r.doubt && r.do != Leave, r.why)
		used[r.kind] = true
	}
	for _, kind := range Kinds() {
		require.NotEqual(t, used[kind], kind.OfTheQueue(), "nothing is ever judged as %s", kind)
	}
}

func (e Evidence) listed() bool { return e.Pod == Present || e.Pod == Deleting }

func (v Verdict) ends() bool { return v.Do == Release || v.Do == ReleaseRetire }

// properties name what must hold of every verdict; each gets the evidence and reports whether it is broken.
var properties = map[string]func(Evidence, Verdict) bool{
	"EXCL-6: no claim ends and no pod goes before GitHub was asked, nor while its runner is busy": func(e Evidence, v Verdict) bool {
		return (v.Do.takes() || v.Do == CloseRegistrations) &&
			e.RunnerAtGitHub != RunnerAbsent && e.RunnerAtGitHub != RunnerOffline && e.RunnerAtGitHub != RunnerIdle
	},
	"EXCL-6: the pod's own sign comes first: while GitHub lists the runner, whose job has started, or may have, keeps everything": func(e Evidence, v Verdict) bool {
		unproven := e.Claim != Executing || e.RunnerAtGitHub == RunnerIdle
		return v.Do.takes() && e.listed() && unproven && e.Live() && e.RunnerAtGitHub != RunnerAbsent &&
			(e.Runner == NotReady || e.Runner == Starting && e.RunnerAtGitHub == RunnerIdle)
	},
	"EXCL-4: and so does a pod without a claim": func(e Evidence, v Verdict) bool {
		return v.Do == RetirePod && e.RunnerAtGitHub == RunnerIdle && (e.Runner == NotReady || e.Runner == Starting)
	},
	"EXCL-6: no claim ends whose registrations were removed while its runner may work": func(e Evidence, v Verdict) bool {
		return v.ends() && e.listed() && e.Poller != Polls && e.Claim != Claimed && e.Registrations == AllGone &&
			(e.Runner == NotReady || e.Runner == Starting)
	},
	"EXCL-6: whose runner may have its configuration loses its registration first, and its claim later": func(e Evidence, v Verdict) bool {
		may := e.Claim == Minted && e.Poller != Polls && e.Runner != Stopped
		return v.ends() && e.listed() && may && e.Registrations == SomeOpen && e.RunnerAtGitHub != RunnerAbsent || v.Do == Unregister && !e.listed()
	},
	"RECV-3: what executes ends by proof": func(e Evidence, v Verdict) bool {
		if e.Claim != Executing || !v.ends() {
			return false
		}
		unseen := e.Pod == Terminal || e.Pod == Gone || e.Runner == Stopped
		proof := unseen || e.RunnerAtGitHub == RunnerAbsent || e.RunnerAtGitHub == RunnerOffline || e.JobAtGitHub != JobQueued
		return !proof || e.JobAtGitHub == JobHere
	},
	"RECV-3: GitHub saying queued does not prove that a runner is idle": func(e Evidence, v Verdict) bool {
		return v.ends() && e.Claim == Executing && e.JobAtGitHub == JobQueued && e.RunnerAtGitHub == RunnerIdle &&
			(e.Pod == Present || e.Pod == Deleting) && e.Runner != Stopped
	},
	"RECV-4: absence that has not lasted proves nothing": func(e Evidence, v Verdict) bool {
		return e.Pod == Missing && v.Do != Wait && v.Do != Leave && e.Job == NoJob
	},
	"RECV-2, RECV-1: nothing is taken before its time from a pod that is there": func(e Evidence, v Verdict) bool {
		stopped := e.Pod == Deleting && (e.Claim == Claimed || e.Claim == Minted) && (e.Runner == Ready || e.Runner == Starting) // EXCL-8
		records := v.Do == Complete || v.Do == MarkExecuting
		return e.Age == Young && e.listed() && !(stopped && (v.Do == Ask || v.Kind == StoppedPod || records)) &&
			v.Do != Leave && v.Do != Wait && v.Do != NoteOwner
	},
	"RECV-5: what is unreadable is left and counted": func(e Evidence, v Verdict) bool {
		unreadable := e.RunnerAtGitHub == RunnerUnreadable || e.JobAtGitHub == JobUnreadable
		disagrees := e.listed() && (e.Runner == NotReady || e.Runner == Starting) && e.RunnerAtGitHub != RunnerBusy
		return unreadable && v.Do != Leave && v.Do != Wait && v.Do != NoteOwner && v.Do != TakeOffLabel &&
			v.Do != CloseSession && v.Kind != UnclaimedJob || v.Doubt && !unreadable && !disagrees
	},
	"CLAIM-15: a claim that a replica works on is not touched": func(e Evidence, v Verdict) bool {
		return e.Leased == Yes && v.Do != Wait
	},
	"TEN-8: an owner is noted of an acknowledged claim whose pod says nothing of it": func(e Evidence, v Verdict) bool {
		return v.Do == NoteOwner && (e.Acked == No || e.Label == Yes || e.Pod != Present || !e.Live())
	},
	"CLAIM-6: a label is removed only from a pod that has no owner and still polls": func(e Evidence, v Verdict) bool {
		return v.Do == TakeOffLabel && (e.Claim != NoRow || e.Poller != Polls || e.Runner == NotReady || e.Runner == Stopped || e.Age == Young)
	},
	"CLAIM-8: only a healthy pod that nothing was minted for stays warm": func(e Evidence, v Verdict) bool {
		return v.Do == Release && e.Pod == Present && (e.Claim != Claimed || e.Runner != Ready || e.Poller != Polls)
	},
	"CLAIM-13: adopted is what GitHub calls busy, and nothing else": func(e Evidence, v Verdict) bool {
		return v.Do == Adopt && (e.RunnerAtGitHub != RunnerBusy || e.Live())
	},
	"EXCL-4: a pod is retired only if it shows work, exists, and has no claim": func(e Evidence, v Verdict) bool {
		return v.Do == RetirePod && (e.Live() || e.shows() == No || e.Pod != Present || e.Age == Young)
	},
	"a live claim's job that has ended at GitHub is recorded before anything else": func(e Evidence, v Verdict) bool {
		return (v.ends() || v.Do == Requeue) && (e.JobAtGitHub == JobCompleted || e.JobAtGitHub == JobGone) && e.Job != Bound ||
			v.ends() && (e.JobAtGitHub == JobCompleted || e.JobAtGitHub == JobGone)
	},
	"GitHub is asked once": func(e Evidence, v Verdict) bool {
		return v.Do == Ask && (e.RunnerAtGitHub != RunnerNotAsked || e.JobAtGitHub != JobNotAsked)
	},
}

func TestJudge_EXCL6_RECV_CLAIM_Properties(t *testing.T) {
	everyEvidence(func(e Evidence) {
		v := Judge(e)
		for name, broken := range properties {
			if broken(e, v) {
				t.Fatalf("%s\nis broken by %s (%s) for: %s", name, v.Do, v.Kind, e)
			}
		}
	})
}

// RECV-1: a pod with an owner label, no live claim and no live registration is a leak once the grace is over: it is
// removed, and not merely un-stamped, unless it still asks for work and was never owned.
func TestJudge_RECV1_AStampedPodWithoutAClaimGoes(t *testing.T) {
	everyEvidence(func(e Evidence) {
		leak := e.Label == Yes && !e.Live() && e.Age == Old && e.Pod == Present && e.Proven == No &&
			(e.RunnerAtGitHub == RunnerAbsent || e.RunnerAtGitHub == RunnerOffline)
		asks := e.Claim == NoRow && e.Poller == Polls && (e.Runner == Starting || e.Runner == Ready)
		if leak && !asks {
			require.Equal(t, RetirePod, Judge(e).Do, e)
		}
	})
}

// RECV-2: a claim that was never acknowledged and is not running ends once its time is over and GitHub does not contradict.
func TestJudge_RECV2_AClaimThatDoesNotStartEnds(t *testing.T) {
	everyEvidence(func(e Evidence) {
		stuck := (e.Claim == Claimed || e.Claim == Minted) && e.Age == Old && e.Leased == No && e.Pod == Present &&
			(e.Label == Yes || e.Acked == No) && (e.RunnerAtGitHub == RunnerAbsent || e.RunnerAtGitHub == RunnerOffline || e.RunnerAtGitHub == RunnerIdle) &&
			(e.JobAtGitHub == JobQueued || e.JobAtGitHub == JobNotAsked)
		may := e.Runner == NotReady || e.Runner == Starting && (e.RunnerAtGitHub == RunnerIdle || e.Registrations == AllGone)
		if may && Judge(e).Doubt {
			return // GitHub's word does not outweigh the pod's own
		}
		if stuck && !Judge(e).ends() && Judge(e).Do != Unregister {
			t.Fatalf("%s for: %s", Judge(e).Do, e)
		}
	})
}

// EXCL-8: of a pod that is being stopped, and shows no job, the registration goes at once and alone, if GitHub does not refuse it.
func TestJudge_EXCL8_AStoppedPodLosesItsRegistrationFirst(t *testing.T) {
	everyEvidence(func(e Evidence) {
		stopped := e.Pod == Deleting && (e.Claim == Claimed || e.Claim == Minted) && e.Leased == No && e.Runner == Ready && e.Registrations == SomeOpen
		if !stopped {
			return
		}
		v := Judge(e)
		switch {
		case e.RunnerAtGitHub == RunnerNotAsked:
			require.Equal(t, Ask, v.Do, e)
		case e.RunnerAtGitHub == RunnerBusy, e.RunnerAtGitHub == RunnerUnreadable:
			require.False(t, v.Do.takes(), "%s for: %s", v.Do, e)
		case e.JobAtGitHub == JobQueued || e.JobAtGitHub == JobNotAsked:
			require.Equal(t, Unregister, v.Do, e)
		default:
			require.False(t, v.ends(), "%s for: %s", v.Do, e)
		}
	})
}

// RECV-5: from every combination that is not final, time and a GitHub that can be read lead to a verdict that frees the claim, the job and
// the pod.
func TestJudge_RECV5_NothingIsATrap(t *testing.T) {
	everyEvidence(func(e Evidence) {
		for _, answer := range answers {
			w := world{e: e, at: answer.at, says: answer.says}
			if !w.settles() {
				t.Fatalf("never freed, with GitHub saying %s, %s: %s\n%s", atNames[answer.at], saysNames[answer.says], e, strings.Join(w.path, "\n"))
			}
		}
	})
}

// answers are what GitHub may say when it is first asked.
var answers = func() (all []struct {
	at   RunnerSays
	says JobSays
}) {
	for _, at := range []RunnerSays{RunnerAbsent, RunnerIdle, RunnerBusy, RunnerUnreadable} {
		for _, says := range []JobSays{JobQueued, JobHere, JobElsewhere, JobCompleted, JobUnreadable} {
			all = append(all, struct {
				at   RunnerSays
				says JobSays
			}{at, says})
		}
	}
	return all
}()

// world is one pod and its job over time: Judge's actions are carried out, and what is left alone ends at GitHub.
type world struct {
	e    Evidence
	at   RunnerSays
	says JobSays
	path []string
}

func (w *world) settles() bool {
	if w.e.RunnerAtGitHub != RunnerNotAsked {
		w.at = w.e.RunnerAtGitHub
	}
	if w.e.JobAtGitHub != JobNotAsked {
		w.says = w.e.JobAtGitHub
	}
	for range 20 {
		v := Judge(w.e)
		w.path = append(w.path, v.Do.String()+": "+v.Why)
		if w.final(v) {
			return true
		}
		w.do(v)
	}
	return false
}

// final: it holds nothing that no other actor releases.
func (w *world) final(v Verdict) bool {
	e := w.e
	freed := !e.Live() && e.Job != Bound && e.Job != Runs && v.Do == Leave && !v.Doubt
	open := (e.Pod == Terminal || e.Pod == Gone) && e.Registrations == SomeOpen || e.Session == Yes
	stays := e.Pod == Present && e.shows() == Yes && e.Proven == No
	return freed && !open && !stays
}

func (w *world) do(v Verdict) {
	e := &w.e
	switch v.Do {
	case Ask:
		e.RunnerAtGitHub, e.JobAtGitHub = w.at, w.says
		if e.Claim == NoRow && e.Job != NoJob {
			e.RunnerAtGitHub = RunnerNotAsked
		}
		if e.Job != Bound && e.Job != Runs {
			e.JobAtGitHub = JobNotAsked
		}
		return
	case Leave, Wait:
		w.later()
	case Release, ReleaseRetire:
		e.Claim, e.Acked, e.Job, e.Proven, e.Registrations = Spent, No, NoJob, Yes, AllGone
	case RetirePod:
		e.Proven, e.Registrations = Yes, AllGone
		if e.Claim == NoRow {
			e.Claim = Retired
		}
	case Adopt:
		e.Claim, e.Acked, e.Job = Executing, Yes, Runs
		w.says = JobHere
	case Complete:
		if w.says == JobCompleted && w.at == RunnerAbsent && e.Live() {
			e.Claim, e.Acked, e.Proven, e.Job = Spent, No, Yes, NoJob
		} else if e.Live() {
			e.Job = NoJob
		} else {
			e.Job = Ended
		}
	case MarkExecuting:
		if w.says == JobElsewhere {
			e.Job = NoJob
		} else {
			e.Claim, e.Acked, e.Job = Executing, Yes, Runs
		}
	case Requeue:
		e.Job = Waits
	case NoteOwner:
		e.Label = Yes
	case TakeOffLabel:
		e.Label = No
	case CloseSession:
		e.Session = No
	case CloseRegistrations:
		e.Registrations = AllGone
	case Unregister:
		e.Registrations, e.Age, w.at = AllGone, Young, RunnerAbsent
	}
	e.RunnerAtGitHub, e.JobAtGitHub = RunnerNotAsked, JobNotAsked
}

// later: leases end, absence lasts, and what GitHub has under way comes to its end.
func (w *world) later() {
	w.e.Age, w.e.Leased = Old, No
	if w.e.Pod == Missing {
		w.e.Pod = Gone
	}
	asked := w.e.RunnerAtGitHub != RunnerNotAsked || w.e.JobAtGitHub != JobNotAsked
	if !asked {
		return
	}
	unregistered := w.e.Live() && w.e.Registrations == AllGone
	w.e.RunnerAtGitHub, w.e.JobAtGitHub = RunnerNotAsked, JobNotAsked
	switch {
	case w.e.Runner == Starting && w.e.listed(): // it is probed some time
		w.e.Runner = Ready
	case unregistered && w.e.Runner == NotReady: // its job ends, and so does a runner that GitHub does not know
		w.e.Pod, w.e.Poller, w.e.Runner, w.e.Label = Terminal, Polls, Starting, No
	case w.at == RunnerIdle && w.e.Runner == NotReady: // GitHub's word catches up
		w.at = RunnerBusy
	case w.at == RunnerOffline && w.e.Runner == NotReady: // it forgets silent runners
		w.at = RunnerAbsent
	}
	switch {
	case w.at == RunnerUnreadable || w.says == JobUnreadable:
		w.at, w.says = RunnerOffline, JobQueued
	case w.says == JobHere || w.says == JobElsewhere || w.at == RunnerBusy:
		w.at, w.says = RunnerAbsent, JobCompleted
	case w.says == JobQueued && w.at == RunnerIdle:
		w.at, w.says = RunnerBusy, JobHere
	}
}
