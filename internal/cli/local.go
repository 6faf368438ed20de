package cli

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// NotLocalError says that a server works with the real GitHub, and not with the stand-in of a `bullpen up` of this machine.
type NotLocalError struct {
	Server string // empty: it is found by other means than a URL
	// Up says that the server is that of a `bullpen up` of this machine, which has a GitHub App of its own.
	Up bool
}

// Error names the server.
func (e *NotLocalError) Error() string {
	switch {
	case e.Up:
		return "this `bullpen up` has no stand-in for GitHub: it uses a real GitHub App"
	case e.Server == "":
		return "`bullpen up` is not running here (--state-dir names another directory)"
	}
	return e.Server + " is not the server of a `bullpen up` of this machine"
}

// Local is the `bullpen up` of this machine that the server belongs to. The error is a *NotLocalError if the server works with the real GitHub.
func (c *Connection) Local() (Site, error) {
	server, _, err := c.find()
	if err != nil {
		return Site{}, err
	}
	machine := *c
	if c.Server == "" && c.StateDir == "" {
		machine.StateDir = c.boxNamed()
	}
	machine.Kubeconfig, machine.Context, machine.SystemNamespace = "", "", "" // they say how to authenticate, and not where
	site, here, err := machine.Site()
	switch {
	case err != nil, !here, strings.TrimRight(site.Server, "/") != strings.TrimRight(server.URL, "/"):
		return Site{}, &NotLocalError{Server: server.URL} // with an error, the server has another source
	case site.GitHub == "":
		return Site{}, &NotLocalError{Server: server.URL, Up: true}
	}
	return site, nil
}

// ParseRun reads the ID of a run, or its URL at GitHub (…/actions/runs/ID). The repository is that of the URL, as gh takes it; empty for an ID.
func ParseRun(text string) (id int64, repository string, err error) {
	digits := text
	if at, err := url.Parse(text); err == nil && at.Host != "" {
		segments := strings.Split(strings.Trim(at.Path, "/"), "/")
		if len(segments) < 5 || segments[2] != "actions" || segments[3] != "runs" {
			return 0, "", fmt.Errorf("not a run URL: %s (expected …/OWNER/NAME/actions/runs/RUN)", text)
		}
		digits, repository = segments[4], ghRepository(at.Host, segments[0]+"/"+segments[1])
	}
	id, err = strconv.ParseInt(digits, 10, 64)
	if err != nil || id < 1 {
		return 0, "", fmt.Errorf("invalid run %q: expected a numeric run ID or a GitHub run URL. `bullpen jobs -o wide` lists run IDs", text)
	}
	return id, repository, nil
}

// ghRepository is what gh takes with --repo: a repository of another host than github.com has the host before it.
func ghRepository(host, repository string) string {
	if host == "" || host == "github.com" {
		return repository
	}
	return host + "/" + repository
}

func repositoryOf(job adminapi.Job) string {
	at, err := url.Parse(job.RunURL)
	if err != nil {
		return job.Repository
	}
	return ghRepository(at.Host, job.Repository)
}

// CancelJobAtGitHub says how to cancel the run of a job at GitHub, which cancels no single job.
func CancelJobAtGitHub(job adminapi.Job) error {
	return fmt.Errorf("job %d was not cancelled: GitHub cancels whole runs only. Cancel run %d %swith `gh run cancel %d --repo %s`",
		job.ID, job.RunID, linkText(job.RunURL), job.RunID, repositoryOf(job))
}

// CancelRunAtGitHub says how to cancel a run at GitHub. link is its URL, and repository is as ParseRun returns it; both can be empty.
func CancelRunAtGitHub(id int64, link, repository string) error {
	if repository == "" {
		repository = "OWNER/NAME"
	}
	return fmt.Errorf("run %d was not cancelled: it runs at GitHub. Cancel it %swith `gh run cancel %d --repo %s`", id, linkText(link), id, repository)
}

// LogAtGitHub says where GitHub has the log of a job.
func LogAtGitHub(job adminapi.Job) error {
	return fmt.Errorf("the log of job %d is at GitHub. Read it %swith `gh run view --job %d --log --repo %s`", job.ID, linkText(job.URL), job.ID, repositoryOf(job))
}

func linkText(link string) string {
	if link == "" {
		return ""
	}
	return "at " + link + " or "
}
