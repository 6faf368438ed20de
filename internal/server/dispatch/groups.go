package dispatch

import (
	"strconv"
	"sync"
	"time"
)

// groupAgain is how long after a pool's runner group was not found at an account it is looked for again, as long as the client
// remembers that.
const groupAgain = time.Minute

// absentGroups are the runner groups that do not exist at accounts: a pool serves many organizations, and its group is made in each of
// them. The jobs of such an account wait in that pool alone; whatever else the account runs goes on.
type absentGroups struct {
	now func() time.Time

	mu    sync.Mutex
	until map[PoolRef]map[absentGroup]time.Time
}

type absentGroup struct {
	group   string // a pool whose group was changed is another matter
	account int64
}

// AccountOfPool is an account as far as one pool goes.
type AccountOfPool struct {
	Pool    PoolRef
	Account int64
}

func newAbsentGroups(now func() time.Time) *absentGroups {
	return &absentGroups{now: now, until: map[PoolRef]map[absentGroup]time.Time{}}
}

// Group is the pool's runner group, for people: its name, or its id.
func (p Pool) Group() string {
	if p.RunnerGroup != "" {
		return p.RunnerGroup
	}
	return strconv.FormatInt(p.RunnerGroupID, 10)
}

func (g *absentGroups) note(pool Pool, account int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until[pool.Ref()] == nil {
		g.until[pool.Ref()] = map[absentGroup]time.Time{}
	}
	g.until[pool.Ref()][absentGroup{pool.Group(), account}] = g.now().Add(groupAgain)
}

// of lists the accounts that lack the pool's group, and how long until it is looked for again at one of them; 0: at none.
func (g *absentGroups) of(pool Pool) (accounts []int64, wait time.Duration) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	here := g.until[pool.Ref()]
	for at, until := range here {
		left := until.Sub(now)
		switch {
		case left <= 0:
			delete(here, at)
		case at.group == pool.Group():
			accounts = append(accounts, at.account)
			if wait == 0 || left < wait {
				wait = left
			}
		}
	}
	return accounts, wait
}

// all is whatever is lacking in these pools.
func (g *absentGroups) all(pools []Pool) map[AccountOfPool]bool {
	lacking := map[AccountOfPool]bool{}
	for _, pool := range pools {
		accounts, _ := g.of(pool)
		for _, account := range accounts {
			lacking[AccountOfPool{pool.Ref(), account}] = true
		}
	}
	return lacking
}

// LacksGroup says which runner group the pool registers in and the account was found to lack, and when it is looked for again; ok is
// false when this replica knows of no such thing.
func (d *Dispatcher) LacksGroup(ref PoolRef, account int64) (group string, until time.Time, ok bool) {
	pool, exists := d.opt.Cluster.Pool(ref)
	if !exists {
		return "", time.Time{}, false
	}
	d.absent.mu.Lock()
	defer d.absent.mu.Unlock()
	until = d.absent.until[ref][absentGroup{pool.Group(), account}]
	return pool.Group(), until, until.After(d.absent.now())
}

// excluded lists the accounts for which no runner of the pool can be registered now, and how long until that may be otherwise; 0: all can.
func (d *Dispatcher) excluded(pool Pool) ([]int64, time.Duration) {
	accounts, wait := d.mintSlots.excluded()
	lacking, again := d.absent.of(pool)
	if wait == 0 || again > 0 && again < wait {
		wait = again
	}
	return append(accounts, lacking...), wait
}
