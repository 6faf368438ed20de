package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// A question about lost pods may cost requests to GitHub, and the caller waits for the answer. Most are answered from GitHub's lists,
// however many pods there are. Registrations that are still listed must be removed one by one, a bounded number concurrently (GitHub allows
// an installation some 180 a minute), for Options.ExamineTimeout. The rest is unknown, and asked about again.
const (
	maxRemoved  = 24
	maxExamined = 8 // of claims that the lists do not answer for
	lostWorkers = 8
)

// ProofRegistrationsGone is the proof with which the claim of an unreachable pod ends.
const ProofRegistrationsGone = "GitHub has confirmed that none of its registrations exists any more"

// RetireLost is Retire for pods that can no longer be asked: their node is gone, or recovery wants them removed. The status of such a pod
// proves nothing, so its live claim is ended only when GitHub confirms that every registration minted for it is gone (POOL-7, EXCL-6). A
// grant has a proof if the ledger holds one, or GitHub's lists give one.
func (d *Dispatcher) RetireLost(ctx context.Context, pods []Pod) ([]runnerapi.RetireAnswer, error) {
	rows, unknown, err := d.retireRows(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("retiring %d lost pods: %w", len(pods), err)
	}
	if unknown != nil { // CLAIM-17
		return unknown, nil
	}
	answers := make([]runnerapi.RetireAnswer, len(pods))
	var live, unproven []int
	for i, pod := range pods {
		row := rows[pod.UID]
		answers[i] = lostAnswer(pod.UID, row)
		switch {
		case row.State.Live():
			answers[i].Verdict = runnerapi.Unknown // until it is examined
			live = append(live, i)
		case answers[i].Verdict == runnerapi.Granted && row.Proof == "":
			unproven = append(unproven, i)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.ExamineTimeout)
	defer cancel()
	d.noteLost(ctx, pods, live, rows)
	l := &losses{d: d, pods: pods, answers: answers, rows: rows}
	l.left.removals = maxRemoved
	l.releaseLive(ctx, d.rotate(live))
	l.proveEnded(ctx, d.rotate(unproven))
	for _, answer := range answers {
		d.metrics.retires.WithLabelValues(string(answer.Verdict)).Inc()
		if answer.Verdict == runnerapi.Granted {
			d.ClaimChanged(answer.UID)
		}
	}
	return answers, nil
}

// noteLost keeps for the record which jobs were running on pods that are lost.
func (d *Dispatcher) noteLost(ctx context.Context, pods []Pod, live []int, rows map[string]Claim) {
	var uids []string
	for _, i := range live {
		if rows[pods[i].UID].State == fleet.ClaimExecuting {
			uids = append(uids, pods[i].UID)
		}
	}
	if len(uids) == 0 {
		return
	}
	if err := d.opt.Store.SessionsLost(ctx, uids, d.opt.Now()); err != nil { // asked about again, it is noted again
		d.opt.Log.WarnContext(ctx, "noting that jobs lost their pods", "pods", len(uids), "error", err)
	}
}

func lostAnswer(uid string, row Claim) runnerapi.RetireAnswer {
	answer := runnerapi.RetireAnswer{UID: uid, State: string(row.State), Verdict: RetireVerdict(row.State), Owner: row.Account.Login}
	if answer.Verdict == runnerapi.Granted {
		answer.Owner, answer.Proof = "", row.Proof
	}
	return answer
}

// losses is one question about lost pods being answered.
type losses struct {
	d       *Dispatcher
	pods    []Pod
	answers []runnerapi.RetireAnswer
	rows    map[string]Claim

	left struct {
		sync.Mutex
		removals int
	}
}

// may takes one of what is left of a bound.
func (l *losses) may(left *int) bool {
	l.left.Lock()
	defer l.left.Unlock()
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// rotate begins elsewhere at each question, so that a few unanswerable ones do not block the rest forever.
func (d *Dispatcher) rotate(indexes []int) []int {
	if len(indexes) < 2 {
		return indexes
	}
	first := int(d.examined.Add(maxExamined) % uint64(len(indexes)))
	return slices.Concat(indexes[first:], indexes[:first])
}

// each runs do for every index, in that order, a few at a time.
func (l *losses) each(indexes []int, do func(i int)) {
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(lostWorkers, len(indexes)) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for _, i := range indexes {
		next <- i
	}
	close(next)
	wait.Wait()
}

// releaseLive ends the claims of lost pods whose registrations are proven gone. Each has a generation of its own, so that
// concurrent changes of the claim by another replica are void, or make this void (CLAIM-15). The lists are read after those
// are taken: what they do not show then can never be minted.
func (l *losses) releaseLive(ctx context.Context, live []int) {
	if l.d.opt.Roster == nil {
		live = live[:min(maxExamined, len(live))] // each is asked about by itself
	}
	taken := make(map[int]Claim, len(live))
	var mu sync.Mutex
	l.each(live, func(i int) {
		claim, ok := l.take(ctx, i)
		if ok {
			mu.Lock()
			taken[i] = claim
			mu.Unlock()
		}
	})
	since := l.d.opt.Now()
	queries := make([]roster.Query, 0, len(taken))
	for i, claim := range taken {
		queries = append(queries, roster.Query{
			UID: l.pods[i].UID, AccountID: claim.Account.ID, OwnerLabel: runnerpod.OwnerLabelValue(claim.Account.Login), Since: since,
		})
	}
	seen := l.d.look(ctx, queries)
	var answered, doubted []int // those that are asked about one by one come last: GitHub may not respond for their account
	for _, i := range live {
		if _, ok := taken[i]; ok && seen[l.pods[i].UID].Proves() {
			answered = append(answered, i)
		} else if ok {
			doubted = append(doubted, i)
		}
	}
	// Which ones is decided here, and not by the workers: the next question goes on behind these (rotate), and would leave out another one.
	examined := doubted[:min(maxExamined, len(doubted))]
	l.each(slices.Concat(answered, doubted), func(i int) {
		l.answers[i] = l.release(ctx, taken[i], seen[l.pods[i].UID], slices.Contains(examined, i), l.answers[i])
	})
}

// look asks GitHub's lists; nothing is known where they cannot be asked. It leaves a quarter of the time to what is done with
// the answer: one account's list that hangs must not keep other accounts' claims from ending.
func (d *Dispatcher) look(ctx context.Context, queries []roster.Query) map[string]roster.Sighting {
	if d.opt.Roster == nil || len(queries) == 0 {
		return nil
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer cancel()
	}
	seen, err := d.opt.Roster.Look(ctx, queries)
	if err != nil {
		d.opt.Log.WarnContext(ctx, "looking for the runners of lost pods in GitHub's lists", "pods", len(queries), "error", err)
		return nil
	}
	return seen
}

// take takes a generation of the claim, in order to release it.
func (l *losses) take(ctx context.Context, i int) (Claim, bool) {
	d, pod := l.d, l.pods[i]
	if ctx.Err() != nil {
		return Claim{}, false
	}
	claim, err := d.opt.Store.Claim(ctx, pod.UID)
	if err != nil {
		d.noteUnreleased(ctx, pod, err)
		return Claim{}, false
	}
	if !claim.State.Live() {
		l.answers[i] = lostAnswer(pod.UID, claim) // it has ended in between
		return Claim{}, false
	}
	now := d.opt.Now()
	next := NextGeneration(claim.Generation, now)
	taken, err := d.opt.Store.TakeForRelease(ctx, claim.PodUID, claim.Generation, next, now.Add(2*d.opt.ExamineTimeout), now)
	if err != nil || !taken { // EXCL-3; a replica is minting for it, or was faster
		d.noteUnreleased(ctx, pod, err)
		return Claim{}, false
	}
	claim.Generation = next
	return claim, true
}

// release ends one claim if its registrations are proven gone, by the lists or, if examine is set, one by one.
func (l *losses) release(
	ctx context.Context, claim Claim, seen roster.Sighting, examine bool, answer runnerapi.RetireAnswer,
) runnerapi.RetireAnswer {
	d := l.d
	var err error
	switch {
	case seen.Proves():
		if err = l.removeFound(ctx, seen.Found); err == nil {
			err = d.noteGone(ctx, claim)
		}
	case examine:
		err = d.removeRegistrations(ctx, claim)
	default:
		err = errLater
	}
	if err == nil {
		return d.releaseProven(ctx, claim, answer)
	}
	if errors.Is(err, fleet.ErrRunnerBusy) {
		answer.Verdict = runnerapi.Busy // EXCL-6: GitHub's 422 keeps it
	} else if !errors.Is(err, errLater) {
		d.noteUnreleased(ctx, l.podOf(claim), err)
	}
	d.endLeaseDetached(claim)
	return answer
}

func (l *losses) podOf(claim Claim) Pod {
	return Pod{Namespace: claim.Namespace, Name: claim.PodName, UID: claim.PodUID}
}

// errLater: so many were asked about in this question already.
var errLater = errors.New("the share of GitHub's request quota is used up for now")

// removeFound removes what the lists show. One that they show to be busy is not even asked for: the flag lags, but it has
// never been seen to be true of a runner that was given no job.
func (l *losses) removeFound(ctx context.Context, found []roster.Found) error {
	for _, one := range found {
		if one.Busy {
			return fmt.Errorf("runner %s: %w", one.Name, fleet.ErrRunnerBusy)
		}
	}
	for _, one := range found {
		if !l.may(&l.left.removals) {
			return errLater
		}
		account := accountOf(one.Owner)
		registration := Registration{Name: one.Name, RunnerID: one.ID, Scope: one.Scope}
		if err := l.d.removeRegistration(ctx, account, registration); err != nil {
			return fmt.Errorf("removing runner %s: %w", one.Name, err)
		}
		if err := l.d.opt.Store.RegistrationGone(ctx, one.Name, l.d.opt.Now()); err != nil {
			return fmt.Errorf("noting that runner %s is gone: %w", one.Name, err)
		}
	}
	return nil
}

func accountOf(owner fleet.Owner) Account {
	return Account{ID: owner.ID, Login: owner.Login, User: owner.User, InstallationID: owner.InstallationID}
}

// noteGone records of every registration of the claim that the lists, read whole, show none of them.
func (d *Dispatcher) noteGone(ctx context.Context, claim Claim) error {
	registrations, err := d.opt.Store.Registrations(ctx, claim.PodUID, claim.Generation)
	if err != nil || len(registrations) == 0 {
		return err
	}
	names := make([]string, len(registrations))
	for i, r := range registrations {
		names[i] = r.Name
	}
	return d.opt.Store.RegistrationsGone(ctx, names, d.opt.Now())
}

func (d *Dispatcher) releaseProven(ctx context.Context, claim Claim, answer runnerapi.RetireAnswer) runnerapi.RetireAnswer {
	released, err := d.opt.Store.Release(ctx, claim.PodUID, claim.Generation, ProofRegistrationsGone, d.opt.Now())
	if err != nil {
		d.opt.Log.WarnContext(ctx, "releasing the claim of a lost pod", "pod", claim.PodName, "error", err)
		d.endLeaseDetached(claim)
		return answer
	}
	if released {
		d.opt.Log.InfoContext(ctx, "released the claim of a lost pod", "pod", claim.PodName, "account", claim.Account.Login,
			"job", claim.JobID, "state", claim.State)
		d.wakeAll()
		return runnerapi.RetireAnswer{
			UID: claim.PodUID, Verdict: runnerapi.Granted, State: string(fleet.ClaimSpent), Proof: ProofRegistrationsGone,
		}
	}
	// The row has changed in between: what it says now counts, and a live one is asked about again.
	now, err := d.opt.Store.Claim(ctx, claim.PodUID)
	if err == nil && !now.State.Live() {
		return lostAnswer(claim.PodUID, now)
	}
	d.endLeaseDetached(claim)
	return answer
}

func (d *Dispatcher) noteUnreleased(ctx context.Context, pod Pod, err error) {
	if err != nil {
		d.opt.Log.WarnContext(ctx, "a lost pod keeps its claim until its runner is proven gone", "pod", pod.Name, "error", err)
	}
}
