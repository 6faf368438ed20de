package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// maxSteps bounds how often one subject is judged in a pass: each step changes what is known of it.
const maxSteps = 8

// outcome is what became of an action.
type outcome struct {
	done bool
	skip string // why not
	kind Kind   // of another kind than the verdict's, if set
}

var recovered = outcome{done: true}

// settle judges the subject and carries out the verdict, until nothing is left to do. It reports whether it ended in doubt.
func (p *pass) settle(ctx context.Context, s *subject) (doubt bool) {
	r := p.r
	for range maxSteps {
		now := r.opt.Now()
		e := r.evidence(s, now)
		v := Judge(e)
		switch v.Do {
		case Undefined:
			r.opt.Log.ErrorContext(ctx, "recovery has no row for this; please report it", "evidence", e.String())
			return true
		case Leave, Wait:
			p.left(ctx, s, e, v)
			return v.Doubt
		case Ask:
			if p.sweep && r.doubts.early(s.doubtKey()) {
				return true
			}
			if err := p.questions.ask(ctx, s, e); err != nil {
				p.notAsked(ctx, s, err)
				return true
			}
		default:
			if v.Do.takes() && s.pod != nil && !s.fresh {
				if !p.reread(ctx, s) {
					return true
				}
				continue // it is judged by what it shows now
			}
			s.fresh = false
			if !p.act(ctx, s, e, v) {
				return false
			}
			if again, err := p.again(ctx, s); err != nil || !again {
				return err != nil
			}
		}
	}
	return false
}

// reread reads the pod past every cache, right before an action that would harm a busy runner. Its own sign may have come since the pods
// were listed, or since GitHub was asked (EXCL-6). A pod that cannot be read is left alone.
func (p *pass) reread(ctx context.Context, s *subject) bool {
	pod, there, err := p.r.opt.Cluster.RunnerPod(ctx, s.pod.Namespace, s.pod.Name, s.uid)
	if err != nil {
		p.skipped(skipFailed)
		key, name := s.name()
		p.r.opt.Log.WarnContext(ctx, "reading a pod again; it is left as it is", key, name, "error", err)
		return false
	}
	s.pod, s.fresh = nil, true
	if there {
		s.pod = &pod
	}
	return true
}

func (p *pass) notAsked(ctx context.Context, s *subject, err error) {
	if errors.Is(err, errEnough) {
		s.unasked = true
		p.skipped(skipQuota)
		return
	}
	p.skipped(skipFailed)
	key, name := s.name()
	p.r.opt.Log.WarnContext(ctx, "gathering evidence", key, name, "error", err)
}

// left keeps when it is worth asking GitHub again about what works.
func (p *pass) left(ctx context.Context, s *subject, e Evidence, v Verdict) {
	key, name := s.name()
	if v.Doubt {
		why := skipDisagree
		if e.RunnerAtGitHub == RunnerUnreadable || e.JobAtGitHub == JobUnreadable {
			why = skipUnreadable
		}
		p.skipped(why)
		p.r.doubts.note(s.doubtKey())
		p.r.opt.Log.WarnContext(ctx, "left as it is, in doubt", key, name, "why", v.Why, "evidence", e.String())
		return
	}
	asked := e.RunnerAtGitHub != RunnerNotAsked || e.JobAtGitHub != JobNotAsked
	if v.Do != Leave || !asked || e.Pod != Present && e.Pod != Deleting && s.job == nil {
		return
	}
	now := p.r.opt.Now()
	patience := p.r.opt.Patience
	at := now.Add(min(max(now.Sub(s.wrongSince())/2, patience), 6*patience))
	var err error
	switch {
	case s.job != nil:
		err = p.r.opt.Ledger.LookAtJobAgain(ctx, s.job.ID, at)
	case s.row != nil && s.row.State.Live():
		err = p.r.opt.Ledger.LookAtClaimAgain(ctx, s.uid, s.row.Generation, at)
	}
	if err != nil {
		p.r.opt.Log.WarnContext(ctx, "noting when to look again", key, name, "error", err)
	}
}

// act does one thing, if its kind may, and reports whether it was done.
func (p *pass) act(ctx context.Context, s *subject, e Evidence, v Verdict) bool {
	key, name := s.name()
	log := p.r.opt.Log.With(key, name, "kind", v.Kind, "verdict", v.Do.String(), "why", v.Why)
	whose := s.whose() // before the action, which may change that
	if skip := p.may(v.Kind, whose); skip != "" {
		s.capped = skip == skipCap
		p.skipped(skip)
		log.InfoContext(ctx, "recovery would act, and may not", "because", skip)
		return false
	}
	since := s.wrongSince()
	got, err := p.do(ctx, s, e, v)
	if err != nil || !got.done {
		p.notDone(v.Kind, whose)
	}
	switch {
	case err != nil:
		p.skipped(skipFailed)
		log.WarnContext(ctx, "recovery failed, and is tried again", "error", err, "evidence", e.String())
		if v.Do == NoteOwner { // a note that cannot be written does not stop the judgement of the claim
			s.noted = true
			return true
		}
		return false
	case !got.done:
		p.skipped(got.skip)
		log.InfoContext(ctx, "recovery was not needed, or not possible", "because", got.skip)
		return false
	}
	kind := v.Kind
	if got.kind != None {
		kind = got.kind
	}
	p.r.metrics.recoveries.WithLabelValues(string(kind)).Inc() // RECV-9
	p.r.metrics.stranded.WithLabelValues(string(kind)).Observe(p.r.opt.Now().Sub(since).Seconds())
	log.InfoContext(ctx, "recovered", "evidence", e.String())
	return true
}

func (p *pass) do(ctx context.Context, s *subject, e Evidence, v Verdict) (outcome, error) {
	ledger, now := p.r.opt.Ledger, p.r.opt.Now()
	switch v.Do {
	case Release, ReleaseRetire:
		return p.endClaim(ctx, s, e, v.Do == Release && e.Pod == Present)
	case Unregister:
		return p.unregister(ctx, s, e, v.Kind)
	case Adopt, RetirePod:
		return p.retireOrAdopt(ctx, s)
	case Complete, MarkExecuting:
		return p.record(ctx, s)
	case Requeue:
		done, err := ledger.RequeueJob(ctx, s.job.ID, e.JobAtGitHub == JobQueued, now)
		return outcome{done: done, skip: skipOvertaken}, err
	case NoteOwner:
		s.noted = true
		return recovered, p.r.opt.Cluster.NoteOwner(ctx, s.pod.Pod, s.row.Account)
	case TakeOffLabel:
		s.pod.OwnerLabel, s.pod.OwnerID = "", 0
		return recovered, p.r.opt.Cluster.TakeOffOwner(ctx, *s.pod)
	case CloseSession:
		done, err := ledger.CloseSession(ctx, s.uid, now)
		s.session = false
		return outcome{done: done, skip: skipOvertaken}, err
	case CloseRegistrations:
		return p.closeRegistrations(ctx, s)
	default:
		return outcome{}, fmt.Errorf("no action is defined for %s", v.Do)
	}
}

func (p *pass) unregister(ctx context.Context, s *subject, e Evidence, kind Kind) (outcome, error) {
	ending, err := p.r.opt.Claims.Unregister(ctx, s.row.Claim, p.began)
	got := outcomeOf(ending)
	if err == nil && got.done && kind == IdleRunner && e.Job == Bound && e.JobAtGitHub == JobQueued { // CLAIM-20
		if err := p.r.opt.Claims.NotAssigned(ctx, s.row.Claim); err != nil {
			p.r.opt.Log.WarnContext(ctx, "noting a runner that got no job; the next one may get none either", "error", err)
		}
	}
	return got, err
}

// endClaim removes the registrations of the claim that was judged, of that generation and no other: a replacement's, or one
// that moved in between, is not touched (CLAIM-15).
func (p *pass) endClaim(ctx context.Context, s *subject, e Evidence, giveBack bool) (outcome, error) {
	ending, err := p.r.opt.Claims.EndClaim(ctx, s.row.Claim, giveBack, p.began)
	got := outcomeOf(ending)
	if err != nil || !got.done {
		return got, err
	}
	if e.Job == Runs && e.JobAtGitHub == JobQueued { // it never ran, by GitHub's word
		if _, err := p.r.opt.Ledger.RequeueJob(ctx, s.row.JobID, true, p.r.opt.Now()); err != nil {
			p.r.opt.Log.WarnContext(ctx, "queueing a job again; a later pass will", "job", s.row.JobID, "error", err)
		}
	}
	return recovered, nil
}

func outcomeOf(ending dispatch.Ending) outcome {
	switch ending {
	case dispatch.EndedSpent, dispatch.EndedGivenBack, dispatch.EndedRegistrations:
		return recovered
	case dispatch.EndedBusy:
		return outcome{skip: skipBusy}
	case dispatch.EndedByOthers:
		return outcome{skip: skipOvertaken}
	default:
		return outcome{skip: skipUnreadable}
	}
}

// retireOrAdopt retires the pod through the fence with a proof that it runs no job. If GitHub reports its runner busy, the pod
// is adopted: its claim is live again.
func (p *pass) retireOrAdopt(ctx context.Context, s *subject) (outcome, error) {
	answer, err := p.r.opt.Claims.RetireProven(ctx, s.pod.Pod)
	switch {
	case err != nil:
		return outcome{}, err
	case answer.Verdict == runnerapi.Granted && answer.Proof != "":
		return outcome{done: true, kind: OrphanedLabelledPod}, nil
	case answer.Verdict == runnerapi.Busy:
		return outcome{done: true, kind: UnknownRunner}, nil
	default:
		return outcome{skip: skipUnreadable}, nil
	}
}

// record applies what GitHub says of the job as if its webhook had come.
func (p *pass) record(ctx context.Context, s *subject) (outcome, error) {
	id, repository, account := jobOf(s)
	ev := dispatch.JobEvent{JobID: id, Account: account, Repository: repository.Name, RepositoryID: repository.ID}
	now := p.r.opt.Now()
	if s.jobFound.gone { // its run or its repository was deleted: it will never run
		ev.Kind, ev.Conclusion, ev.CompletedAt = fleet.JobEventCancelled, "gone", now
		if err := json.Unmarshal([]byte(labelsOf(s)), &ev.Labels); err != nil {
			return outcome{}, fmt.Errorf("reading the labels of job %d: %w", id, err)
		}
	} else {
		kind, ok := intake.StatusEvent(s.jobFound.job)
		if !ok {
			return outcome{skip: skipUnreadable}, nil
		}
		ev = intake.JobEvent(kind, account, repository, s.jobFound.job)
	}
	rec, err := p.r.opt.Ledger.RecordJob(ctx, dispatch.Delivery{Event: "workflow_job", At: now}, ev)
	if err != nil {
		return outcome{}, err
	}
	s.jobSays, s.runner, s.jobFound = JobNotAsked, RunnerNotAsked, nil
	return outcome{done: rec.Outcome == fleet.Move, skip: skipOvertaken}, nil
}

func labelsOf(s *subject) string {
	if s.job != nil {
		return s.job.Labels
	}
	return s.row.LabelKey
}

func (p *pass) closeRegistrations(ctx context.Context, s *subject) (outcome, error) {
	account := s.account
	if s.row != nil {
		account = s.row.Account
	}
	err := p.r.opt.Claims.CloseRegistrations(ctx, s.uid, account)
	if errors.Is(err, fleet.ErrRunnerBusy) {
		return outcome{skip: skipBusy}, nil
	}
	s.open = err != nil
	return recovered, err
}

// again rereads the row after an action; false when nothing of it is left to judge.
func (p *pass) again(ctx context.Context, s *subject) (bool, error) {
	if s.job != nil {
		return false, nil
	}
	if s.pod == nil && s.row == nil {
		return s.open || s.session, nil
	}
	rows, err := p.r.opt.Ledger.Suspects(ctx, Look{Named: []string{s.uid}, Now: p.r.opt.Now(), Most: 1})
	if err != nil {
		p.notAsked(ctx, s, err)
		return false, err
	}
	if len(rows) == 0 {
		s.row = nil
		return s.pod != nil, nil
	}
	if s.row != nil && rows[0].Generation != s.row.Generation {
		s.runner, s.jobSays, s.jobFound = RunnerNotAsked, JobNotAsked, nil // what was asked was about another claim
	}
	s.row = &rows[0]
	if !s.row.State.Live() {
		s.jobSays = JobNotAsked
	}
	return true, nil
}
