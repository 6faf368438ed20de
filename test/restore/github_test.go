package restore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// forge is a GitHub in memory: it has runners, and jobs that run on them.
type forge struct {
	mu      sync.Mutex
	next    int64
	runners map[string]*runner
	minted  []string
	down    error // what every request answers
}

type runner struct {
	id     int64
	online bool
	job    int64
}

func newForge() *forge { return &forge{runners: map[string]*runner{}} }

func (f *forge) locked() (func(), error) {
	f.mu.Lock()
	return f.mu.Unlock, f.down
}

func (f *forge) Mint(_ context.Context, _ int64, req fleet.MintRequest) (fleet.JIT, error) {
	unlock, err := f.locked()
	defer unlock()
	if err != nil {
		return fleet.JIT{}, err
	}
	f.next++
	f.runners[req.Name] = &runner{id: f.next}
	f.minted = append(f.minted, req.Name)
	return fleet.JIT{RunnerID: f.next, Name: req.Name, Encoded: fleet.NewSecret("jit")}, nil
}

func (f *forge) RemoveRunner(_ context.Context, _ int64, _ fleet.Scope, id int64) error {
	unlock, err := f.locked()
	defer unlock()
	for name, r := range f.runners {
		if r.id == id && err == nil {
			if r.job != 0 {
				return fleet.ErrRunnerBusy
			}
			delete(f.runners, name)
			return nil
		}
	}
	if err != nil {
		return err
	}
	return fleet.ErrNotFound
}

func (f *forge) FindRunner(_ context.Context, _ int64, _ fleet.Scope, name string) (fleet.Registration, error) {
	unlock, err := f.locked()
	defer unlock()
	r, ok := f.runners[name]
	switch {
	case err != nil:
		return fleet.Registration{}, err
	case !ok:
		return fleet.Registration{}, fleet.ErrNotFound
	default:
		return r.registration(name), nil
	}
}

func (r *runner) registration(name string) fleet.Registration {
	return fleet.Registration{ID: r.id, Name: name, Online: r.online, Busy: r.job != 0}
}

func (f *forge) ControlRead(context.Context, int64, fleet.Scope) error {
	unlock, err := f.locked()
	defer unlock()
	return err
}

func (f *forge) MintRate(int64) (fleet.RateState, bool) { return fleet.RateState{}, false }
func (f *forge) ReadRate(int64) (fleet.RateState, bool) { return fleet.RateState{}, false }

func (f *forge) Owners(context.Context) ([]fleet.Owner, error) {
	unlock, err := f.locked()
	defer unlock()
	return []fleet.Owner{{ID: acme.ID, Login: acme.Login, InstallationID: acme.InstallationID}}, err
}

func (f *forge) Repositories(context.Context, int64, int) ([]fleet.Repository, bool, error) {
	return []fleet.Repository{{Name: "acme/app"}}, true, nil
}

func (f *forge) Roster(context.Context, int64, fleet.Scope) (fleet.Roster, error) {
	unlock, err := f.locked()
	defer unlock()
	if err != nil {
		return fleet.Roster{}, err
	}
	out := fleet.Roster{Complete: true}
	for name, r := range f.runners {
		out.Runners = append(out.Runners, r.registration(name))
	}
	return out, nil
}

func (f *forge) Runs(context.Context, int64, string, string, int) ([]github.Run, int, error) {
	return []github.Run{{ID: 1, Status: github.RunInProgress}}, 0, nil
}

func (f *forge) RunJobs(context.Context, int64, string, int64, int) ([]github.WorkflowJob, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var jobs []github.WorkflowJob
	for name, r := range f.runners {
		if r.job != 0 {
			jobs = append(jobs, github.WorkflowJob{
				ID: r.job, RunID: 1, Name: "build", Labels: []string{"linux"}, Status: github.JobInProgress, RunnerName: name,
				RunnerID: r.id, CreatedAt: time.Now(), StartedAt: time.Now(),
			})
		}
	}
	return jobs, 0, nil
}

// online has the runner connect; start gives it a job, too.
func (f *forge) online(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runners[name].online = true
}

func (f *forge) start(name string, job int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runners[name].online, f.runners[name].job = true, job
}

func (f *forge) mints() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.minted)
}

func (f *forge) set(change func(*forge)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// cluster is the API server in memory: pods, one pool, and the copy of the epoch.
type cluster struct {
	mu   sync.Mutex
	pods map[string]dispatch.Pod
}

var pool = dispatch.Pool{
	Namespace: "runners", Name: "linux", Labels: []string{"linux"}, Platform: fleet.Linux,
	Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1,
}

func (c *cluster) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) { return pool, ref == pool.Ref() }
func (c *cluster) Pools() []dispatch.Pool                          { return []dispatch.Pool{pool} }

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

func (c *cluster) ListPods(context.Context) ([]dispatch.Pod, error) { return c.Pods(), nil }

func (c *cluster) StampOwner(_ context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	c.change(pod.UID, func(p *dispatch.Pod) { p.OwnerLabel, p.OwnerID = owner.Login, owner.ID })
	return nil
}

func (c *cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, ok := c.Pod(uid)
	return !ok, nil
}

func (c *cluster) change(uid string, change func(*dispatch.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[uid]
	change(&p)
	c.pods[uid] = p
}

func (c *cluster) add(t *testing.T, n int) dispatch.Pod {
	t.Helper()
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	pod := dispatch.Pod{Namespace: "runners", Name: fmt.Sprintf("linux-%d", n), UID: uid, Pool: pool.Ref()}
	c.change(uid, func(p *dispatch.Pod) { *p = pod })
	require.NotEmpty(t, pod.UID)
	return pod
}
