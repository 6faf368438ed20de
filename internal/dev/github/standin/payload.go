package standin

import (
	"encoding/json"
	"fmt"
)

type stepJSON struct {
	Name        string  `json:"name"`
	Status      string  `json:"status"`
	Conclusion  *string `json:"conclusion"`
	Number      int     `json:"number"`
	StartedAt   *string `json:"started_at"`
	CompletedAt *string `json:"completed_at"`
}

// jobJSON is a job as webhooks and REST show it.
type jobJSON struct {
	ID              int64      `json:"id"`
	RunID           int64      `json:"run_id"`
	WorkflowName    string     `json:"workflow_name"`
	HeadBranch      string     `json:"head_branch"`
	RunURL          string     `json:"run_url"`
	RunAttempt      int        `json:"run_attempt"`
	NodeID          string     `json:"node_id"`
	HeadSHA         string     `json:"head_sha"`
	URL             string     `json:"url"`
	HTMLURL         string     `json:"html_url"`
	Status          string     `json:"status"`
	Conclusion      *string    `json:"conclusion"`
	CreatedAt       *string    `json:"created_at"`
	StartedAt       *string    `json:"started_at"`
	CompletedAt     *string    `json:"completed_at"`
	Name            string     `json:"name"`
	Steps           []stepJSON `json:"steps"`
	CheckRunURL     string     `json:"check_run_url"`
	Labels          []string   `json:"labels"`
	RunnerID        *int64     `json:"runner_id"`
	RunnerName      *string    `json:"runner_name"`
	RunnerGroupID   *int64     `json:"runner_group_id"`
	RunnerGroupName *string    `json:"runner_group_name"`
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (s *Server) jobJSONLocked(j *job) jobJSON {
	r := j.run
	api := s.opts.URL + "/repos/" + r.repo.fullName()
	out := jobJSON{
		ID: j.id, RunID: r.id, WorkflowName: r.workflowName, HeadBranch: r.branch, HeadSHA: r.sha, RunAttempt: j.attempt,
		RunURL: fmt.Sprintf("%s/actions/runs/%d", api, r.id), URL: fmt.Sprintf("%s/actions/jobs/%d", api, j.id),
		HTMLURL:     fmt.Sprintf("%s/%s/actions/runs/%d/job/%d", s.opts.URL, r.repo.fullName(), r.id, j.id),
		CheckRunURL: fmt.Sprintf("%s/check-runs/%d", api, j.id), NodeID: fmt.Sprintf("CR_%d", j.id),
		Status: j.visible(), Conclusion: orNull(j.conclusion), Name: j.name, Labels: j.labels.names,
		CreatedAt: stamp(j.createdAt), StartedAt: stamp(j.startedAt), CompletedAt: stamp(j.completedAt), Steps: []stepJSON{},
	}
	if j.startedAt.IsZero() { // GitHub has a start time even before the start
		out.StartedAt = out.CreatedAt
	}
	if out.Labels == nil {
		out.Labels = []string{}
	}
	switch {
	case j.acquisitions > 0:
		out.RunnerID, out.RunnerName, out.RunnerGroupID, out.RunnerGroupName = &j.runnerID, &j.runnerName, &j.groupID, &j.groupName
	case j.state == jobCompleted: // it never had a runner: GitHub sends zeros then, not nulls
		zero, empty := int64(0), ""
		out.RunnerID, out.RunnerName, out.RunnerGroupID, out.RunnerGroupName = &zero, &empty, &zero, &empty
	}
	for _, step := range j.steps {
		line := stepJSON{Name: step.Name, Status: step.Status, Conclusion: orNull(step.Conclusion), Number: step.Number}
		if step.StartedAt != nil {
			line.StartedAt = stamp(*step.StartedAt)
		}
		if step.CompletedAt != nil {
			line.CompletedAt = stamp(*step.CompletedAt)
		}
		out.Steps = append(out.Steps, line)
	}
	return out
}

type installationRef struct {
	ID     int64  `json:"id"`
	NodeID string `json:"node_id"`
}

type organizationJSON struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	URL   string `json:"url"`
}

type jobEvent struct {
	Action       string            `json:"action"`
	WorkflowJob  jobJSON           `json:"workflow_job"`
	Repository   *repoJSON         `json:"repository"`
	Organization *organizationJSON `json:"organization,omitempty"`
	Sender       ownerJSON         `json:"sender"`
	Installation installationRef   `json:"installation"`
}

type installationEvent struct {
	Action       string           `json:"action"`
	Installation installationJSON `json:"installation"`
	Repositories []*repoJSON      `json:"repositories"`
	Sender       ownerJSON        `json:"sender"`
}

// sender is who GitHub says did it. The stand-in has one person: itself.
func (s *Server) sender() ownerJSON {
	return ownerJSON{Login: "standin", ID: 1, Type: typeUser, URL: s.opts.URL + "/users/standin"}
}

func (s *Server) organizationJSON(a *account) *organizationJSON {
	if a.kind != typeOrganization {
		return nil
	}
	return &organizationJSON{Login: a.login, ID: a.id, URL: s.opts.URL + "/orgs/" + a.login}
}

// jobEventLocked sends a workflow_job webhook about the job as it is now.
func (s *Server) jobEventLocked(j *job, action string) {
	a := j.run.repo.owner
	j.run.updatedAt = s.now()
	if !a.listens() {
		s.changedLocked()
		return
	}
	payload, err := json.Marshal(jobEvent{
		Action: action, WorkflowJob: s.jobJSONLocked(j), Repository: s.repoJSON(j.run.repo), Organization: s.organizationJSON(a),
		Sender: s.sender(), Installation: installationRef{ID: a.installation, NodeID: fmt.Sprintf("I_%d", a.installation)},
	})
	if err != nil {
		s.log.Error("a webhook could not be encoded", "job", j.id, "error", err)
		return
	}
	s.hooks.send(&delivery{
		GUID: s.guid(), Event: "workflow_job", Action: action, InstallationID: a.installation, RepositoryID: j.run.repo.id,
		Payload: payload, jobID: j.id, jobName: j.name, runID: j.run.id, queue: jobQueueName(j.id), CreatedAt: s.now(),
	})
	s.changedLocked()
}

// announceLocked sends the "installation created" webhook.
func (s *Server) announceLocked(a *account) {
	a.announced = true
	s.installationEventLocked(a, "created")
}

// installationEventLocked sends an installation webhook: created, suspend, unsuspend, deleted.
func (s *Server) installationEventLocked(a *account, action string) {
	repos := []*repoJSON{}
	for _, r := range sortedRepos(a) {
		short := s.repoJSON(r)
		short.Owner = nil
		repos = append(repos, short)
	}
	payload, err := json.Marshal(installationEvent{
		Action: action, Installation: s.installationJSON(a), Repositories: repos, Sender: s.sender(),
	})
	if err != nil {
		s.log.Error("a webhook could not be encoded", "installation", a.installation, "error", err)
		return
	}
	s.hooks.send(&delivery{
		GUID: s.guid(), Event: "installation", Action: action, InstallationID: a.installation,
		Payload: payload, queue: fmt.Sprintf("installation %d", a.installation), CreatedAt: s.now(),
	})
}
