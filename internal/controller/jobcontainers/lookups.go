package jobcontainers

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
)

const (
	// tenantLookups is how many requests of a tenant are looked up at once. Others of it wait.
	tenantLookups = 8
	// maxLookups bounds those of all tenants, with those that wait.
	maxLookups = 4096
	// fullDelay is until a request is tried again for which there was no room.
	fullDelay = time.Second
)

var (
	// errLooking: the pod is queued again when its images are known.
	errLooking = errors.New("its images are being looked up")
	errFull    = errors.New("too many requests are being looked up")
)

// lookups resolves images outside of the controller's workers: a registry that hangs occupies none, and delays no other tenant's pods. A pod has
// at most one lookup. It is kept until forget, so that each request is resolved once. It is a Runnable of the manager, and safe for concurrent use.
type lookups struct {
	images  Images
	timeout time.Duration // of one request, once it is its turn

	ctx     context.Context //nolint:containedctx // of all lookups: it ends with Start
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	queue   workqueue.TypedInterface[reconcile.Request]
	of      map[types.NamespacedName]*lookup
	tenants map[string]*turns
	stopped bool
}

// lookup is of one request.
type lookup struct {
	of     question
	cancel context.CancelFunc
	answer *lookedUp // nil: not yet
}

// question is what is looked up, for which request. The policy is that of the pool when it was asked.
type question struct {
	uid     types.UID
	id      string
	tenant  string
	queries []image.Query
}

type lookedUp struct {
	found    []image.Resolved
	failures []error
}

// turns are those of a tenant.
type turns struct {
	free  chan struct{}
	users int
}

func newLookups(of Images, timeout time.Duration) *lookups {
	l := &lookups{images: of, timeout: timeout, of: map[types.NamespacedName]*lookup{}, tenants: map[string]*turns{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// source has the pods queued whose images are known. The controller starts it before its workers.
func (l *lookups) source(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = queue
	return nil
}

// Start stops all lookups when ctx ends, and waits for them.
func (l *lookups) Start(ctx context.Context) error {
	<-ctx.Done()
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.stop()
	l.running.Wait()
	return nil
}

// get returns what was asked, or errLooking or errFull. It begins to look if the pod has no lookup of that question, and cancels another one.
// The lookup ends within limit.
func (l *lookups) get(pod types.NamespacedName, q question, limit time.Duration) (*lookedUp, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.of[pod]; ok {
		if !reflect.DeepEqual(known.of, q) {
			l.drop(pod)
		} else if known.answer == nil {
			return nil, errLooking
		} else {
			return known.answer, nil
		}
	}
	if l.stopped || len(l.of) >= maxLookups {
		return nil, errFull
	}
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	begun := &lookup{of: q, cancel: cancel}
	l.of[pod] = begun
	turn := l.turnsOf(q.tenant)
	l.running.Go(func() {
		defer cancel()
		answer := l.look(ctx, q.queries, turn.free)
		l.mu.Lock()
		defer l.mu.Unlock()
		if turn.users--; turn.users == 0 {
			delete(l.tenants, q.tenant)
		}
		if l.of[pod] == begun {
			begun.answer = answer
			l.queue.Add(reconcile.Request{NamespacedName: pod})
		}
	})
	return nil, errLooking
}

func (l *lookups) turnsOf(tenant string) *turns {
	t, ok := l.tenants[tenant]
	if !ok {
		t = &turns{free: make(chan struct{}, tenantLookups)}
		l.tenants[tenant] = t
	}
	t.users++
	return t
}

// forget ends a pod's lookup: it is answered, or gone.
func (l *lookups) forget(pod types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(pod)
}

func (l *lookups) drop(pod types.NamespacedName) {
	if known, ok := l.of[pod]; ok {
		known.cancel()
		delete(l.of, pod)
	}
}

// look waits for a turn, and looks all images up at the same time.
func (l *lookups) look(ctx context.Context, queries []image.Query, turn chan struct{}) *lookedUp {
	answer := &lookedUp{found: make([]image.Resolved, len(queries)), failures: make([]error, len(queries))}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		for i := range answer.failures {
			answer.failures[i] = ctx.Err()
		}
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var all sync.WaitGroup
	for i, query := range queries {
		all.Go(func() { answer.found[i], answer.failures[i] = l.images.Resolve(ctx, query) })
	}
	all.Wait() // bounded: each ends with ctx
	return answer
}
