package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pageSize is how much is read at a time.
const pageSize = 200

// pass is one check of everything, or of one pod.
type pass struct {
	r         *Recovery
	questions *questions
	began     time.Time

	mu      sync.Mutex
	acted   map[Kind]int
	actedOf map[share]int
	capped  map[Kind]bool

	// Of a check of everything, by its one goroutine.
	sweep           bool
	list            *sorted              // of pods, once they were listed
	noPods          bool                 // they were, and nothing is made of it
	listErr         error                // why, if that is an error
	unowned         []string             // of those that show work, once that was asked
	noticed         map[string]time.Time // since when each of them shows that
	reopened        bool                 // registrations that are doubted were opened again
	cut, passedOver *place
}

// share is what a kind does for one account.
type share struct {
	kind    Kind
	account string
}

func (r *Recovery) newPass() *pass {
	return &pass{r: r, questions: r.newQuestions(), began: r.opt.Now(), acted: map[Kind]int{}, actedOf: map[share]int{}, capped: map[Kind]bool{}}
}

// allAccounts times the limit of one account is what a pass does of a kind in all: one account's trouble leaves room for others' (TEN-11).
const allAccounts = 2

// may says why a kind may not act for the account; empty if it may, and then it counts (RECV-6).
func (p *pass) may(kind Kind, account string) string {
	if slices.Contains(p.r.opt.Off, kind) {
		return skipOff
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of, most := share{kind, account}, p.r.opt.capOf(kind)
	if p.actedOf[of] >= most || p.acted[kind] >= allAccounts*most { // RECV-6
		if !p.capped[kind] {
			p.capped[kind] = true
			p.r.metrics.capped.WithLabelValues(string(kind)).Inc()
			p.r.opt.Log.Warn("recovery reached its limit for one kind; the next pass continues", "kind", kind, "limit", most, "account", account,
				"actions", p.acted[kind])
		}
		return skipCap
	}
	p.acted[kind]++
	p.actedOf[of]++
	return ""
}

// notDone takes back what may counted: those that can never be helped must not use up what the others need (RECV-5).
func (p *pass) notDone(kind Kind, account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acted[kind]--
	p.actedOf[share{kind, account}]--
}

func (p *pass) skipped(why string) { p.r.metrics.skipped.WithLabelValues(why).Inc() }

// Count counts a recovery that is judged elsewhere, by its kind.
func (r *Recovery) Count(kind Kind) { r.metrics.recoveries.WithLabelValues(string(kind)).Inc() }

// Pass checks everything that looks wrong, once, or as much of it as it has time for; the next one continues there. An error reports that
// part of it was not checked; completed actions stay.
func (r *Recovery) Pass(ctx context.Context) error {
	p := r.newPass()
	p.sweep = true
	if p.frozen(ctx) {
		return nil
	}
	r.mu.Lock()
	from := r.from
	r.mu.Unlock()
	err := p.round(ctx, from)
	r.mu.Lock()
	r.from = p.next()
	r.mu.Unlock()
	return errors.Join(err, p.listErr)
}

// pods lists them once in a pass, before its claims are read: a pod that is claimed after this is not considered.
func (p *pass) pods(ctx context.Context) (*sorted, error) {
	switch {
	case p.noPods:
		return nil, errNoPods
	case p.list != nil:
		return p.list, nil
	}
	pods, err := p.r.opt.Cluster.RunnerPods(ctx)
	if err != nil {
		p.skipped(skipListFailed) // RECV-4
		p.noPods, p.listErr = true, fmt.Errorf("listing runner pods; nothing is made of their absence: %w", err)
		return nil, errNoPods
	}
	if len(pods) == 0 {
		p.skipped(skipEmptyList) // RECV-4: it never means that everything is gone
		p.r.opt.Log.WarnContext(ctx, "no runner pod is listed; nothing is made of that")
		p.noPods = true
		return nil, errNoPods
	}
	listed := sortPods(pods)
	p.list = &listed
	return p.list, nil
}

// frozen: the ledger may be outdated, and is being rebuilt (CLAIM-17).
func (p *pass) frozen(ctx context.Context) bool {
	reason, frozen := p.r.opt.Claims.Frozen()
	if frozen {
		p.skipped(skipFrozen)
		p.r.opt.Log.InfoContext(ctx, "recovery waits", "because", reason)
	}
	return frozen
}

// examine settles subjects, a few at a time, until ctx ends.
func (p *pass) examine(ctx context.Context, subjects []*subject) {
	next := make(chan *subject)
	var wait sync.WaitGroup
	for range min(p.r.opt.Workers, len(subjects)) {
		wait.Go(func() {
			for s := range next {
				if ctx.Err() != nil {
					continue
				}
				s.begun = true
				if s.passed {
					continue
				}
				key := s.doubtKey()
				if !p.settle(ctx, s) && ctx.Err() == nil {
					p.r.doubts.clear(key)
				}
			}
		})
	}
	for _, s := range subjects {
		next <- s
	}
	close(next)
	wait.Wait()
}

// sorted is a list of pods by what it gives reason for.
type sorted struct {
	byUID   map[string]*Pod
	uids    []string
	showing []string // they show work: each should have a claim
	urgent  []string // to be checked, whatever their row says
}

func sortPods(pods []Pod) sorted {
	s := sorted{byUID: make(map[string]*Pod, len(pods))}
	for i := range pods {
		pod := &pods[i]
		s.byUID[pod.UID] = pod
		s.uids = append(s.uids, pod.UID)
		works := pod.OwnerNoted() || pod.Poller != Polls || pod.Runner == NotReady
		switch {
		case pod.Terminal || pod.Deleting || works && !pod.OwnerNoted():
			s.urgent = append(s.urgent, pod.UID)
		case pod.Runner == Stopped:
			s.urgent = append(s.urgent, pod.UID)
		}
		if works && !pod.Terminal && !pod.Deleting {
			s.showing = append(s.showing, pod.UID)
		}
	}
	return s
}

// unownedPods are those that show work without a claim.
func (p *pass) unownedPods(ctx context.Context, listed *sorted) ([]string, error) {
	if p.unowned == nil {
		unowned, err := p.r.opt.Ledger.Unowned(ctx, listed.showing)
		if err != nil {
			return nil, err
		}
		slices.Sort(unowned)
		if p.noticed, err = p.notice(ctx, unowned, listed.byUID, true); err != nil {
			return nil, err
		}
		p.unowned = append([]string{}, unowned...)
	}
	return p.unowned, nil
}

// claims checks live claims that look wrong, and rows that are over of pods that show work.
func (p *pass) claims(ctx context.Context, listed *sorted, after string) (page, error) {
	r, now := p.r, p.r.opt.Now()
	unowned, err := p.unownedPods(ctx, listed)
	if err != nil {
		return page{}, err
	}
	rows, err := r.opt.Ledger.Suspects(ctx, Look{
		Named: slices.Concat(unowned, listed.urgent), Sweep: true, Listed: listed.uids,
		Now: now, LongAgo: now.Add(-r.opt.Patience), After: after, Most: pageSize,
	})
	if err != nil {
		return page{}, err
	}
	if err := p.noteAbsence(ctx, rows, *listed); err != nil {
		return page{}, err
	}
	got := page{more: len(rows) == pageSize}
	for i := range rows {
		uid := rows[i].PodUID
		got.subjects = append(got.subjects, &subject{row: &rows[i], pod: listed.byUID[uid], uid: uid, noticed: p.noticed[uid]})
	}
	return got, nil
}

// unclaimed checks pods that show work and have no row at all.
func (p *pass) unclaimed(ctx context.Context, listed *sorted, after string) (page, error) {
	unowned, err := p.unownedPods(ctx, listed)
	if err != nil {
		return page{}, err
	}
	first, _ := slices.BinarySearch(unowned, after)
	if first < len(unowned) && unowned[first] == after {
		first++
	}
	uids := unowned[first:min(first+pageSize, len(unowned))]
	if len(uids) == 0 {
		return page{}, nil
	}
	rows, err := p.r.opt.Ledger.Suspects(ctx, Look{Named: uids, Now: p.r.opt.Now(), Most: pageSize})
	if err != nil {
		return page{}, err
	}
	withRow := map[string]bool{} // they are checked among the claims
	for i := range rows {
		withRow[rows[i].PodUID] = true
	}
	got := page{more: len(uids) == pageSize}
	for _, uid := range uids {
		got.subjects = append(got.subjects, &subject{pod: listed.byUID[uid], uid: uid, noticed: p.noticed[uid], passed: withRow[uid]})
	}
	return got, nil
}

// notice keeps since when pods without a claim have shown what they show (RECV-1).
func (p *pass) notice(ctx context.Context, unowned []string, byUID map[string]*Pod, all bool) (map[string]time.Time, error) {
	show := make(map[string]string, len(unowned))
	for _, uid := range unowned {
		show[uid] = shown(byUID[uid])
	}
	return p.r.opt.Ledger.NoteSightings(ctx, show, all, p.r.opt.Now())
}

// noteAbsence keeps since when the pods of live claims have not been listed (RECV-4).
func (p *pass) noteAbsence(ctx context.Context, rows []Row, listed sorted) error {
	var missing, seen []string
	for i := range rows {
		row := &rows[i]
		_, there := listed.byUID[row.PodUID]
		switch {
		case there && !row.MissingSince.IsZero():
			seen = append(seen, row.PodUID)
			row.MissingSince = time.Time{}
		case !there && row.State.Live() && row.MissingSince.IsZero():
			missing = append(missing, row.PodUID)
		}
	}
	return p.r.opt.Ledger.NoteAbsence(ctx, missing, seen, p.r.opt.Now())
}

// sessions checks sessions that are open although their pods are gone.
func (p *pass) sessions(ctx context.Context, listed *sorted, after string) (page, error) {
	list, err := p.r.opt.Ledger.StraySessions(ctx, listed.uids, after, pageSize)
	got := page{more: len(list) == pageSize}
	for _, one := range list {
		got.subjects = append(got.subjects, &subject{uid: one.UID, since: one.Since, session: true})
	}
	return got, err
}

// registrations checks those that are left of pods that are gone.
func (p *pass) registrations(ctx context.Context, listed *sorted, after string) (page, error) {
	ledger, longAgo := p.r.opt.Ledger, p.r.opt.Now().Add(-p.r.opt.Patience)
	if !p.reopened {
		if err := ledger.DoubtRegistrations(ctx, longAgo, pageSize); err != nil {
			return page{}, err
		}
		p.reopened = true
	}
	list, err := ledger.StrayRegistrations(ctx, listed.uids, longAgo, after, pageSize)
	got := page{more: len(list) == pageSize}
	for _, one := range list {
		got.subjects = append(got.subjects, &subject{uid: one.UID, since: one.Since, account: one.Account, open: true})
	}
	return got, err
}

// jobs checks jobs whose rows say that a claim has them, while none does.
func (p *pass) jobs(ctx context.Context, after string) (page, error) {
	now := p.r.opt.Now()
	list, err := p.r.opt.Ledger.StrayJobs(ctx, now.Add(-p.r.opt.Patience), now, jobOfKey(after), pageSize)
	got := page{more: len(list) == pageSize}
	for i := range list {
		got.subjects = append(got.subjects, &subject{job: &list[i]})
	}
	return got, err
}

// CheckPod checks one pod at once, because an event of it arrived. The action is bound to its UID and to the generation of
// the claim that was judged, so that a replacement's claim is never touched. An error says that it could not be checked.
func (r *Recovery) CheckPod(ctx context.Context, podUID string) error {
	p := r.newPass()
	if p.frozen(ctx) {
		return nil
	}
	row, err := r.rowOf(ctx, podUID)
	if err != nil {
		return err
	}
	namespace, name := "", ""
	if seen, ok := r.opt.Cluster.Pod(podUID); ok {
		namespace, name = seen.Namespace, seen.Name
	} else if row != nil {
		namespace, name = row.Namespace, row.PodName
	} else {
		return nil // nothing is left of it, or its name is not known: the next pass finds what there is
	}
	pod, there, err := r.opt.Cluster.RunnerPod(ctx, namespace, name, podUID)
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", name, err)
	}
	if row, err = r.rowOf(ctx, podUID); err != nil { // after the pod
		return err
	}
	s := &subject{row: row, uid: podUID}
	if there {
		s.pod = &pod
	}
	if s.row == nil && s.pod == nil {
		return nil
	}
	if listed := sortPods([]Pod{pod}); there && len(listed.showing) > 0 {
		unowned, err := r.opt.Ledger.Unowned(ctx, listed.showing)
		if err != nil {
			return err
		}
		noticed, err := p.notice(ctx, unowned, listed.byUID, false)
		if err != nil {
			return err
		}
		s.noticed = noticed[podUID]
	}
	p.settle(ctx, s)
	return ctx.Err()
}

func (r *Recovery) rowOf(ctx context.Context, podUID string) (*Row, error) {
	rows, err := r.opt.Ledger.Suspects(ctx, Look{Named: []string{podUID}, Now: r.opt.Now(), Most: 1})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}
