package dispatchtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// ErrAPIServer is an error for OnStamp.
var ErrAPIServer = errors.New("the API server does not answer")

// Watcher is notified of what changes in a Cluster: a dispatch.Dispatcher.
type Watcher interface {
	PoolsChanged()
	PodChanged(pod dispatch.Pod)
	PodGone(pod dispatch.Pod)
}

// Cluster has pools and pods. It is safe for concurrent use.
type Cluster struct {
	mu       sync.Mutex
	pools    map[dispatch.PoolRef]dispatch.Pool
	pods     map[string]dispatch.Pod
	watchers []Watcher
	stamped  []string
	attempts map[string]int
	missed   int
	onStamp  func(dispatch.Pod) error
}

// NewCluster returns an empty cluster.
func NewCluster() *Cluster {
	return &Cluster{pools: map[dispatch.PoolRef]dispatch.Pool{}, pods: map[string]dispatch.Pod{}, attempts: map[string]int{}}
}

// Watch notifies w of every later change.
func (c *Cluster) Watch(w Watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, w)
}

func (c *Cluster) notify(of func(Watcher)) {
	c.mu.Lock()
	watchers := slices.Clone(c.watchers)
	c.mu.Unlock()
	for _, w := range watchers {
		of(w)
	}
}

// PutPool makes or replaces a pool.
func (c *Cluster) PutPool(p dispatch.Pool) {
	c.mu.Lock()
	c.pools[p.Ref()] = p
	c.mu.Unlock()
	c.notify(func(w Watcher) { w.PoolsChanged() })
}

// ReplacePools has these pools alone.
func (c *Cluster) ReplacePools(pools []dispatch.Pool) {
	c.mu.Lock()
	c.pools = map[dispatch.PoolRef]dispatch.Pool{}
	for _, p := range pools {
		c.pools[p.Ref()] = p
	}
	c.mu.Unlock()
	c.notify(func(w Watcher) { w.PoolsChanged() })
}

// DropPool deletes a pool.
func (c *Cluster) DropPool(ref dispatch.PoolRef) {
	c.mu.Lock()
	delete(c.pools, ref)
	c.mu.Unlock()
	c.notify(func(w Watcher) { w.PoolsChanged() })
}

// PutPod makes or replaces a pod.
func (c *Cluster) PutPod(p dispatch.Pod) { c.ChangePod(p.UID, func(q *dispatch.Pod) { *q = p }) }

// ChangePod changes the pod with that UID, or makes it.
func (c *Cluster) ChangePod(uid string, change func(*dispatch.Pod)) {
	c.mu.Lock()
	p := c.pods[uid]
	p.UID = uid
	change(&p)
	c.pods[uid] = p
	c.mu.Unlock()
	c.notify(func(w Watcher) { w.PodChanged(p) })
}

// DropPod deletes a pod.
func (c *Cluster) DropPod(uid string) {
	c.mu.Lock()
	p, known := c.pods[uid]
	delete(c.pods, uid)
	c.mu.Unlock()
	if known {
		c.notify(func(w Watcher) { w.PodGone(p) })
	}
}

// Pool returns a pool.
func (c *Cluster) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pools[ref]
	if !ok {
		c.missed++
	}
	return p, ok
}

// Misses counts the questions about pools that do not exist.
func (c *Cluster) Misses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// Pools lists all pools.
func (c *Cluster) Pools() []dispatch.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pools))
}

// Pod returns a pod.
func (c *Cluster) Pod(uid string) (dispatch.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pods[uid]
	return p, ok
}

// Pods lists all pods.
func (c *Cluster) Pods() []dispatch.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods))
}

// ListPods lists all pods, as an uncached read does.
func (c *Cluster) ListPods(context.Context) ([]dispatch.Pod, error) { return c.Pods(), nil }

// OnStamp has do called before an owner is written onto a pod; an error is the answer, and nothing is written. Nil: nothing is called.
func (c *Cluster) OnStamp(do func(pod dispatch.Pod) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onStamp = do
}

// StampOwner writes the owner onto the pod.
func (c *Cluster) StampOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	c.mu.Lock()
	c.attempts[pod.UID]++
	c.stamped = append(c.stamped, pod.UID+"="+owner.Login)
	onStamp := c.onStamp
	c.mu.Unlock()
	if onStamp != nil {
		if err := onStamp(pod); err != nil {
			return err
		}
	}
	if _, exists := c.Pod(pod.UID); exists {
		c.ChangePod(pod.UID, func(p *dispatch.Pod) { p.OwnerLabel, p.OwnerID = owner.Login, owner.ID })
	}
	return nil
}

// NoteOwner writes the owner's id onto the pod, and no label.
func (c *Cluster) NoteOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	if _, exists := c.Pod(pod.UID); exists {
		c.ChangePod(pod.UID, func(p *dispatch.Pod) { p.OwnerID = owner.ID })
	}
	return nil
}

// Stamped lists the attempts to write an owner onto a pod, each as UID=login.
func (c *Cluster) Stamped() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stamped)
}

// StampAttempts counts those of one pod.
func (c *Cluster) StampAttempts(uid string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts[uid]
}

// Gone reports whether there is no such pod.
func (c *Cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, exists := c.Pod(uid)
	return !exists, nil
}
