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

// PoolsIn are those of one namespace.
func PoolsIn(namespace string, pools []adminapi.Pool) []adminapi.Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p adminapi.Pool) bool { return p.Namespace != namespace })
}

// RunnerFilter says which runners are listed.
type RunnerFilter struct {
	Namespace string // empty: all
	Pool      string // its name, or namespace/name; empty: all
	Stages    []string
	Most      int
}

// Runners reads runners by name.
func (c *Client) Runners(ctx context.Context, f RunnerFilter) ([]adminapi.Runner, error) {
	query := url.Values{"stage": f.Stages}
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
	runners := []adminapi.Runner{}
	for len(runners) < f.Most {
		query.Set("limit", strconv.Itoa(min(f.Most-len(runners), adminapi.MaxPage)))
		var page adminapi.RunnerList
		if err := c.call(ctx, http.MethodGet, adminapi.PathRunners, query, "", nil, &page); err != nil {
			return nil, err
		}
		runners = append(runners, page.Runners...)
		if page.Next == "" {
			break
		}
		query.Set("after", page.Next)
	}
	return runners, nil
}

// resolvePool finds the namespace of a pool that is given by its name alone.
func (c *Client) resolvePool(ctx context.Context, namespace, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if namespace != "" {
		return namespace + "/" + name, nil
	}
	list, err := c.Pools(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, p := range list.Pools {
		if p.Name == name {
			found = append(found, p.Namespace+"/"+p.Name)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("there is no pool %s: `bullpen pools` shows those there are", name)
	}
	return "", fmt.Errorf("several pools are called %s: name one of %s", name, strings.Join(found, ", "))
}

// PoolTable shows pools, one a row.
func PoolTable(pools []adminapi.Pool, now time.Time) Table {
	t := Table{
		Columns: []string{"POOL", "LABELS", "WANTED", "IDLE", "BUSY", "STARTING", "QUEUED", "WITHHELD", "OLDEST", "PROBLEM"},
		Wide:    []string{"NAMESPACE", "PLATFORM", "CPU", "MEMORY", "LEAVING", "FINISHED"},
		Empty:   "There is no pool yet: apply a RunnerPool, like examples/pool.yaml.",
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, p := range pools {
		queued, withheld, oldest := "?", "?", "-"
		if d := p.Demand; d != nil {
			queued, withheld = number(d.Queued), number(withheldJobs(d))
			if d.OldestQueued != nil {
				oldest = short(now.Sub(*d.OldestQueued))
			}
		}
		t.Rows = append(t.Rows, []string{
			p.Name, strings.Join(p.Labels, ","), number(p.Desired), number(p.Idle), number(p.Busy), number(p.Booting), queued, withheld, oldest, poolProblem(p),
			p.Namespace, p.Platform, fleet.FormatCPU(p.MilliCPU), fleet.FormatMemory(p.MemoryMB), number(p.Leaving), number(p.Finished),
		})
	}
	return t
}

func withheldJobs(d *adminapi.PoolDemand) (jobs int64) {
	for _, n := range d.Withheld {
		jobs += n
	}
	return jobs
}

// poolProblem is the first of them, or what else is to be known.
func poolProblem(p adminapi.Pool) string {
	switch {
	case len(p.Problems) > 0:
		return p.Problems[0].Condition
	case p.Deleting:
		return "deleting"
	}
	return "-"
}

// RunnerTable shows runners, one a row.
func RunnerTable(runners []adminapi.Runner, now time.Time) Table {
	t := Table{
		Columns: []string{"RUNNER", "POOL", "STAGE", "ACCOUNT", "JOB", "SINCE", "NODE", "AGE"},
		Wide:    []string{"NAMESPACE", "NAME AT GITHUB"},
		Empty:   "There is no such runner.",
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
			r.Name, r.Pool, r.Stage, dash(r.Account), job, since, dash(r.Node), short(now.Sub(r.CreatedAt)), r.Namespace, dash(r.RunnerAt),
		})
	}
	return t
}

// Status is the fleet at a glance.
type Status struct {
	// Held says why no job is handed out at all.
	Held     string `json:"held,omitempty"`
	Queued   int64  `json:"queued"`   // jobs that would begin at once if there were runners
	Withheld int64  `json:"withheld"` // jobs that wait for something else
	Idle     int64  `json:"idle"`
	Busy     int64  `json:"busy"`
	Starting int64  `json:"starting"`
	Wanted   int64  `json:"wanted"`
	// Unserved are the queued jobs that no pool serves. Queued and Withheld do not count them.
	Unserved *adminapi.UnservedJobs `json:"unserved,omitempty"`
	// OldestQueued is when the job that has waited longest for a runner was queued.
	OldestQueued *time.Time `json:"oldestQueued,omitempty"`
	// Problems are what somebody should look at, the gravest first; none: all is well.
	Problems []string        `json:"problems"`
	Pools    []adminapi.Pool `json:"pools"`
}

// Sum puts the fleet's status together.
func Sum(list adminapi.PoolList, accounts []adminapi.Account) Status {
	s := Status{Held: list.Held, Pools: list.Pools, Problems: []string{}, Unserved: list.Unserved}
	if list.Held != "" {
		s.Problems = append(s.Problems, "No job is handed out: "+list.Held+".")
	}
	s.Problems = append(s.Problems, unservedProblems(list.Unserved)...)
	for _, p := range list.Pools {
		s.Idle, s.Busy, s.Starting, s.Wanted = s.Idle+p.Idle, s.Busy+p.Busy, s.Starting+p.Booting, s.Wanted+p.Desired
		if d := p.Demand; d != nil {
			s.Queued, s.Withheld = s.Queued+d.Queued, s.Withheld+withheldJobs(d)
			if d.OldestQueued != nil && (s.OldestQueued == nil || d.OldestQueued.Before(*s.OldestQueued)) {
				s.OldestQueued = d.OldestQueued
			}
		} else if list.Held == "" {
			s.Problems = append(s.Problems, "What waits for pool "+p.Name+" cannot be read just now.")
		}
		for _, problem := range p.Problems {
			s.Problems = append(s.Problems, "Pool "+p.Name+": "+strings.TrimSuffix(problem.Sentence, ".")+".")
		}
	}
	for _, a := range accounts {
		switch {
		case a.State == adminapi.AccountSuspended && a.Queued > 0:
			s.Problems = append(s.Problems, fmt.Sprintf("Account %s is suspended, and %s of it %s.", a.Login, jobs(a.Queued), wait(a.Queued)))
		case a.Queued > 0 && slices.ContainsFunc(a.Budgets, atLimit):
			full := a.Budgets[slices.IndexFunc(a.Budgets, atLimit)]
			s.Problems = append(s.Problems, fmt.Sprintf("Account %s is at its limit on %s, and %s of it %s.", a.Login, full.Platform, jobs(a.Queued), wait(a.Queued)))
		}
	}
	return s
}

func atLimit(b adminapi.Budget) bool {
	return b.Usage.Jobs > 0 && (b.Usage.Jobs >= b.Limits.Jobs || b.Usage.MilliCPU >= b.Limits.MilliCPU || b.Usage.MemoryMB >= b.Limits.MemoryMB)
}

func jobs(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return strconv.FormatInt(n, 10) + " jobs"
}

func wait(n int64) string {
	if n == 1 {
		return "waits"
	}
	return "wait"
}

// PrintStatus writes the status for people: whether anything is wrong first.
func PrintStatus(w io.Writer, format Format, s Status, now time.Time) error {
	if format == FormatJSON || format == FormatYAML {
		return Print(w, format, s, Table{})
	}
	var b strings.Builder
	if len(s.Problems) == 0 {
		b.WriteString("All is well.\n")
	} else {
		fmt.Fprintf(&b, "%d to look at:\n", len(s.Problems))
		for _, p := range s.Problems {
			fmt.Fprintf(&b, "  - %s\n", printable(p))
		}
	}
	fmt.Fprintf(&b, "\nJobs      %d wait for a runner", s.Queued)
	if s.OldestQueued != nil {
		fmt.Fprintf(&b, " (the oldest for %s)", short(now.Sub(*s.OldestQueued)))
	}
	fmt.Fprintf(&b, ", %d for something else", s.Withheld)
	if text := UnservedText(s.Unserved, now); text != "" {
		b.WriteString(", " + text)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "Runners   %d idle, %d busy, %d starting, %d wanted\n\n", s.Idle, s.Busy, s.Starting, s.Wanted)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return Print(w, format, s, PoolTable(s.Pools, now))
}
