package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// JobFilter selects jobs; a field that is empty selects all.
type JobFilter struct {
	Account     string
	Repository  string                  // owner/name, or a part of it
	Name        string                  // a part of the job's name
	States      []string                // the API's
	Conclusions []string                // GitHub's, and stale
	Keep        func(adminapi.Job) bool // of those that the API returns; nil: all
	Ended       bool                    // completed ones too
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
		for _, job := range page.Jobs {
			if f.Keep == nil || f.Keep(job) {
				jobs = append(jobs, job)
			}
		}
		if page.Next == 0 {
			break
		}
		query.Set("before", strconv.FormatInt(page.Next, 10))
	}
	return jobs, nil
}

func jobPath(id int64) string { return adminapi.PathJobs + "/" + strconv.FormatInt(id, 10) }

// Job reads one; an *APIError with status 404 when the server has none of that ID.
func (c *Client) Job(ctx context.Context, id int64) (adminapi.Job, error) {
	var job adminapi.Job
	err := c.call(ctx, http.MethodGet, jobPath(id), nil, "", nil, &job)
	return job, err
}

// Why explains why a job has no runner yet, or how it completed. Every ID has an explanation.
func (c *Client) Why(ctx context.Context, id int64) (adminapi.Why, error) {
	var why adminapi.Why
	err := c.call(ctx, http.MethodGet, jobPath(id)+"/why", nil, "", nil, &why)
	return why, err
}

// ParseJob reads the ID of a job, or its URL at GitHub (…/actions/runs/RUN/job/ID).
func ParseJob(text string) (int64, error) {
	digits := text
	if at, err := url.Parse(text); err == nil && at.Host != "" {
		segments := strings.Split(strings.Trim(at.Path, "/"), "/")
		i := len(segments) - 1
		for i >= 0 && segments[i] != "job" { // the last one: a repository may be called job, too
			i--
		}
		if i < 0 || i+1 == len(segments) {
			return 0, fmt.Errorf("not a job URL: %s (expected …/runs/RUN/job/JOB)", text)
		}
		digits = segments[i+1]
	}
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("invalid job %q: expected a numeric job ID or a GitHub job URL. `bullpen jobs` lists job IDs", text)
	}
	return id, nil
}

// JobTable shows jobs, one a row.
func JobTable(jobs []adminapi.Job, now time.Time) Table {
	t := Table{
		Columns: []string{"ID", "REPOSITORY", "NAME", "STATE", "LABELS", "POOL", "RUNNER", "WAITED", "RAN", "AGE"},
		Wide:    []string{"ACCOUNT", "WORKFLOW", "BRANCH", "RUN", "ATTEMPT", "BLOCKED BY", "URL"},
		Empty:   "No jobs found. --completed includes completed jobs.",
		Paint:   paintJob,
	}
	for _, j := range jobs {
		t.Rows = append(t.Rows, []string{
			strconv.FormatInt(j.ID, 10), j.Repository, j.Name, jobState(j), strings.Join(j.Labels, ","), dash(j.Pool), dash(j.Runner()),
			waited(j, now), ran(j, now), whole(now.Sub(j.QueuedAt)),
			j.Account, j.Workflow, dash(j.Branch), strconv.FormatInt(j.RunID, 10), strconv.FormatInt(j.RunAttempt, 10), dash(j.BlockedBy), dash(j.URL),
		})
	}
	return t
}

// JobRows prints jobs.
func JobRows(now time.Time) Rows[adminapi.Job] {
	return Rows[adminapi.Job]{
		Kind: "job", Name: func(j adminapi.Job) string { return strconv.FormatInt(j.ID, 10) },
		Table: func(jobs []adminapi.Job) Table { return JobTable(jobs, now) },
	}
}

// waited is the job's queue time, so far or in total. GitHub gives whole seconds.
func waited(j adminapi.Job, now time.Time) string {
	switch {
	case j.StartedAt != nil:
		return whole(j.StartedAt.Sub(j.QueuedAt))
	case j.CompletedAt != nil:
		return "-"
	default:
		return whole(now.Sub(j.QueuedAt))
	}
}

func ran(j adminapi.Job, now time.Time) string {
	switch {
	case j.StartedAt == nil:
		return "-"
	case j.CompletedAt != nil:
		return whole(j.CompletedAt.Sub(*j.StartedAt))
	default:
		return whole(now.Sub(*j.StartedAt))
	}
}

// whole is short without tenths of a second: what is known in whole seconds is not shown as if it were exact.
func whole(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return strconv.Itoa(int(d.Seconds())) + "s"
	}
	return short(d)
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
