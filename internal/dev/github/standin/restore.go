package standin

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// restore reads the state file, if there is one.
func (s *Server) restore() error {
	if s.opts.StateFile == "" {
		return nil
	}
	data, err := os.ReadFile(s.opts.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the stand-in's state: %w", err)
	}
	var st savedState
	if err := json.Unmarshal(data, &st); err != nil {
		return fmt.Errorf("reading the stand-in's state from %s (move it away to begin afresh): %w", s.opts.StateFile, err)
	}
	if st.Version != stateVersion {
		return fmt.Errorf("the state in %s is of version %d, not %d: move it away to begin afresh", s.opts.StateFile, st.Version, stateVersion)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.restoreLocked(&st); err != nil {
		return fmt.Errorf("restoring the stand-in's state from %s (move it away to begin afresh): %w", s.opts.StateFile, err)
	}
	return nil
}

func (s *Server) restoreLocked(st *savedState) error {
	for _, saved := range st.Accounts {
		s.restoreAccountLocked(saved)
	}
	runners := map[int64]*runner{}
	for _, saved := range st.Runners {
		rn, err := s.restoreRunnerLocked(saved)
		if err != nil {
			return err
		}
		runners[rn.id] = rn
	}
	ready := map[*run]map[string]workflow.Job{}
	for _, saved := range st.Runs {
		r, jobs, err := s.restoreRunLocked(saved)
		if err != nil {
			return err
		}
		ready[r] = jobs
	}
	for _, saved := range st.Jobs {
		r := s.runs[saved.View.RunID]
		if r == nil {
			return fmt.Errorf("job %d belongs to run %d, which is missing", saved.View.ID, saved.View.RunID)
		}
		s.restoreJobLocked(saved, r, ready[r], runners)
	}
	s.restoreTokensLocked(st, runners)
	s.restoreRegistrationsLocked(st)
	s.ids = st.IDs
	s.jobSeq, s.messageSeq, s.lost, s.requeued, s.minted = st.JobSeq, st.MessageSeq, st.Lost, st.Requeued, st.Minted
	s.gone = st.Gone
	s.faults.restore(st.Faults)
	for route, c := range st.Calls {
		s.calls[route] = &c
	}
	for id, saved := range st.Blobs {
		s.blobs.blobs[id] = &blob{signature: saved.Signature, data: saved.Data, dropped: saved.Dropped}
	}
	s.hooks.restore(st)
	for _, rn := range runners { // last: an idle runner may get a job now
		if !rn.removed {
			s.settleRunnerLocked(rn)
			s.matchRunnerLocked(rn)
		}
	}
	return nil
}

func (s *Server) restoreAccountLocked(saved savedAccount) {
	a := &account{
		id: saved.ID, login: saved.Login, kind: saved.Kind, installation: saved.Installation, installedAt: saved.InstalledAt,
		suspendedAt: saved.SuspendedAt, announced: saved.Announced, formerly: saved.Formerly, groups: saved.Groups, access: saved.Access, repos: map[string]*repo{}, jobGroups: map[string]*jobGroup{},
	}
	if a.kind != typeUser {
		a.scope = newScope(a.login, a, nil)
	}
	for _, sr := range saved.Repos {
		r := &repo{id: sr.ID, name: sr.Name, owner: a, runSeq: sr.RunSeq, public: sr.Public}
		r.scope = newScope(r.fullName(), a, r)
		a.repos[strings.ToLower(r.name)] = r
	}
	s.accounts[strings.ToLower(a.login)] = a
	if a.installed() {
		s.installations[a.installation] = a
		s.installOrder = append(s.installOrder, a)
	}
}

func (s *Server) restoreRunnerLocked(saved savedRunner) (*runner, error) {
	key, err := x509.ParsePKCS1PublicKey(saved.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the key of runner %q: %w", saved.Name, err)
	}
	sc := s.scopeByPathLocked(saved.Scope)
	if sc == nil {
		return nil, fmt.Errorf("runner %q belongs to %q, which is missing", saved.Name, saved.Scope)
	}
	return s.insertRestoredLocked(saved, sc, key), nil
}

func (s *Server) insertRestoredLocked(saved savedRunner, sc *scope, key *rsa.PublicKey) *runner {
	rn := &runner{
		id: saved.ID, name: saved.Name, scope: sc, labels: newLabelSet(saved.Labels), groupID: saved.GroupID, os: saved.OS,
		workFolder: saved.WorkFolder, clientID: saved.ClientID, key: key, createdAt: saved.CreatedAt, lastContact: saved.LastContact,
		wake: make(chan struct{}), cancelMessage: saved.CancelMessage, cancelDelivered: saved.CancelDelivered,
		busyHiddenUntil: saved.BusyHiddenUntil, removed: saved.Removed, starved: saved.Starved, cleanupAfter: saved.CleanupAfter,
		onlineAt: saved.OnlineAt, sessions: saved.Sessions, given: saved.Given, ran: saved.Ran,
		static: saved.Static, system: saved.System,
	}
	if rn.removed {
		return rn
	}
	if saved.Session != "" {
		rn.session = &session{id: saved.Session, createdAt: saved.CreatedAt}
		rn.lastContact = s.now() // it could not reach us while we were away
		s.watchOfflineLocked(rn)
	}
	sc.insert(rn)
	s.runners[rn.id], s.clients[rn.clientID] = rn, rn
	s.watchCleanupLocked(rn)
	return rn
}

func (s *Server) restoreRunLocked(saved savedRun) (*run, map[string]workflow.Job, error) {
	rp, err := s.repoLocked(saved.Repo)
	if err != nil {
		return nil, nil, err
	}
	sub := saved.Submission
	r := &run{
		id: saved.ID, number: saved.Number, repo: rp, workflowID: workflowID(sub.FileName), fileName: sub.FileName, event: sub.Event,
		branch: sub.Branch, sha: saved.SHA, createdAt: saved.CreatedAt, updatedAt: saved.UpdatedAt, startedAt: saved.StartedAt,
		completedAt: saved.CompletedAt, conclusion: saved.Conclusion, held: saved.Held, byKey: map[string]*job{}, planID: saved.PlanID, submission: sub,
		attempt: max(1, saved.Attempt), attemptedAt: saved.AttemptedAt, carried: saved.Carried,
	}
	file, err := workflow.Load(sub.FileName, []byte(sub.Content))
	if err != nil {
		return nil, nil, err
	}
	r.workflowName = displayName(file, sub.FileName)
	if err := s.planRun(r, file); err != nil {
		return nil, nil, err
	}
	jobs := map[string]workflow.Job{}
	for _, step := range saved.Journal {
		ready, _, _, err := r.plan.apply(step)
		if err != nil {
			return nil, nil, fmt.Errorf("playing the journal of run %d again: %w", r.id, err)
		}
		for _, one := range ready {
			jobs[one.Key] = one
		}
	}
	s.runs[r.id] = r
	s.runOrder = append(s.runOrder, r)
	return r, jobs, nil
}

func (s *Server) restoreJobLocked(saved savedJob, r *run, ready map[string]workflow.Job, runners map[int64]*runner) {
	v := saved.View
	j := &job{
		id: v.ID, run: r, key: v.Key, name: v.Name, labels: newLabelSet(v.Labels), timeout: saved.Timeout, state: saved.State,
		conclusion: v.Conclusion, reason: v.Reason, seq: saved.Seq, createdAt: v.CreatedAt, queuedAt: timeOf(v.QueuedAt),
		assignedAt: saved.AssignedAt, startedAt: timeOf(v.StartedAt), completedAt: timeOf(v.CompletedAt), renewedAt: saved.RenewedAt,
		guid: saved.GUID, requestID: saved.RequestID, messageID: saved.MessageID, acknowledged: saved.Acknowledged,
		runner: runners[saved.Runner], runnerID: v.RunnerID, runnerName: v.RunnerName, groupID: saved.GroupID, groupName: saved.GroupName, token: saved.Token,
		assignments: v.Assignments, acquisitions: v.Acquisitions, acquirers: v.AcquiredBy, repeats: v.RepeatedAcquires,
		lost: v.Lost, cancelling: saved.Cancelling, steps: v.Steps, queueLimit: saved.QueueLimit, cancelAt: saved.CancelAt,
		attempt: max(1, saved.Attempt), requeues: saved.Requeues, given: saved.Given,
	}
	if one, ok := ready[j.key]; ok {
		j.build, j.wants = s.messageBuilder(j, one), one.Group
	}
	r.jobs = append(r.jobs, j)
	r.byKey[j.key] = j
	s.jobs[j.id], s.guids[j.guid] = j, j
	s.jobOrder = append(s.jobOrder, j)
	if j.state == jobCompleted {
		return
	}
	if j.runner != nil {
		j.runner.job = j
		s.requests[j.requestID] = j
	}
	s.resumeJobLocked(j)
}

// resumeJobLocked sets the deadlines of a restored job. The time that the stand-in was down does not count.
func (s *Server) resumeJobLocked(j *job) {
	switch j.state {
	case jobQueued:
		s.enqueueLocked(j)
		s.watchQueuedLocked(j)
	case jobAssigned:
		j.assignedAt = s.now()
		s.watchQueuedLocked(j)
		s.watchAssignedLocked(j)
	case jobInProgress:
		j.renewedAt = s.now()
		s.watchRenewalLocked(j)
		s.watchTimeoutLocked(j)
		s.watchCancelLocked(j)
		if j.cancelling {
			s.watchCancelledLocked(j)
		}
	}
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func (s *Server) restoreTokensLocked(st *savedState, runners map[int64]*runner) {
	for value, saved := range st.AppTokens {
		if a := s.accounts[strings.ToLower(saved.Account)]; a != nil {
			s.appTokens[value] = &installationToken{account: a, expires: saved.Expires}
			s.deadlineLocked(saved.Expires, func() { delete(s.appTokens, value) })
		}
	}
	for value, saved := range st.RunnerTokens {
		if rn := runners[saved.Runner]; rn != nil {
			s.runnerTokens[value] = &runnerToken{runner: rn, job: s.jobs[saved.Job], expires: saved.Expires}
			s.deadlineLocked(saved.Expires, func() { delete(s.runnerTokens, value) })
		}
	}
}

// restore lists what was delivered, and queues what was not.
func (h *hookSender) restore(st *savedState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextID = st.HookSeq
	for i := range st.Deliveries {
		saved := &st.Deliveries[i]
		d := saved.delivery
		d.jobName, d.jobID, d.runID = saved.JobName, saved.JobID, saved.RunID
		d.lost, d.silent, d.slow, d.forged, d.hidden = saved.Lost, saved.Silent, saved.Slow, saved.Forged, saved.Hidden
		d.queue = jobQueueName(d.jobID)
		h.listLocked(&d)
		switch {
		case d.hidden:
		case d.DeliveredAt.IsZero():
			h.enqueueLocked(&d)
		case !d.succeeded():
			h.failures++
		}
	}
}
