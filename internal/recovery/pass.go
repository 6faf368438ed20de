package recovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pageSize is how much is read at a time.
const pageSize = 200

// pass is one look at everything, or at one pod.
type pass struct {
	r         *Recovery
	questions *questions
	began     time.Time

	mu     sync.Mutex
	acted  map[Kind]int
	capped map[Kind]bool
	doubt  int
}

func (r *Recovery) newPass() *pass {
	return &pass{r: r, questions: r.newQuestions(), began: r.opt.Now(), acted: map[Kind]int{}, capped: map[Kind]bool{}}
}

// may says why a kind may not act; empty if it may, and then it counts (RECV-6).
func (p *pass) may(kind Kind) string {
	if slices.Contains(p.r.opt.Off, kind) {
		return skipOff
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if most := p.r.opt.capOf(kind); p.acted[kind] >= most { // RECV-6
		if !p.capped[kind] {
			p.capped[kind] = true
			p.r.metrics.capped.WithLabelValues(string(kind)).Inc()
			p.r.opt.Log.Warn("recovery has done enough of a kind for one pass: the rest waits for the next", "kind", kind, "cap", most)
		}
		return skipCap
	}
	p.acted[kind]++
	return ""
}

// notDone takes back what may counted: those that can never be helped must not use up what the others need (RECV-5).
func (p *pass) notDone(kind Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acted[kind]--
}

func (p *pass) skipped(why string) { p.r.metrics.skipped.WithLabelValues(why).Inc() }

// Count counts a recovery that is judged elsewhere, by its kind.
func (r *Recovery) Count(kind Kind) { r.metrics.recoveries.WithLabelValues(string(kind)).Inc() }

// Pass looks at everything that looks wrong, once. Jobs that no claim has come first: they need no pods. An error says
// that part of it was not looked at; what was done stays.
func (r *Recovery) Pass(ctx context.Context) error {
	p := r.newPass()
	if p.held(ctx) {
		return nil
	}
	if err := p.jobs(ctx); err != nil {
		return err
	}
	pods, err := r.opt.Cluster.RunnerPods(ctx) // before the claims: a pod that is claimed after this is not considered
	if err != nil {
		p.skipped(skipListFailed) // RECV-4
		return fmt.Errorf("listing runner pods; nothing is made of their absence: %w", err)
	}
	if len(pods) == 0 {
		p.skipped(skipEmptyList) // RECV-4: it never means that everything is gone
		r.opt.Log.WarnContext(ctx, "no runner pod is listed; nothing is made of that")
		return nil
	}
	err = p.claims(ctx, pods)
	if err == nil {
		err = p.strays(ctx, pods)
	}
	r.metrics.doubtful.Set(float64(p.doubt))
	return err
}

// held: the ledger may be older than it looks, and whoever rebuilds it is at work (CLAIM-17).
func (p *pass) held(ctx context.Context) bool {
	reason, held := p.r.opt.Claims.Held()
	if held {
		p.skipped(skipHeld)
		p.r.opt.Log.InfoContext(ctx, "recovery waits", "because", reason)
	}
	return held
}

// examine settles subjects, a few at a time.
func (p *pass) examine(ctx context.Context, subjects []*subject) error {
	next := make(chan *subject)
	var wait sync.WaitGroup
	for range min(p.r.opt.Workers, len(subjects)) {
		wait.Go(func() {
			for s := range next {
				if ctx.Err() == nil && p.settle(ctx, s) {
					p.mu.Lock()
					p.doubt++
					p.mu.Unlock()
				}
			}
		})
	}
	for _, s := range subjects {
		next <- s
	}
	close(next)
	wait.Wait()
	return ctx.Err()
}

// sorted is a list of pods by what it gives reason for.
type sorted struct {
	byUID   map[string]*Pod
	uids    []string
	showing []string // they show work: somebody should have a claim
	urgent  []string // whatever their row says, it is to be looked at
}

func sortPods(pods []Pod) sorted {
	s := sorted{byUID: make(map[string]*Pod, len(pods))}
	for i := range pods {
		pod := &pods[i]
		s.byUID[pod.UID] = pod
		s.uids = append(s.uids, pod.UID)
		works := pod.OwnerLabel != "" || pod.Poller != Polls || pod.Runner == NotReady
		switch {
		case pod.Terminal || works && pod.OwnerLabel == "":
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

// claims looks at live claims that look wrong, and at pods that show work while nobody has a claim.
func (p *pass) claims(ctx context.Context, pods []Pod) error {
	r, listed, began := p.r, sortPods(pods), p.r.opt.Now()
	unowned, err := r.opt.Ledger.Unowned(ctx, listed.showing)
	if err != nil {
		return err
	}
	withRow := map[string]bool{}
	look := Look{
		Named: slices.Concat(unowned, listed.urgent), Sweep: true, Listed: listed.uids,
		Now: began, LongAgo: began.Add(-r.opt.Patience), Most: pageSize,
	}
	for {
		rows, err := r.opt.Ledger.Suspects(ctx, look)
		if err != nil {
			return err
		}
		if err := p.noteAbsence(ctx, rows, listed); err != nil {
			return err
		}
		var subjects []*subject
		for i := range rows {
			withRow[rows[i].PodUID] = true
			subjects = append(subjects, &subject{row: &rows[i], pod: listed.byUID[rows[i].PodUID], uid: rows[i].PodUID})
		}
		if err := p.examine(ctx, subjects); err != nil {
			return err
		}
		if len(rows) < pageSize {
			break
		}
		look.After = rows[len(rows)-1].PodUID
	}
	var subjects []*subject
	for _, uid := range unowned {
		if !withRow[uid] {
			subjects = append(subjects, &subject{pod: listed.byUID[uid], uid: uid})
		}
	}
	return p.examine(ctx, subjects)
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

// strays looks at what is left of pods that have gone.
func (p *pass) strays(ctx context.Context, pods []Pod) error {
	ledger, listed, now := p.r.opt.Ledger, sortPods(pods).uids, p.r.opt.Now()
	for after := ""; ; {
		page, err := ledger.StraySessions(ctx, listed, after, pageSize)
		if err != nil {
			return err
		}
		var subjects []*subject
		for _, one := range page {
			subjects = append(subjects, &subject{uid: one.UID, since: one.Since, session: true})
		}
		if err := p.examine(ctx, subjects); err != nil {
			return err
		}
		if len(page) < pageSize {
			break
		}
		after = page[len(page)-1].UID
	}
	if err := ledger.DoubtRegistrations(ctx, now.Add(-p.r.opt.Patience), pageSize); err != nil {
		return err
	}
	for after := ""; ; {
		page, err := ledger.StrayRegistrations(ctx, listed, now.Add(-p.r.opt.Patience), after, pageSize)
		if err != nil {
			return err
		}
		var subjects []*subject
		for _, one := range page {
			subjects = append(subjects, &subject{uid: one.UID, since: one.Since, account: one.Account, open: true})
		}
		if err := p.examine(ctx, subjects); err != nil {
			return err
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1].UID
	}
}

// jobs looks at jobs whose rows say that a claim has them, while none does.
func (p *pass) jobs(ctx context.Context) error {
	now := p.r.opt.Now()
	for after := int64(0); ; {
		page, err := p.r.opt.Ledger.StrayJobs(ctx, now.Add(-p.r.opt.Patience), now, after, pageSize)
		if err != nil {
			return err
		}
		var subjects []*subject
		for i := range page {
			subjects = append(subjects, &subject{job: &page[i]})
		}
		if err := p.examine(ctx, subjects); err != nil {
			return err
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// CheckPod looks at one pod at once: something was heard of it. What is done about it is bound to its UID and to the
// generation of the claim that was judged, so that a replacement's claim is never touched. An error says that it could not
// be looked at.
func (r *Recovery) CheckPod(ctx context.Context, podUID string) error {
	p := r.newPass()
	if p.held(ctx) {
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
