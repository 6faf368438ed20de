package recovery_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// cluster is Kubernetes in memory.
type cluster struct {
	mu       sync.Mutex
	pools    map[dispatch.PoolRef]dispatch.Pool
	pods     map[string]recovery.Pod
	listErr  error
	stampErr error
	onList   func()
	hidden   map[string]bool // pods that a list does not show
}

var errAPIServer = errors.New("the API server does not answer")

func newCluster() *cluster {
	return &cluster{pools: map[dispatch.PoolRef]dispatch.Pool{}, pods: map[string]recovery.Pod{}, hidden: map[string]bool{}}
}

func (c *cluster) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *cluster) putPool(p dispatch.Pool)  { c.locked(func() { c.pools[p.Ref()] = p }) }
func (c *cluster) put(p recovery.Pod)       { c.locked(func() { c.pods[p.UID] = p }) }
func (c *cluster) drop(uid string)          { c.locked(func() { delete(c.pods, uid) }) }
func (c *cluster) hide(uid string, is bool) { c.locked(func() { c.hidden[uid] = is }) }
func (c *cluster) get(uid string) (p recovery.Pod) {
	c.locked(func() { p = c.pods[uid] })
	return p
}

func (c *cluster) change(uid string, do func(*recovery.Pod)) {
	c.locked(func() {
		p := c.pods[uid]
		do(&p)
		p.ResourceVersion += "1"
		c.pods[uid] = p
	})
}

func (c *cluster) RunnerPods(context.Context) (pods []recovery.Pod, err error) {
	c.locked(func() {
		for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
			if !c.hidden[uid] {
				pods = append(pods, c.pods[uid])
			}
		}
		err = c.listErr
	})
	if c.onList != nil {
		c.onList()
	}
	return pods, err
}

func (c *cluster) RunnerPod(_ context.Context, _, _, uid string) (p recovery.Pod, ok bool, err error) {
	c.locked(func() { p, ok = c.pods[uid]; err = c.listErr })
	return p, ok, err
}

func (c *cluster) TakeOffOwner(_ context.Context, pod recovery.Pod) (err error) {
	c.locked(func() {
		now := c.pods[pod.UID]
		if now.ResourceVersion != pod.ResourceVersion {
			err = errAPIServer
			return
		}
		now.OwnerLabel, now.OwnerID = "", 0
		c.pods[pod.UID] = now
	})
	return err
}

func (c *cluster) StampOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) (err error) {
	c.locked(func() {
		now, ok := c.pods[pod.UID]
		if err = c.stampErr; err != nil || !ok {
			return
		}
		now.OwnerLabel, now.OwnerID = owner.Login, owner.ID
		c.pods[pod.UID] = now
	})
	return err
}

func (c *cluster) NoteOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) (err error) {
	c.locked(func() {
		now, ok := c.pods[pod.UID]
		if err = c.stampErr; err != nil || !ok {
			return
		}
		now.OwnerID = owner.ID
		c.pods[pod.UID] = now
	})
	return err
}

func (c *cluster) Pool(ref dispatch.PoolRef) (p dispatch.Pool, ok bool) {
	c.locked(func() { p, ok = c.pools[ref] })
	return p, ok
}

func (c *cluster) Pools() (pools []dispatch.Pool) {
	c.locked(func() { pools = slices.Collect(maps.Values(c.pools)) })
	return pools
}

func (c *cluster) Pod(uid string) (dispatch.Pod, bool) {
	p := c.get(uid)
	return p.Pod, p.UID != ""
}

func (c *cluster) Pods() (pods []dispatch.Pod) {
	c.locked(func() {
		for _, p := range c.pods {
			pods = append(pods, p.Pod)
		}
	})
	return pods
}

func (c *cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, there := c.Pod(uid)
	return !there, nil
}
