package incidents

import (
	"context"
	"errors"
	"sync"

	clusterview "github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

var errAPIServer = errors.New("the API server does not answer")

// cluster is what the server sees of Kubernetes, in memory: scenarios that Kubernetes has a part in use a real one. A pod's
// token is its UID.
type cluster struct {
	mu      sync.Mutex
	pools   map[dispatch.PoolRef]dispatch.Pool
	pods    map[string]dispatch.Pod
	told    []*dispatch.Dispatcher
	onStamp func(pod dispatch.Pod) error // before a label is written; an error keeps it from being written
	stamps  map[string]int               // attempts, by pod UID
}

func newCluster() *cluster {
	return &cluster{pools: map[dispatch.PoolRef]dispatch.Pool{}, pods: map[string]dispatch.Pod{}, stamps: map[string]int{}}
}

// tell adds somebody who watches.
func (c *cluster) tell(d *dispatch.Dispatcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, d)
}

func (c *cluster) watchers() []*dispatch.Dispatcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*dispatch.Dispatcher(nil), c.told...)
}

func (c *cluster) putPool(p dispatch.Pool) {
	c.mu.Lock()
	c.pools[p.Ref()] = p
	c.mu.Unlock()
	for _, d := range c.watchers() {
		d.PoolsChanged()
	}
}

// change makes or changes a pod, and tells of it.
func (c *cluster) change(uid string, change func(*dispatch.Pod)) {
	c.mu.Lock()
	p := c.pods[uid]
	p.UID = uid
	change(&p)
	c.pods[uid] = p
	c.mu.Unlock()
	for _, d := range c.watchers() {
		d.PodChanged(p)
	}
}

// drop takes a pod away.
func (c *cluster) drop(uid string) {
	c.mu.Lock()
	p, known := c.pods[uid]
	delete(c.pods, uid)
	c.mu.Unlock()
	if !known {
		return
	}
	for _, d := range c.watchers() {
		d.PodGone(p)
	}
}

func (c *cluster) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pools[ref]
	return p, ok
}

func (c *cluster) Pools() []dispatch.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pools []dispatch.Pool
	for _, p := range c.pools {
		pools = append(pools, p)
	}
	return pools
}

func (c *cluster) Pod(uid string) (dispatch.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pods[uid]
	return p, ok
}

func (c *cluster) Pods() []dispatch.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []dispatch.Pod
	for _, p := range c.pods {
		pods = append(pods, p)
	}
	return pods
}

func (c *cluster) StampOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	c.mu.Lock()
	c.stamps[pod.UID]++
	onStamp := c.onStamp
	c.mu.Unlock()
	if onStamp != nil {
		if err := onStamp(pod); err != nil {
			return err
		}
	}
	if _, there := c.Pod(pod.UID); there {
		c.change(pod.UID, func(p *dispatch.Pod) { p.OwnerLabel, p.OwnerID = owner.Login, owner.ID })
	}
	return nil
}

func (c *cluster) attempts(uid string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stamps[uid]
}

func (c *cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, there := c.Pod(uid)
	return !there, nil
}

// Review takes a pod's UID for its token.
func (c *cluster) Review(_ context.Context, token, _ string) (clusterview.Identity, error) {
	return clusterview.Identity{PodUID: token}, nil
}

func (c *cluster) Runner(id clusterview.Identity) (dispatch.Pod, bool) { return c.Pod(id.PodUID) }
