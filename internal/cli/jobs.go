package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// JobFilter says which jobs are asked for; a field that is empty asks for all.
type JobFilter struct {
	Account     string
	Repository  string // owner/name, or a part of it
	Name        string // a part of the job's name
	States      []string
	Conclusions []string
	Ended       bool // completed jobs, too
	Most        int
}

// Jobs reads the newest jobs.
func (c *Client) Jobs(ctx context.Context, f JobFilter) ([]adminapi.Job, error) {
	query := url.Values{"state": f.States, "conclusion": f.Conclusions}
	for key, value := range map[string]string{"account": f.Account, "repository": f.Repository, "name": f.Name} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if f.Ended {
		query.Set("ended", "true")
	}
	jobs := []adminapi.Job{}
	for len(jobs) < f.Most {
		query.Set("limit", strconv.Itoa(min(f.Most-len(jobs), adminapi.MaxPage)))
		var page adminapi.JobList
		if err := c.call(ctx, http.MethodGet, adminapi.PathJobs, query, "", nil, &page); err != nil {
			return nil, err
		}
		jobs = append(jobs, page.Jobs...)
		if page.Next == 0 {
			break
		}
		query.Set("before", strconv.FormatInt(page.Next, 10))
	}
	return jobs, nil
}

func jobPath(id int64) string { return adminapi.PathJobs + "/" + strconv.FormatInt(id, 10) }

// Job reads one; an *APIError with status 404 when the ledger has none of that id.
func (c *Client) Job(ctx context.Context, id int64) (adminapi.Job, error) {
	var job adminapi.Job
	err := c.call(ctx, http.MethodGet, jobPath(id), nil, "", nil, &job)
	return job, err
}

// Why says why a job has no runner yet, or what became of it. There is an answer for every id.
func (c *Client) Why(ctx context.Context, id int64) (adminapi.Why, error) {
	var why adminapi.Why
	err := c.call(ctx, http.MethodGet, jobPath(id)+"/why", nil, "", nil, &why)
	return why, err
}

// ParseJob reads the id of a job, or its address at GitHub (…/actions/runs/RUN/job/ID).
func ParseJob(text string) (int64, error) {
	digits := text
	if at, err := url.Parse(text); err == nil && at.Host != "" {
		segments := strings.Split(strings.Trim(at.Path, "/"), "/")
		i := len(segments) - 1
		for i >= 0 && segments[i] != "job" { // the last one: a repository may be called job, too
			i--
		}
		if i < 0 || i+1 == len(segments) {
			return 0, fmt.Errorf("%s is no address of a job: open the job itself at GitHub, its address ends with /job/ and a number", text)
		}
		digits = segments[i+1]
	}
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || id < 1 {
		return 0, errors.New("a job is named by its id at GitHub, a number, or by its address there: `bullpen jobs` shows ids")
	}
	return id, nil
}

// JobTable shows jobs, one a row.
func JobTable(jobs []adminapi.Job, now time.Time) Table {
	t := Table{
		Columns: []string{"ID", "REPOSITORY", "NAME", "STATE", "LABELS", "POOL", "RUNNER", "WAITED", "RAN", "AGE"},
		Wide:    []string{"ACCOUNT", "WORKFLOW", "BRANCH", "RUN", "ATTEMPT", "HELD", "URL"},
		Empty:   "No such job. Completed jobs are shown with --ended.",
	}
	for _, j := range jobs {
		t.Rows = append(t.Rows, []string{
			strconv.FormatInt(j.ID, 10), j.Repository, j.Name, j.Status(), strings.Join(j.Labels, ","), dash(j.Pool), dash(j.Runner()),
			waited(j, now), ran(j, now), seconds(now.Sub(j.QueuedAt)),
			j.Account, j.Workflow, dash(j.Branch), strconv.FormatInt(j.RunID, 10), strconv.FormatInt(j.RunAttempt, 10), dash(j.Held), dash(j.URL),
		})
	}
	return t
}

// waited is how long the job was queued, so far or until it started: by GitHub's clock, which has whole seconds.
func waited(j adminapi.Job, now time.Time) string {
	switch {
	case j.StartedAt != nil:
		return seconds(j.StartedAt.Sub(j.QueuedAt))
	case j.CompletedAt != nil:
		return "-"
	default:
		return seconds(now.Sub(j.QueuedAt))
	}
}

func ran(j adminapi.Job, now time.Time) string {
	switch {
	case j.StartedAt == nil:
		return "-"
	case j.CompletedAt != nil:
		return seconds(j.CompletedAt.Sub(*j.StartedAt))
	default:
		return seconds(now.Sub(*j.StartedAt))
	}
}

// short is a duration in its two largest units.
func short(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
