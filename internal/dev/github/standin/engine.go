package standin

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// Submission asks for a run of a workflow file.
type Submission struct {
	// FileName is shown in messages and run lists: "ci.yaml".
	FileName string `json:"file_name"`
	// Content is the file itself.
	Content string `json:"content"`
	// Repo is "owner/name"; it may be left out when there is only one repository.
	Repo string `json:"repo"`
	// Event starts the run. Default: workflow_dispatch or push, whichever the file lists, else its first event.
	Event  string            `json:"event,omitempty"`
	Inputs map[string]string `json:"inputs,omitempty"`
	// Branch defaults to main.
	Branch string            `json:"branch,omitempty"`
	Vars   map[string]string `json:"vars,omitempty"`
	// Count submits the file several times. Default 1, at most 1,000.
	Count int `json:"count,omitempty"`
	// HoldForApproval leaves jobs waiting until the run is approved.
	HoldForApproval bool `json:"hold_for_approval,omitempty"`
	// Faults are rules for this submission alone: each of its runs gets its own copy, and loses it when it ends. Job
	// narrows a rule to some of the jobs: {"kind": "hook-drop", "action": "queued", "job": "build*"}.
	Faults []Fault `json:"faults,omitempty"`
}

// maxCount bounds Submission.Count.
const maxCount = 1000

// plan is the workflow package's state machine of a run, and a journal of every call that moved it on: played again, it
// leads to the same state. Guarded by the server's lock.
type plan struct {
	machine *workflow.Run
	journal []planStep
}

// planStep is one call: "next", "cancel" or "complete".
type planStep struct {
	Call       string            `json:"call"`
	Key        string            `json:"key,omitempty"`
	Conclusion string            `json:"conclusion,omitempty"`
	Outputs    map[string]string `json:"outputs,omitempty"`
}

// apply makes one call and returns what it led to: jobs that are ready now, jobs that ended, keys to cancel.
func (p *plan) apply(step planStep) (ready []workflow.Job, ended []workflow.Concluded, cancel []string, err error) {
	p.journal = append(p.journal, step)
	switch step.Call {
	case "next":
		ready = p.machine.Next()
		ended = p.machine.Concluded()
	case "cancel":
		cancel = p.machine.Cancel()
	case "complete":
		cancel, err = p.machine.Complete(step.Key, workflow.Conclusion(step.Conclusion), step.Outputs)
	default:
		err = fmt.Errorf("no call of a workflow's plan is named %q", step.Call)
	}
	return ready, ended, cancel, err
}

// Submit checks a workflow file and starts its runs. What is wrong with the file is named by line and feature.
func (s *Server) Submit(sub Submission) ([]RunView, error) {
	if sub.FileName == "" {
		sub.FileName = "workflow.yaml"
	}
	if sub.Branch == "" {
		sub.Branch = "main"
	}
	if sub.Count == 0 {
		sub.Count = 1
	}
	if sub.Count < 0 || sub.Count > maxCount {
		return nil, failf(http.StatusUnprocessableEntity, "count must be from 1 to %d, not %d", maxCount, sub.Count)
	}
	file, err := workflow.Load(sub.FileName, []byte(sub.Content))
	if err != nil {
		return nil, failf(http.StatusUnprocessableEntity, "%v", err)
	}
	if sub.Event == "" {
		sub.Event = defaultEvent(file)
	}
	for _, rule := range sub.Faults {
		rule.Run = 1 // each run's own id, later
		if err := rule.validate(); err != nil {
			return nil, failf(http.StatusUnprocessableEntity, "the submission's faults: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rp, err := s.repoLocked(sub.Repo)
	if err != nil {
		return nil, err
	}
	views := make([]RunView, 0, sub.Count)
	for range sub.Count {
		r, err := s.startRunLocked(rp, file, sub)
		if err != nil {
			return nil, err
		}
		view := r.view()
		view.MissingSecrets = s.missingSecrets(file)
		if warning := view.SecretsWarning(); warning != "" {
			s.log.Warn(warning, "run", view.ID)
		}
		views = append(views, view)
	}
	return views, nil
}

func defaultEvent(file *workflow.Workflow) string {
	for _, event := range []string{"workflow_dispatch", "push"} {
		if file.HasEvent(event) {
			return event
		}
	}
	if len(file.Events) > 0 {
		return file.Events[0]
	}
	return "push"
}

func (s *Server) repoLocked(name string) (*repo, error) {
	if name == "" {
		var only []*repo
		for _, a := range s.installOrder {
			only = append(only, sortedRepos(a)...)
		}
		if len(only) == 1 {
			return only[0], nil
		}
		return nil, failf(http.StatusUnprocessableEntity, "missing repository: write it as owner/name. Repositories: %s", repositoryNames(only))
	}
	owner, short, _ := strings.Cut(name, "/")
	if a := s.accounts[strings.ToLower(owner)]; a != nil {
		if r := a.repos[strings.ToLower(short)]; r != nil {
			return r, nil
		}
	}
	var all []*repo
	for _, a := range s.installOrder {
		all = append(all, sortedRepos(a)...)
	}
	return nil, failf(http.StatusUnprocessableEntity, "repository %q not found. Repositories: %s", name, repositoryNames(all))
}

// repositoryNames names some of the repositories for an error.
func repositoryNames(repos []*repo) string {
	const most = 5
	var names []string
	for _, r := range repos[:min(most, len(repos))] {
		names = append(names, r.fullName())
	}
	switch more := len(repos) - len(names); {
	case len(names) == 0:
		return "none"
	case more > 0:
		return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func (s *Server) startRunLocked(rp *repo, file *workflow.Workflow, sub Submission) (*run, error) {
	rp.runSeq++
	r := &run{
		id: s.freshIDLocked("run", 8_000_000_000), number: rp.runSeq, repo: rp, workflowID: workflowID(sub.FileName),
		workflowName: displayName(file, sub.FileName), fileName: sub.FileName, event: sub.Event, branch: sub.Branch, sha: hex.EncodeToString(s.randomBytes(20)),
		createdAt: s.now(), updatedAt: s.now(), held: sub.HoldForApproval, byKey: map[string]*job{}, planID: s.guid(), submission: sub,
		attempt: 1,
	}
	r.attemptedAt = r.createdAt
	if err := s.planRun(r, file); err != nil {
		return nil, err
	}
	for _, rule := range sub.Faults {
		rule.Run = r.id
		if _, err := s.faults.add(rule); err != nil {
			return nil, failf(http.StatusUnprocessableEntity, "the submission's faults: %v", err)
		}
	}
	s.runs[r.id] = r
	s.runOrder = append(s.runOrder, r)
	s.advanceLocked(r)
	s.changedLocked()
	return r, nil
}

// displayName is the file's own name, else its path, as on GitHub.
func displayName(file *workflow.Workflow, fileName string) string {
	if file.Name != "" {
		return file.Name
	}
	return ".github/workflows/" + fileName
}

// workflowID is a number that follows from the file's name.
func workflowID(fileName string) int64 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(fileName)) // never fails
	return 1 + int64(sum.Sum32())
}

func (s *Server) planRun(r *run, file *workflow.Workflow) error {
	sub := r.submission
	context, err := s.githubContext(r, sub)
	if err != nil {
		return err
	}
	machine, err := workflow.NewRun(file, workflow.Event{Name: sub.Event, Inputs: sub.Inputs, GitHub: context, Vars: sub.Vars})
	if err != nil {
		return failf(http.StatusUnprocessableEntity, "%s: %v", sub.FileName, err)
	}
	r.plan = &plan{machine: machine}
	return nil
}

// githubContext is what workflows see as ${{ github.* }}.
func (s *Server) githubContext(r *run, sub Submission) (*workflow.Object, error) {
	inputs := map[string]any{}
	for name, value := range sub.Inputs {
		inputs[name] = value
	}
	event := map[string]any{"ref": "refs/heads/" + r.branch, "repository": s.repoJSON(r.repo), "sender": s.sender(), "inputs": inputs}
	if r.event == "push" {
		delete(event, "inputs")
		event["after"], event["head_commit"] = r.sha, map[string]any{"id": r.sha}
	}
	data, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("encoding the event: %w", err)
	}
	payload, err := workflow.FromJSON(data)
	if err != nil {
		return nil, fmt.Errorf("reading the event back: %w", err)
	}
	full := r.repo.fullName()
	return workflow.NewObject(
		"repository", full, "repository_owner", r.repo.owner.login, "repository_id", fmt.Sprint(r.repo.id),
		"repository_owner_id", fmt.Sprint(r.repo.owner.id), "repositoryUrl", s.opts.URL+"/"+full+".git",
		"run_id", fmt.Sprint(r.id), "run_number", fmt.Sprint(r.number), "run_attempt", fmt.Sprint(r.attempt), "retention_days", "90",
		"actor", s.sender().Login, "actor_id", fmt.Sprint(s.sender().ID), "triggering_actor", s.sender().Login,
		"ref", "refs/heads/"+r.branch, "ref_name", r.branch, "ref_type", "branch", "ref_protected", false,
		"head_ref", "", "base_ref", "", "sha", r.sha,
		"workflow_ref", full+"/.github/workflows/"+r.fileName+"@refs/heads/"+r.branch, "workflow_sha", r.sha,
		"server_url", s.opts.URL, "api_url", s.opts.URL+"/api/v3", "graphql_url", s.opts.URL+"/api/graphql",
		"event", payload,
	), nil
}

// advanceLocked queues the jobs that became ready and shows those that ended without a runner.
func (s *Server) advanceLocked(r *run) {
	for s.advanceOnceLocked(r) {
	}
	if r.plan.machine.Done() && r.conclusion == "" {
		r.conclusion, r.completedAt = string(r.plan.machine.Conclusion()), s.now()
		r.updatedAt = r.completedAt
		s.faults.forget(r.id)
		s.changedLocked()
	}
}

// advanceOnceLocked reports whether there is more to do at once: a job that an earlier attempt did is done already.
func (s *Server) advanceOnceLocked(r *run) (again bool) {
	ready, ended, _, _ := r.plan.apply(planStep{Call: "next"}) // this call cannot fail
	for _, c := range ended {
		if _, done := r.carried[c.Key]; done {
			continue
		}
		j := s.newJobLocked(r, c.Key, c.Name)
		j.createdAt = s.now()
		s.showConcludedLocked(j, c)
	}
	for _, ready := range ready {
		if done, ok := r.carried[ready.Key]; ok {
			// What it would cancel is not cancelled: that is just what is being repeated.
			_, _, _, err := r.plan.apply(planStep{Call: "complete", Key: ready.Key, Conclusion: done.Conclusion, Outputs: done.Outputs})
			again = again || err == nil
			continue
		}
		j := s.newJobLocked(r, ready.Key, ready.Name)
		j.labels, j.timeout = newLabelSet(ready.Labels), ready.Timeout
		j.build = s.messageBuilder(j, ready)
		j.wants = ready.Group
		if ready.Group != "" && !r.repo.hasGroupFor(ready.Group) {
			j.createdAt = s.now()
			j.state = jobQueued
			s.concludeLocked(j, concludedFailure, fmt.Sprintf("there is no runner group %q here", ready.Group))
			continue
		}
		s.admitLocked(j)
	}
	return again
}

// showConcludedLocked shows a job that the workflow itself concluded; the state machine knows already.
func (s *Server) showConcludedLocked(j *job, c workflow.Concluded) {
	j.state, j.conclusion, j.reason, j.completedAt = jobCompleted, string(c.Conclusion), c.Reason, s.now()
	s.jobEventLocked(j, "completed")
}

func (s *Server) newJobLocked(r *run, key, name string) *job {
	j := &job{id: s.freshIDLocked("job", 40_000_000_000), run: r, key: key, name: name, guid: s.guid(), labels: newLabelSet(nil), attempt: r.attempt}
	r.jobs = append(r.jobs, j)
	r.byKey[key] = j
	s.jobs[j.id] = j
	s.jobOrder = append(s.jobOrder, j)
	s.guids[j.guid] = j
	return j
}

// messageBuilder makes the function that encodes the job for whichever runner acquires it.
func (s *Server) messageBuilder(j *job, ready workflow.Job) func(messageInput) ([]byte, error) {
	githubToken := ""
	j.idToken = ready.Def != nil && ready.Def.IDToken
	return func(in messageInput) ([]byte, error) {
		if githubToken == "" {
			githubToken, _ = s.newInstallationTokenLocked(j.run.repo.owner)
		}
		message, err := workflow.JobMessage(ready, workflow.MessageParams{
			PlanID: j.run.planID, TimelineID: j.run.planID, JobID: j.guid, RequestID: in.requestID,
			ServiceURL: s.opts.URL + pathRun + "/", ResultsURL: s.opts.URL + pathResults + "/",
			FeedURL: s.feedURL(), CacheURL: s.opts.URL + pathCache + "/", IDTokenURL: s.idTokenURL(j), LaunchURL: s.opts.URL,
			OrchestrationID: j.orchestration(), RunnerGroup: in.group,
			AccessToken: in.token, GitHubToken: githubToken, Secrets: s.opts.Secrets,
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(message)
	}
}

// jobEndedLocked reports to the workflow that a job is over, cancels what it says to cancel, and continues.
func (s *Server) jobEndedLocked(j *job, outputs map[string]string) {
	_, _, cancel, err := j.run.plan.apply(planStep{Call: "complete", Key: j.key, Conclusion: j.conclusion, Outputs: outputs})
	if err != nil {
		s.log.Error("the workflow did not expect a job to end", "job", j.id, "key", j.key, "error", err)
	}
	for _, key := range cancel {
		if sibling := j.run.byKey[key]; sibling != nil {
			sibling.reason = "another job of its matrix failed"
			s.cancelJobLocked(sibling)
		}
	}
	s.advanceLocked(j.run)
}

// CancelRun cancels a run: its queued jobs at once, its running jobs by a message to their runners.
func (s *Server) CancelRun(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	switch {
	case r == nil:
		return failf(http.StatusNotFound, "there is no run %d", id)
	case r.conclusion != "":
		return failf(http.StatusConflict, "run %d has ended already", id)
	}
	_, _, cancel, _ := r.plan.apply(planStep{Call: "cancel"}) // this call cannot fail
	for _, key := range cancel {
		if j := r.byKey[key]; j != nil {
			j.reason = "the run was cancelled"
			s.cancelJobLocked(j)
		}
	}
	s.advanceLocked(r)
	return nil
}

// CancelJob cancels one job.
func (s *Server) CancelJob(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	switch {
	case j == nil:
		return failf(http.StatusNotFound, "there is no job %d", id)
	case j.state == jobCompleted:
		return failf(http.StatusConflict, "job %d has ended already", id)
	}
	j.reason = "the job was cancelled"
	s.cancelJobLocked(j)
	return nil
}

// LoseJob fails a running job whose runner is known to be dead, as its silence would later.
func (s *Server) LoseJob(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	switch {
	case j == nil:
		return failf(http.StatusNotFound, "there is no job %d", id)
	case j.state != jobInProgress:
		return failf(http.StatusConflict, "job %d is not running", id)
	}
	s.loseLocked(j, "the runner was stopped")
	return nil
}

// ApproveRun queues the jobs of a run that was submitted to be held, and of those that become ready later.
func (s *Server) ApproveRun(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	if r == nil {
		return failf(http.StatusNotFound, "there is no run %d", id)
	}
	r.held = false
	for _, j := range slices.Clone(r.jobs) {
		if j.state == jobWaiting {
			s.queueLocked(j)
		}
	}
	return nil
}
