package recovery

import (
	"fmt"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// subject is one pod or job that may need something, with what evidence is made of.
type subject struct {
	row *Row      // nil: there is none
	pod *Pod      // nil: it is not listed
	job *StrayJob // of a job that no claim has; then there is neither row nor pod

	uid     string
	open    bool      // without a row: a registration of it is not known to be gone
	session bool      // without a row: its session is open
	since   time.Time // without row and pod: since when
	noticed time.Time // of a pod without a claim: since when it has shown what it shows; zero: that is new
	account dispatch.Account

	fresh    bool // the pod was read just now, for what is about to be done
	noted    bool // its owner was noted, or that failed, a moment ago: it is judged as if it were there
	runner   RunnerSays
	jobSays  JobSays
	jobFound *found // what GitHub said of its job

	passed  bool // over: another section checks it
	begun   bool // it was checked in this pass
	unasked bool // GitHub was not asked about it: enough was
	capped  bool // nothing was done about it: enough was
}

// whose names the account that it belongs to, by its id if that is known; empty: no account, or an unknown one.
func (s *subject) whose() string {
	account := s.account
	switch {
	case s.job != nil:
		account = s.job.Account
	case s.row != nil && s.row.Account.ID != 0:
		account = s.row.Account
	case s.pod != nil && s.pod.OwnerID != 0:
		account = dispatch.Account{ID: s.pod.OwnerID}
	case s.pod != nil && account.ID == 0:
		return s.pod.OwnerLabel
	}
	if account.ID == 0 {
		return account.Login
	}
	return strconv.FormatInt(account.ID, 10)
}

// key is its place in its section of a round.
func (s *subject) key() string {
	if s.job != nil {
		return jobKey(s.job.ID)
	}
	return s.uid
}

// doubtKey tells it apart from everything that GitHub might not be able to tell about.
func (s *subject) doubtKey() string {
	if s.open {
		return "registrations of " + s.uid
	}
	return s.key()
}

// signGrace is the part of patience in which a pod certainly shows that a job has started in it. Its runner's probe runs
// every five seconds, and its status takes a moment to reach the API server.
const signGrace = 5

// noteGrace is the part of patience in which a label or a note that was asked for by an event may still be on its way.
const noteGrace = 10

// evidence reads what is known of the subject at that moment.
func (r *Recovery) evidence(s *subject, now time.Time) Evidence {
	e := Evidence{RunnerAtGitHub: s.runner, JobAtGitHub: s.jobSays}
	if s.job != nil {
		e.Pod, e.Job = Gone, jobIs(s.job.State, false)
		r.age(&e, s.job.Since, time.Time{}, now)
		return e
	}
	r.podEvidence(&e, s, now)
	if s.row == nil {
		r.age(&e, s.strayed(now), time.Time{}, now)
		if s.open {
			e.Registrations = SomeOpen
		}
		if s.session {
			e.Session = Yes
		}
		return e
	}
	row := s.row
	e.Claim = claimIs[row.State]
	if row.Open {
		e.Registrations = SomeOpen
	}
	if !row.State.Live() {
		if row.Proof != "" {
			e.Proven = Yes
		}
		r.age(&e, later(row.EndedAt, s.noticed), time.Time{}, now)
		return e
	}
	e.Job = jobIs(row.Job, row.Buried || row.JobID == 0)
	if row.JobID == 0 {
		e.Job = NoJob
	}
	// A poller that has exited 0 has handed its answer over, whatever became of the acknowledgement.
	if e.Claim == Executing || e.Claim == Minted && (row.Acknowledged || e.Poller == Delivered) {
		e.Acked = Yes
	}
	if row.Leased(now) {
		e.Leased = Yes
	}
	if now.Before(row.MovedAt.Add(r.opt.Patience/noteGrace)) && e.Pod == Present {
		e.Label = Yes
	}
	lookAt := row.LookAt
	if e.Registrations == AllGone { // what started before may not be shown yet
		lookAt = later(lookAt, row.GoneAt.Add(r.opt.Patience/signGrace))
	}
	r.age(&e, row.MovedAt, lookAt, now)
	return e
}

var claimIs = map[fleet.ClaimState]ClaimIs{
	fleet.ClaimNone: NoRow, fleet.ClaimClaimed: Claimed, fleet.ClaimMinted: Minted, fleet.ClaimExecuting: Executing,
	fleet.ClaimSpent: Spent, fleet.ClaimRetired: Retired,
}

func jobIs(state fleet.JobState, buried bool) JobIs {
	switch {
	case buried || state.Terminal():
		return Ended
	case state == fleet.JobClaimed || state == fleet.JobMinted:
		return Bound
	case state == fleet.JobExecuting:
		return Runs
	case state == fleet.JobAbsent:
		return NoJob
	default:
		return Bound // a live claim holds it: it waits for no other
	}
}

func (r *Recovery) podEvidence(e *Evidence, s *subject, now time.Time) {
	switch {
	case s.pod == nil:
		e.Pod = r.absence(s, now)
	case s.pod.Terminal:
		e.Pod = Terminal
	default:
		if s.pod.Deleting {
			e.Pod = Deleting
		}
		e.Poller, e.Runner = s.pod.Poller, s.pod.Runner
		if s.pod.OwnerNoted() || s.noted {
			e.Label = Yes
		}
	}
}

// absence says what it means that the pod is not listed (RECV-4).
func (r *Recovery) absence(s *subject, now time.Time) PodIs {
	switch {
	case s.row == nil:
		return Gone // a row is forgotten only when its UID is proven gone
	case !s.row.State.Live():
		return Missing // its row is about to be forgotten by that proof
	case !s.row.StoppedAt.IsZero():
		return Gone // its end was reported, and it cannot be found
	case !s.row.MissingSince.IsZero() && s.row.MissingSince.Before(now) && now.Sub(s.row.MissingSince) >= r.opt.Patience:
		return Gone // RECV-4: noted by an earlier pass
	default:
		return Missing
	}
}

// age compares with the patience; not before lookAt anything is old again.
func (r *Recovery) age(e *Evidence, since, lookAt, now time.Time) {
	due := later(since.Add(r.opt.Patience), lookAt)
	if due.After(now) {
		e.Due = due
		return
	}
	e.Age = Old
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// strayed is since when it has been seen without a row. The pod's own times are by other clocks: one that calls them long
// past says nothing, so a pod that is seen for the first time begins to look wrong now (RECV-1).
func (s *subject) strayed(now time.Time) time.Time {
	switch {
	case s.pod == nil:
		return s.since
	case s.noticed.IsZero():
		return now
	default:
		return s.noticed
	}
}

// shown is what a pod shows, so that a change can be detected.
func shown(p *Pod) string {
	return fmt.Sprintf("%s %s %q %d", pollerNames[p.Poller], runnerNames[p.Runner], p.OwnerLabel, p.Since.UnixMicro())
}

// wrongSince is when it began to look wrong, for the histogram.
func (s *subject) wrongSince() time.Time {
	switch {
	case s.job != nil:
		return s.job.Since
	case s.row == nil:
		return later(s.since, s.noticed)
	case !s.row.State.Live():
		return later(s.row.EndedAt, s.noticed)
	case s.pod == nil && !s.row.StoppedAt.IsZero():
		return s.row.StoppedAt
	case s.pod == nil && !s.row.MissingSince.IsZero():
		return s.row.MissingSince
	default:
		return s.row.MovedAt
	}
}

// name says for logs what it is about.
func (s *subject) name() (string, any) {
	switch {
	case s.job != nil:
		return "job", s.job.ID
	case s.row != nil && s.row.PodName != "":
		return "pod", s.row.PodName
	case s.pod != nil:
		return "pod", s.pod.Name
	default:
		return "pod", s.uid
	}
}
