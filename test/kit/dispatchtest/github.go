package dispatchtest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// Runner is a registration, and the job that runs on it.
type Runner struct {
	ID           int64
	Online, Busy bool
	Job          int64 // as RunJobs lists it; zero: RunJobs does not list it
}

// GitHub has the runners of one owner. It removes an idle runner and refuses to remove a busy one. The zero value is not ready: use
// NewGitHub. It is safe for concurrent use; fields are changed through Set.
type GitHub struct {
	mu sync.Mutex

	Owner  fleet.Owner        // the account of the one installation
	Shared []fleet.Repository // the repositories that the installation may read
	// Runners are the registrations, by name; NextID is the id that the last one was given.
	Runners map[string]*Runner
	NextID  int64

	// BeforeMint is called before a registration is made, and OnMint after: its error is the answer, although the runner exists.
	BeforeMint func(name string)
	OnMint     func(name string) error
	OnFind     func(ctx context.Context, name string)

	Down      error                         // the answer to every request
	Access    map[string]fleet.GroupAccess  // of repositories that not every group serves
	RefuseOf  func(fleet.MintRequest) error // the error of a registration, which is then not made; nil: it is made
	NoGroups  bool                          // there is no runner group but Default
	Refuse    error                         // the error of every registration, none of which is made
	Unread    error                         // the answer to every read
	RemoveErr error                         // the answer to every removal
	Torn      bool                          // lists are incomplete

	// Rates are the states of the rate limit for registrations, by installation. An installation without one has not been
	// answered yet.
	Rates map[int64]*fleet.RateState

	asked    fleet.MintRequest
	minted   []string
	removed  []string
	requests int
	lists    int
}

// NewGitHub returns a GitHub without runners.
func NewGitHub(owner fleet.Owner) *GitHub {
	return &GitHub{Owner: owner, Runners: map[string]*Runner{}, Rates: map[int64]*fleet.RateState{}}
}

// Set changes fields while others use them.
func (g *GitHub) Set(change func(*GitHub)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

// Mint registers a runner.
func (g *GitHub) Mint(_ context.Context, installationID int64, req fleet.MintRequest) (fleet.JIT, error) {
	g.mu.Lock()
	before := g.BeforeMint
	g.mu.Unlock()
	if before != nil {
		before(req.Name)
	}
	id, onMint, err := g.register(installationID, req)
	if err == nil && onMint != nil {
		err = onMint(req.Name)
	}
	if err != nil {
		return fleet.JIT{}, err
	}
	return fleet.JIT{RunnerID: id, Name: req.Name, Encoded: fleet.NewSecret("jit-of-" + req.Name)}, nil
}

func (g *GitHub) register(installationID int64, req fleet.MintRequest) (id int64, onMint func(string) error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = req
	g.minted = append(g.minted, req.Name)
	if rate := g.Rates[installationID]; rate != nil {
		rate.Remaining--
	}
	if g.Down != nil {
		return 0, nil, g.Down
	}
	if g.Refuse != nil {
		return 0, nil, g.Refuse
	}
	if g.RefuseOf != nil {
		if err := g.RefuseOf(req); err != nil {
			return 0, nil, err
		}
	}
	if g.NoGroups && (req.RunnerGroup != "" || req.RunnerGroupID > 1) {
		return 0, nil, fleet.ErrNoRunnerGroup
	}
	if _, taken := g.Runners[req.Name]; taken {
		return 0, nil, fleet.ErrNameTaken
	}
	g.NextID++
	g.Runners[req.Name] = &Runner{ID: g.NextID}
	return g.NextID, g.OnMint, nil
}

// RemoveRunner removes an idle runner.
func (g *GitHub) RemoveRunner(_ context.Context, _ int64, _ fleet.Scope, id int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	if g.Down != nil {
		return g.Down
	}
	if g.RemoveErr != nil {
		return g.RemoveErr
	}
	for name, r := range g.Runners {
		if r.ID != id {
			continue
		}
		if r.Busy {
			return fleet.ErrRunnerBusy
		}
		delete(g.Runners, name)
		g.removed = append(g.removed, name)
		return nil
	}
	return fleet.ErrNotFound
}

// FindRunner reads one runner by its name.
func (g *GitHub) FindRunner(ctx context.Context, _ int64, _ fleet.Scope, name string) (fleet.Registration, error) {
	g.mu.Lock()
	onFind := g.OnFind
	g.mu.Unlock()
	if onFind != nil {
		onFind(ctx, name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	if err := g.unreadable(); err != nil {
		return fleet.Registration{}, err
	}
	r, ok := g.Runners[name]
	if !ok {
		return fleet.Registration{}, fleet.ErrNotFound
	}
	return r.registration(name), nil
}

func (r *Runner) registration(name string) fleet.Registration {
	return fleet.Registration{ID: r.ID, Name: name, Busy: r.Busy, Online: r.Online}
}

// unreadable is the answer to a read if it is an error. The lock is held.
func (g *GitHub) unreadable() error {
	if g.Down != nil {
		return g.Down
	}
	return g.Unread
}

// ControlRead only reads whether reads succeed.
func (g *GitHub) ControlRead(context.Context, int64, fleet.Scope) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unreadable()
}

// GroupAccess is Access of the repository; a group that is not there serves all.
func (g *GitHub) GroupAccess(_ context.Context, _ int64, _, name string, id int64, repository string) (fleet.GroupAccess, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.unreadable(); err != nil {
		return fleet.GroupAccess{}, err
	}
	access, ok := g.Access[repository]
	if !ok {
		access = fleet.GroupAccess{Visibility: "all", Serves: true}
	}
	if access.Name, access.ID = name, id; name == "" {
		access.Name = strconv.FormatInt(id, 10)
	}
	return access, nil
}

// MintRate is what is left for registrations.
func (g *GitHub) MintRate(installationID int64) (fleet.RateState, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rate := g.Rates[installationID]
	if rate == nil {
		return fleet.RateState{}, false
	}
	return *rate, true
}

// ReadRate is not known.
func (g *GitHub) ReadRate(int64) (fleet.RateState, bool) { return fleet.RateState{}, false }

// Owners lists the accounts of the App's installations.
func (g *GitHub) Owners(context.Context) ([]fleet.Owner, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return []fleet.Owner{g.Owner}, g.Down
}

// Repositories lists what the installation may read.
func (g *GitHub) Repositories(context.Context, int64, int) ([]fleet.Repository, bool, error) {
	return g.Shared, true, nil
}

// Roster lists every runner.
func (g *GitHub) Roster(context.Context, int64, fleet.Scope) (fleet.Roster, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lists++
	if err := g.unreadable(); err != nil {
		return fleet.Roster{}, err
	}
	out := fleet.Roster{Complete: !g.Torn}
	for name, r := range g.Runners {
		out.Runners = append(out.Runners, r.registration(name))
	}
	return out, nil
}

// Runs lists one run, to which all jobs belong.
func (g *GitHub) Runs(context.Context, int64, string, string, int) ([]github.Run, int, error) {
	return []github.Run{{ID: 1, Status: github.RunInProgress}}, 0, nil
}

// RunJobs lists the jobs that run, with the label "linux".
func (g *GitHub) RunJobs(context.Context, int64, string, int64, int) ([]github.WorkflowJob, int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var jobs []github.WorkflowJob
	for name, r := range g.Runners {
		if r.Job == 0 {
			continue
		}
		jobs = append(jobs, github.WorkflowJob{
			ID: r.Job, RunID: 1, Name: "build", Labels: []string{"linux"}, Status: github.JobInProgress, RunnerName: name, RunnerID: r.ID,
			CreatedAt: time.Now(), StartedAt: time.Now(),
		})
	}
	return jobs, 0, nil
}

// Connect has the runner wait for a job.
func (g *GitHub) Connect(name string) {
	g.Set(func(g *GitHub) { g.Runners[name].Online = true })
}

// Start has the runner run a job; zero: one that RunJobs does not list.
func (g *GitHub) Start(name string, job int64) {
	g.Set(func(g *GitHub) {
		r := g.Runners[name]
		r.Online, r.Busy, r.Job = true, true, job
	})
}

// Alive lists the names of all runners, sorted.
func (g *GitHub) Alive() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.Runners))
}

// Asked is the last request for a registration.
func (g *GitHub) Asked() fleet.MintRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// Mints counts the requests for registrations.
func (g *GitHub) Mints() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.minted)
}

// Removed lists the names of the runners that RemoveRunner has removed.
func (g *GitHub) Removed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.removed)
}

// Requests counts removals and searches for one runner.
func (g *GitHub) Requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests
}

// Lists counts the readings of the whole list.
func (g *GitHub) Lists() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lists
}
