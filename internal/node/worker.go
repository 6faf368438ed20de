package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// minGrace is what a container gets even when no grace is given, as a kubelet does.
const minGrace = 2 * time.Second

// track is what a worker knows of one container.
type track struct {
	observed containerObserved
	init     bool
	sidecar  bool
	termSent bool
	killSent bool

	hooked      bool               // TERM waits, or has waited, for a preStop hook
	cutHook     context.CancelFunc // ends the hook; nil before there is one
	sparedUntil time.Time          // no KILL before
}

// worker sees one pod, by UID, from its binding to its end. All its fields but the mailbox belong to the goroutine of run (NODE-6:
// there is one for each pod, and it never waits for a step).
type worker struct {
	a   *Agent
	ref sandbox.PodRef
	log *slog.Logger

	mail    mailbox
	wake    chan struct{}
	results chan func()
	wg      sync.WaitGroup

	ops        map[string]*operation
	pod        *corev1.Pod // nil for a pod that only the sandbox remembers
	address    string      // the pod's own; empty when it has none, or none yet
	terms      sandbox.Terms
	presence   presence
	adopted    bool
	prepared   bool
	removed    bool
	refusal    *sandbox.InvalidError
	containers map[string]*track
	killAt     time.Time // zero until the pod must be stopped
	deadlineAt time.Time // the one that the worker is woken at; zero before there is one
	tokensDue  time.Time // zero when there are none
	want       *corev1.Pod

	shown atomic.Pointer[ReportPod] // for Report
}

// mailbox holds the latest news of a pod; older news are of no interest.
type mailbox struct {
	mu   sync.Mutex
	full bool
	pod  *corev1.Pod
	gone bool
	news []sandbox.News // of the back end
}

func (m *mailbox) put(pod *corev1.Pod, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full, m.gone = true, gone
	if pod != nil {
		m.pod = pod
	}
}

func (m *mailbox) take() (pod *corev1.Pod, gone, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.full {
		return nil, false, false
	}
	m.full = false
	return m.pod, m.gone, true
}

func newWorker(a *Agent, ref sandbox.PodRef) *worker {
	return &worker{
		a: a, ref: ref, log: a.opts.Log.With("pod", ref.Namespace+"/"+ref.Name, "uid", ref.UID),
		wake: make(chan struct{}, 1), results: make(chan func()),
		ops: map[string]*operation{}, containers: map[string]*track{},
	}
}

// run works until the pod is gone or ctx is done. Containers in the sandbox continue (NODE-3).
func (w *worker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer w.wg.Wait()
	defer cancel()
	for {
		w.readMail()
		w.readNews()
		v := w.view()
		for _, step := range decide(v) {
			if step.Verb == doFinish {
				if w.a.finish(w) {
					return
				}
				continue
			}
			w.do(ctx, step)
		}
		w.attend(ctx, v)
		w.show()
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case f := <-w.results:
			f()
		}
	}
}

func (w *worker) readMail() {
	pod, gone, ok := w.mail.take()
	if !ok {
		return
	}
	w.presence = present
	if gone {
		w.presence = missing
	}
	if pod != nil {
		w.accept(pod)
	}
}

// accept takes a version of the pod, unless it is older than the one at hand: the cache lags behind our own writes.
func (w *worker) accept(pod *corev1.Pod) {
	if w.pod == nil {
		w.pod = pod
		w.introduce()
		return
	}
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, w.pod.ResourceVersion); err == nil && order < 0 {
		return
	}
	w.pod = pod
}

// introduce prepares for a pod that is seen for the first time. The sandbox may have reported its containers before.
func (w *worker) introduce() {
	for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
		if w.containers[c.Name] == nil {
			w.containers[c.Name] = &track{}
		}
	}
	for _, c := range w.pod.Spec.InitContainers {
		w.containers[c.Name].init, w.containers[c.Name].sidecar = true, isSidecar(&c)
	}
	err := supported(w.pod)
	if err == nil {
		err = w.a.opts.Sandbox.Admit(w.pod)
	}
	w.refused(err)
	if w.refusal != nil && w.pod.DeletionTimestamp == nil && !terminal(w.pod.Status.Phase) {
		w.event(corev1.EventTypeWarning, w.refusal.Reason, w.refusal)
	}
}

// refused notes that the pod cannot be run, if that is what the error says.
func (w *worker) refused(err error) {
	var invalid *sandbox.InvalidError
	if errors.As(err, &invalid) {
		w.refusal = invalid
	}
}

// view builds the input of decide, and the status to be written.
func (w *worker) view() view {
	v := view{
		Presence: w.presence, Adopted: w.adopted, Refused: w.refusal != nil,
		Preparing: w.underWay(string(doPrepare)), Prepared: w.prepared, Removed: w.removed,
	}
	if w.pod != nil {
		v.Deleting = w.pod.DeletionTimestamp != nil
		v.Terminal = terminal(w.pod.Status.Phase) || w.expired()
		v.HasFinalizer = slices.Contains(w.pod.Finalizers, runnerpod.FinalizerSandbox)
	}
	for _, name := range w.order() {
		t := w.containers[name]
		v.Containers = append(v.Containers, containerView{
			Name: name, Init: t.init, Stage: t.observed.stage, OK: t.observed.stage == exited && succeeded(t.observed),
			Sidecar: t.sidecar, Up: t.observed.stage == running && !t.observed.starting,
			Starting: w.underWay(startKey(name)), TermSent: t.termSent, KillSent: t.killSent, Spared: w.spared(name),
		})
	}
	stopping := v.Deleting || v.Terminal || w.presence == gone || sidecarsAlone(v.Containers)
	v.KillDue = w.killDue(stopping)
	if w.pod != nil && w.adopted {
		v.StatusCurrent = w.compose(stopping)
	}
	return v
}

// order lists the containers as the pod does.
func (w *worker) order() []string {
	var names []string
	if w.pod == nil {
		for name := range w.containers {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	for _, c := range w.pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range w.pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// compose makes the pod as it should be, and reports whether its status is so already.
func (w *worker) compose(stopping bool) bool {
	o := observed{
		containers: map[string]containerObserved{}, prepared: w.prepared, removed: w.removed, stopping: stopping,
		expired: w.expired(), refusal: w.refusal, machine: w.a.machine(w.address), now: w.a.opts.Clock.Now(),
	}
	for name, t := range w.containers {
		o.containers[name] = t.observed
	}
	w.want = w.pod.DeepCopy()
	w.want.Status = podStatus(w.pod, o)
	// The API server refuses new finalizers on what is being deleted.
	if !stopping && !slices.Contains(w.want.Finalizers, runnerpod.FinalizerSandbox) {
		w.want.Finalizers = append(w.want.Finalizers, runnerpod.FinalizerSandbox)
	}
	return equality.Semantic.DeepEqual(w.want.Status, w.pod.Status)
}

// versions are a pod as the API server has it, and as it should have it.
type versions struct{ is, want *corev1.Pod }

func (v versions) same() bool {
	return equality.Semantic.DeepEqual(v.is.Status, v.want.Status) && equality.Semantic.DeepEqual(v.is.Finalizers, v.want.Finalizers)
}

// current asks the worker's goroutine, on behalf of one of its operations.
func (w *worker) current(ctx context.Context) (versions, error) {
	answer := make(chan versions, 1)
	w.post(ctx, func() { answer <- versions{w.pod, w.want} })
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		return versions{}, context.Cause(ctx)
	}
}

// killDue starts the grace period when the pod must be stopped, shortens it when the API server does, and reports whether it is over.
func (w *worker) killDue(stopping bool) bool {
	if !stopping {
		return false
	}
	now := w.a.opts.Clock.Now()
	due := now.Add(w.grace())
	if w.killAt.IsZero() || due.Before(w.killAt) {
		w.cutHooks()
		w.killAt = due
		w.wakeIn(due.Sub(now))
	}
	return !now.Before(w.killAt)
}

// grace is how long the pod's containers may take to stop: what the API server says of the pod or, when it does not show the pod, what is on
// record. A job is not killed early because the API server has lost its pod.
func (w *worker) grace() time.Duration {
	grace, pod := w.a.opts.OrphanGrace, w.pod
	seconds := []*int64{w.terms.GracePeriodSeconds}
	if pod != nil {
		seconds = append(seconds, pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds)
	}
	for _, s := range seconds {
		if s != nil {
			grace = time.Duration(*s) * time.Second
		}
	}
	return max(grace, minGrace)
}

// expired reports whether the pod has been active for longer than it may, and makes the worker look again when that is so.
func (w *worker) expired() bool {
	if w.pod == nil || w.pod.Spec.ActiveDeadlineSeconds == nil || w.pod.Status.StartTime == nil {
		return false
	}
	due := w.pod.Status.StartTime.Add(time.Duration(*w.pod.Spec.ActiveDeadlineSeconds) * time.Second)
	left := due.Sub(w.a.opts.Clock.Now())
	if left > 0 && !due.Equal(w.deadlineAt) { // it may be shortened
		w.deadlineAt = due
		w.wakeIn(left)
	}
	return left <= 0
}

func (w *worker) volumes() volumes {
	root := filepath.Join(w.a.volumesDir(), filepath.Base(w.ref.UID))
	v := volumes{root: root, tokens: w.a.cluster, now: w.a.opts.Clock.Now}
	if w.pod != nil {
		v.owner = ownershipOf(w.pod)
	}
	v.refs = resolver{refs: w.a.cluster, machine: w.a.machine(w.address), volume: func(name string) string { return v.dir(name) }}
	return v
}
