package dispatch_test

import (
	"context"
	"errors"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// forge is a GitHub in memory: it removes what is idle and refuses what is busy.
type forge struct {
	mu      sync.Mutex
	nextID  int64
	runners map[string]*runner
	mints   int
	asked   fleet.MintRequest // the last
	removed []string

	beforeMint func(name string)
	onMint     func(name string) error // an error after the effect, if any, that effect had
	refuse     error                   // a definite refusal of every mint
	unread     error                   // what every read answers
	removeErr  error
	onFind     func(ctx context.Context, name string)
	requests   int // everything but mints
	lists      int // readings of a whole list
	owners     []fleet.Owner
	torn       bool             // lists are not read whole
	rate       *fleet.RateState // what is left of the rate limit for mints
}

type runner struct {
	id   int64
	busy bool
}

func newForge() *forge { return &forge{runners: map[string]*runner{}} }

func (f *forge) Mint(_ context.Context, _ int64, req fleet.MintRequest) (fleet.JIT, error) {
	f.mu.Lock()
	before := f.beforeMint
	f.mu.Unlock()
	if before != nil {
		before(req.Name)
	}
	f.mu.Lock()
	f.mints++
	f.asked = req
	if f.rate != nil {
		f.rate.Remaining--
	}
	if f.refuse != nil {
		defer f.mu.Unlock()
		return fleet.JIT{}, f.refuse
	}
	if _, taken := f.runners[req.Name]; taken {
		defer f.mu.Unlock()
		return fleet.JIT{}, fleet.ErrNameTaken
	}
	f.nextID++
	id := f.nextID
	f.runners[req.Name] = &runner{id: id}
	onMint := f.onMint
	f.mu.Unlock()
	if onMint != nil {
		if err := onMint(req.Name); err != nil {
			return fleet.JIT{}, err
		}
	}
	return fleet.JIT{RunnerID: id, Name: req.Name, Encoded: fleet.NewSecret("jit-of-" + req.Name)}, nil
}

func (f *forge) RemoveRunner(_ context.Context, _ int64, _ fleet.Scope, id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.removeErr != nil {
		return f.removeErr
	}
	for name, r := range f.runners {
		if r.id == id {
			if r.busy {
				return fleet.ErrRunnerBusy
			}
			delete(f.runners, name)
			f.removed = append(f.removed, name)
			return nil
		}
	}
	return fleet.ErrNotFound
}

func (f *forge) FindRunner(ctx context.Context, _ int64, _ fleet.Scope, name string) (fleet.Registration, error) {
	f.mu.Lock()
	onFind := f.onFind
	f.mu.Unlock()
	if onFind != nil {
		onFind(ctx, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.unread != nil {
		return fleet.Registration{}, f.unread
	}
	r, ok := f.runners[name]
	if !ok {
		return fleet.Registration{}, fleet.ErrNotFound
	}
	return fleet.Registration{ID: r.id, Name: name, Busy: r.busy, Online: r.busy}, nil
}

func (f *forge) ControlRead(context.Context, int64, fleet.Scope) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unread
}

func (f *forge) MintRate(installationID int64) (fleet.RateState, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rate == nil || installationID != acme.InstallationID {
		return fleet.RateState{}, false
	}
	return *f.rate, true
}

func (f *forge) start(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runners[name].busy = true
}

func (f *forge) set(change func(*forge)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *forge) lastAsked() fleet.MintRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *forge) alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.runners {
		names = append(names, name)
	}
	return names
}

func (f *forge) minted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mints
}

// cluster is what the watch shows, in memory.
type cluster struct {
	mu       sync.Mutex
	pools    map[dispatch.PoolRef]dispatch.Pool
	pods     map[string]dispatch.Pod
	stamps   []string
	stampErr error
	missed   int
	onStamp  func()
}

var errAPIServer = errors.New("the API server does not answer")

func newCluster() *cluster {
	return &cluster{pools: map[dispatch.PoolRef]dispatch.Pool{}, pods: map[string]dispatch.Pod{}}
}

func (c *cluster) putPool(p dispatch.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[p.Ref()] = p
}

func (c *cluster) dropPool(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, dispatch.PoolRef{Namespace: "runners", Name: name})
}

// misses counts the questions about pools that are not there.
func (c *cluster) misses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

func (c *cluster) putPod(p dispatch.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[p.UID] = p
}

func (c *cluster) repair() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stampErr = nil
}

func (c *cluster) dropPod(p dispatch.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, p.UID)
}

func (c *cluster) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pools[ref]
	if !ok {
		c.missed++
	}
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
	defer c.mu.Unlock()
	c.stamps = append(c.stamps, pod.UID+"="+owner.Login)
	if c.onStamp != nil {
		c.onStamp()
	}
	if c.stampErr != nil {
		return c.stampErr
	}
	p := c.pods[pod.UID]
	p.OwnerLabel, p.OwnerID = owner.Login, owner.ID
	c.pods[pod.UID] = p
	return nil
}

func (c *cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, ok := c.Pod(uid)
	return !ok, nil
}

func (c *cluster) stamped() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.stamps...)
}
