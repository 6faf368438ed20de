package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Pools reads every pool.
func (c *Client) Pools(ctx context.Context) (adminapi.PoolList, error) {
	var list adminapi.PoolList
	err := c.call(ctx, http.MethodGet, adminapi.PathPools, nil, "", nil, &list)
	return list, err
}

// Pool reads one, by namespace/name, or by its name if no other namespace has a pool of that name.
func (c *Client) Pool(ctx context.Context, namespace, name string) (adminapi.Pool, error) {
	if in, short, ok := strings.Cut(name, "/"); ok {
		namespace, name = in, short
	}
	list, err := c.Pools(ctx)
	if err != nil {
		return adminapi.Pool{}, err
	}
	return findPool(list.Pools, namespace, name)
}

// findPool finds a pool in a namespace, or without one in any.
func findPool(pools []adminapi.Pool, namespace, name string) (adminapi.Pool, error) {
	var found []adminapi.Pool
	var where, all []string
	for _, p := range pools {
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		all = append(all, p.Name)
		if p.Name == name {
			found, where = append(found, p), append(where, p.Namespace+"/"+p.Name)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return adminapi.Pool{}, fmt.Errorf("ambiguous pool %q: use %s", name, strings.Join(where, " or "))
	case namespace != "":
		return adminapi.Pool{}, poolNotFound(name, " in namespace "+namespace, all)
	}
	return adminapi.Pool{}, poolNotFound(name, "", all)
}

// RunnerFilter selects runners.
type RunnerFilter struct {
	Namespace string        // empty: all
	Pool      string        // its name, or namespace/name; empty: all
	Labels    LabelSelector // of their pools
	Stages    RunnerStages  // empty: all
	Most      int
}

// Runners reads runners by name.
func (c *Client) Runners(ctx context.Context, f RunnerFilter) ([]adminapi.Runner, error) {
	query := url.Values{"stage": []string(f.Stages)}
	if f.Namespace != "" {
		query.Set("namespace", f.Namespace)
	}
	if f.Pool != "" {
		pool, err := c.resolvePool(ctx, f.Namespace, f.Pool)
		if err != nil {
			return nil, err
		}
		query.Set("pool", pool)
	}
	keep, err := c.inPools(ctx, &f.Labels)
	if err != nil {
		return nil, err
	}
	runners := []adminapi.Runner{}
	for len(runners) < f.Most {
		query.Set("limit", strconv.Itoa(min(f.Most-len(runners), adminapi.MaxPage)))
		var page adminapi.RunnerList
		if err := c.call(ctx, http.MethodGet, adminapi.PathRunners, query, "", nil, &page); err != nil {
			return nil, err
		}
		runners = append(runners, slices.DeleteFunc(page.Runners, func(r adminapi.Runner) bool { return !keep(r) })...)
		if page.Next == "" {
			break
		}
		query.Set("after", page.Next)
	}
	return runners, nil
}

// inPools says whether a runner's pool is selected.
func (c *Client) inPools(ctx context.Context, selector *LabelSelector) (func(adminapi.Runner) bool, error) {
	if selector.Empty() {
		return func(adminapi.Runner) bool { return true }, nil
	}
	list, err := c.Pools(ctx)
	if err != nil {
		return nil, err
	}
	selected := map[string]bool{}
	for _, p := range PoolsIn("", selector, list.Pools) {
		selected[p.Namespace+"/"+p.Name] = true
	}
	return func(r adminapi.Runner) bool { return selected[r.Namespace+"/"+r.Pool] }, nil
}

// resolvePool finds the namespace of a pool that is given by its name alone.
func (c *Client) resolvePool(ctx context.Context, namespace, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if namespace != "" {
		return namespace + "/" + name, nil
	}
	pool, err := c.Pool(ctx, "", name)
	if err != nil {
		return "", err
	}
	return pool.Namespace + "/" + pool.Name, nil
}

// PoolTable shows pools, one a row.
func PoolTable(pools []adminapi.Pool, now time.Time) Table {
	t := Table{
		Columns: []string{"POOL", "LABELS", "DESIRED", "IDLE", "BUSY", "STARTING", "QUEUED", "BLOCKED", "OLDEST", "PROBLEM"},
		Wide:    []string{"NAMESPACE", "PLATFORM", "CPU", "MEMORY", "TERMINATING", "FINISHED"},
		Empty:   "No pools found. Apply a RunnerPool, such as examples/pool.yaml.",
		Paint:   paintPool,
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, p := range pools {
		queued, blocked, oldest := "?", "?", "-"
		if d := p.Demand; d != nil {
			queued, blocked = number(d.Queued), number(d.TotalBlocked())
			if d.OldestQueued != nil {
				oldest = short(now.Sub(*d.OldestQueued))
			}
		}
		t.Rows = append(t.Rows, []string{
			p.Name, strings.Join(p.Labels, ","), number(p.Desired), number(p.Idle), number(p.Busy), number(p.Starting), queued, blocked, oldest, poolProblem(p),
			p.Namespace, p.Platform, fleet.FormatCPU(p.MilliCPU), fleet.FormatMemory(p.MemoryMB), number(p.Terminating), number(p.Finished),
		})
	}
	return t
}

// paintPool colours what needs attention. A pool that is being deleted is none of it.
func paintPool(column, cell string) Colour {
	switch {
	case column == "PROBLEM" && cell == deleting:
		return Grey
	case column == "PROBLEM" && cell != "-":
		return Red
	case column == "BLOCKED" && cell != "0" && cell != "?":
		return Yellow
	}
	return NoColour
}

// poolProblem is the first problem of a pool, or that it is being deleted.
func poolProblem(p adminapi.Pool) string {
	switch {
	case len(p.Problems) > 0:
		return p.Problems[0].Condition
	case p.Deleting:
		return deleting
	}
	return "-"
}

// deleting is shown in place of the problem of a pool that is being deleted.
const deleting = "deleting"

// PoolRows prints pools.
func PoolRows(now time.Time) Rows[adminapi.Pool] {
	return Rows[adminapi.Pool]{
		Kind: "pool", Name: func(p adminapi.Pool) string { return p.Name },
		Table: func(pools []adminapi.Pool) Table { return PoolTable(pools, now) },
	}
}

// PrintPool prints one pool, for people with the sentence of each problem.
func PrintPool(w io.Writer, o *Output, pool adminapi.Pool, now time.Time) error {
	if err := PoolRows(now).PrintOne(w, o, pool); err != nil || !o.ForPeople() {
		return err
	}
	var b strings.Builder
	for _, problem := range pool.Problems {
		fmt.Fprintf(&b, "\n%s: %s\n", problem.Condition, printable(problem.Sentence))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// RunnerRows prints runners.
func RunnerRows(now time.Time) Rows[adminapi.Runner] {
	return Rows[adminapi.Runner]{
		Kind: "runner", Name: func(r adminapi.Runner) string { return r.Name },
		Table: func(runners []adminapi.Runner) Table { return RunnerTable(runners, now) },
	}
}

// RunnerTable shows runners, one a row.
func RunnerTable(runners []adminapi.Runner, now time.Time) Table {
	t := Table{
		Columns: []string{"RUNNER", "POOL", "STAGE", "ACCOUNT", "JOB", "SINCE", "NODE", "AGE"},
		Wide:    []string{"NAMESPACE", "NAME AT GITHUB"},
		Empty:   "No runners found.",
		Paint:   paintRunner,
	}
	for _, r := range runners {
		job, since := "-", "-"
		if r.JobID != 0 {
			job = strconv.FormatInt(r.JobID, 10)
		}
		if r.ClaimedAt != nil {
			since = short(now.Sub(*r.ClaimedAt))
		}
		t.Rows = append(t.Rows, []string{
			r.Name, r.Pool, runnerStage(r.Stage), dash(r.Account), job, since, dash(r.Node), short(now.Sub(r.CreatedAt)), r.Namespace, dash(r.RunnerAt),
		})
	}
	return t
}

// Status is the fleet at a glance.
type Status struct {
	// Frozen says why no jobs are dispatched at all.
	Frozen   string `json:"frozen,omitempty"`
	Queued   int64  `json:"queued"`  // jobs that need a runner only
	Blocked  int64  `json:"blocked"` // jobs that a limit, a suspension or GitHub holds back
	Idle     int64  `json:"idle"`
	Busy     int64  `json:"busy"`
	Starting int64  `json:"starting"`
	Desired  int64  `json:"desired"`
	// Unserved are the jobs that no pool serves. Queued and Blocked do not count them.
	Unserved *adminapi.UnservedJobs `json:"unserved,omitempty"`
	// OldestQueued is when the job with the longest queue time was queued.
	OldestQueued *time.Time `json:"oldestQueued,omitempty"`
	// Problems are sentences, the most severe first; none: all is well.
	Problems []string        `json:"problems"`
	Pools    []adminapi.Pool `json:"pools"`
}

// Sum puts the fleet's status together.
func Sum(list adminapi.PoolList, accounts []adminapi.Account) Status {
	s := Status{Frozen: list.Frozen, Pools: list.Pools, Problems: []string{}, Unserved: list.Unserved}
	if list.Frozen != "" {
		s.Problems = append(s.Problems, "No jobs are dispatched: "+list.Frozen+".")
	}
	s.Problems = append(s.Problems, unservedProblems(list.Unserved)...)
	for _, p := range list.Pools {
		s.Idle, s.Busy, s.Starting, s.Desired = s.Idle+p.Idle, s.Busy+p.Busy, s.Starting+p.Starting, s.Desired+p.Desired
		if d := p.Demand; d != nil {
			s.Queued, s.Blocked = s.Queued+d.Queued, s.Blocked+d.TotalBlocked()
			if d.OldestQueued != nil && (s.OldestQueued == nil || d.OldestQueued.Before(*s.OldestQueued)) {
				s.OldestQueued = d.OldestQueued
			}
		} else if list.Frozen == "" {
			s.Problems = append(s.Problems, "Pool "+p.Name+": its queue cannot be read.")
		}
		for _, problem := range p.Problems {
			s.Problems = append(s.Problems, "Pool "+p.Name+": "+strings.TrimSuffix(problem.Sentence, ".")+".")
		}
	}
	for _, a := range accounts {
		if held := a.Queued + a.Blocked; a.State == adminapi.AccountSuspended && held > 0 { // while the demand is unknown, its jobs count as queued
			s.Problems = append(s.Problems, fmt.Sprintf("Account %s is suspended, with %s blocked.", a.Login, jobs(held)))
			continue
		}
		for _, b := range a.Budgets {
			if b.Blocked > 0 {
				s.Problems = append(s.Problems, fmt.Sprintf("Account %s is at its limit on %s, with %s blocked.", a.Login, b.Platform, jobs(b.Blocked)))
			}
		}
	}
	return s
}

func jobs(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return strconv.FormatInt(n, 10) + " jobs"
}

// Headline is how many problems there are.
func (s Status) Headline() string {
	switch len(s.Problems) {
	case 0:
		return "All is well."
	case 1:
		return "1 problem:"
	}
	return strconv.Itoa(len(s.Problems)) + " problems:"
}

// PrintStatus writes the status for people, problems first.
func PrintStatus(w io.Writer, format Format, s Status, now time.Time) error {
	if format == FormatJSON || format == FormatYAML {
		return Print(w, format, s, Table{})
	}
	var b strings.Builder
	colour := NoColour
	if Coloured(w) {
		if colour = Green; len(s.Problems) > 0 {
			colour = Red
		}
	}
	b.WriteString(colour.paint(s.Headline()) + "\n")
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "  - %s\n", printable(p))
	}
	fmt.Fprintf(&b, "\nJobs      %d queued", s.Queued)
	if s.OldestQueued != nil {
		fmt.Fprintf(&b, " (oldest %s)", short(now.Sub(*s.OldestQueued)))
	}
	fmt.Fprintf(&b, ", %d blocked", s.Blocked)
	if text := UnservedText(s.Unserved, now); text != "" {
		b.WriteString(", " + text)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "Runners   %d idle, %d busy, %d starting, %d desired\n\n", s.Idle, s.Busy, s.Starting, s.Desired)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return Print(w, format, s, PoolTable(s.Pools, now))
}
