package dispatch

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// ProofUnregistered is the proof that a pod runs no job whose row says only that the fleet took it, or is new because
// the former one was lost.
const ProofUnregistered = "GitHub lists no registration of it in any place where it could have one"

// proveEnded searches for a proof for pods whose rows are over and do not say how. A row without a proof may have replaced
// a lost one, so that it lifts no sign of work (EXCL-4): only GitHub's lists can, and what they show is removed first. A
// busy runner is adopted again (CLAIM-13). Where the lists prove nothing, the grant stays what it was: enough for a pod
// that shows no work, and for no other.
func (l *losses) proveEnded(ctx context.Context, unproven []int) {
	if l.d.opt.Roster == nil || len(unproven) == 0 {
		return
	}
	queries := make([]roster.Query, len(unproven))
	for k, i := range unproven {
		queries[k] = roster.Query{UID: l.pods[i].UID, Since: l.d.ended.since(l.pods[i].UID, l.d.opt.Now())}
		if pod, ok := l.d.opt.Cluster.Pod(l.pods[i].UID); ok && pod.OwnerLabel != "" {
			queries[k].OwnerLabel, queries[k].AccountID = pod.OwnerLabel, cmp.Or(l.rows[pod.UID].Account.ID, pod.OwnerID)
		}
	}
	seen := l.d.look(ctx, queries)
	var absent []int
	var listed []int
	for _, i := range unproven {
		switch s := seen[l.pods[i].UID]; {
		case s.Absent:
			absent = append(absent, i)
		case len(s.Found) > 0:
			listed = append(listed, i)
		}
	}
	var mu sync.Mutex
	l.each(listed, func(i int) {
		gone := l.endListed(ctx, i, seen[l.pods[i].UID])
		mu.Lock()
		defer mu.Unlock()
		if gone {
			absent = append(absent, i)
		}
	})
	l.grantProven(ctx, absent)
}

// endListed removes what GitHub lists of a pod whose row is over, and reports whether nothing is left anywhere.
func (l *losses) endListed(ctx context.Context, i int, seen roster.Sighting) bool {
	err := l.removeFound(ctx, seen.Found)
	switch {
	case err == nil:
		return seen.Doubt == ""
	case errors.Is(err, fleet.ErrRunnerBusy):
		l.adoptFound(ctx, i, seen.Found)
		return false
	case !errors.Is(err, errLater):
		l.d.noteUnreleased(ctx, l.pods[i], err)
	}
	// EXCL-6: a registration may be alive, and it is a way to start work.
	l.answers[i].Verdict = runnerapi.Unknown
	return false
}

// adoptFound makes the pod's claim live again: GitHub says that its runner has a job.
func (l *losses) adoptFound(ctx context.Context, i int, found []roster.Found) {
	d, one := l.d, found[0]
	for _, other := range found {
		if other.Busy {
			one = other
		}
	}
	pod, ok := d.opt.Cluster.Pod(l.pods[i].UID)
	if !ok {
		pod = l.pods[i]
	}
	pool, _ := d.opt.Cluster.Pool(pod.Pool)
	l.answers[i].Verdict, l.answers[i].Owner = runnerapi.Busy, one.Owner.Login
	adopted, err := d.opt.Store.Adopt(ctx, Adoption{
		RunnerName: one.Name, RunnerID: one.ID, PodUID: pod.UID, Account: accountOf(one.Owner), Scope: one.Scope,
	}, pod, pool, d.opt.Now())
	if err != nil {
		if errors.Is(err, ErrForeignRunner) { // it says nothing of this pod's own one
			l.answers[i].Verdict, l.answers[i].Owner = runnerapi.Unknown, ""
		}
		d.opt.Log.WarnContext(ctx, "adopting a runner", "runner", one.Name, "error", err)
		return
	}
	if adopted {
		d.metrics.adoptions.WithLabelValues("adopted").Inc()
		d.opt.Log.InfoContext(ctx, "adopted a runner that GitHub lists as busy without a live claim", "runner", one.Name, "pod", pod.Name)
		d.ClaimChanged(pod.UID)
	}
}

// grantProven writes the proof into the rows, so that every later question finds it, and answers with it.
func (l *losses) grantProven(ctx context.Context, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	at := make(map[string]int, len(indexes))
	uids := make([]string, len(indexes))
	for k, i := range indexes {
		uids[k] = l.pods[i].UID
		at[uids[k]] = i
	}
	proven, err := l.d.opt.Store.ProveEnded(ctx, uids, ProofUnregistered)
	if err != nil {
		l.d.opt.Log.WarnContext(ctx, "recording that lost pods have no registration", "error", err)
		return
	}
	for _, uid := range proven { // of the others the row says something else by now: they are asked about again
		l.answers[at[uid]].Proof = ProofUnregistered
	}
}

// endings remembers when this replica first saw that a pod's row is over, by its own clock: from then on nothing can be
// minted for the pod, and a list that was read later is final.
type endings struct {
	mu sync.Mutex
	at map[string]time.Time
}

// maxEndings bounds the memory; a forgotten one counts as seen for the first time.
const maxEndings = 100_000

func (e *endings) since(podUID string, now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, known := e.at[podUID]; known {
		return at
	}
	if e.at == nil || len(e.at) >= maxEndings {
		e.at = map[string]time.Time{}
	}
	e.at[podUID] = now
	return now
}

func (e *endings) forget(podUID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, podUID)
}
