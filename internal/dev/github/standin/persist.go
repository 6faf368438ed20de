package standin

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The state file. Runs are kept as their file and the journal of their plan; everything else as it is.

const (
	stateVersion      = 1
	saveEvery         = time.Second
	maxSavedBlobs     = 64 << 20
	maxSavedDelivered = 500
	saveShare         = 20 // saving may take one part of the time in this number
)

type savedState struct {
	Version                     int
	IDs                         map[string]int64
	JobSeq, MessageSeq, HookSeq int64
	Lost, Requeued, Minted      int
	Gone                        []RunnerRecord
	Faults                      []Fault
	Accounts                    []savedAccount
	Runners                     []savedRunner
	Runs                        []savedRun
	Jobs                        []savedJob
	AppTokens                   map[string]savedToken
	RunnerTokens                map[string]savedToken
	Registrations               map[string]savedRegistration
	People                      map[string]PersonalToken
	Calls                       map[string]RouteCalls
	Deliveries                  []savedDelivery
	Blobs                       map[string]savedBlob
}

type savedAccount struct {
	ID, Installation int64
	Login, Kind      string
	InstalledAt      time.Time
	SuspendedAt      time.Time
	Announced        bool
	Repos            []savedRepo
	Formerly         map[string]int64
	Groups, Members  []string
	Access           map[string]GroupAccess
}

type savedRepo struct {
	ID, RunSeq int64
	Name       string
	Public     bool
}

type savedRunner struct {
	ID, GroupID, Job, CancelMessage int64
	Name, Scope, OS, WorkFolder     string
	ClientID, Session               string
	Labels                          []string
	Key                             []byte
	CreatedAt, LastContact          time.Time
	CancelDelivered                 bool
	BusyHiddenUntil                 time.Time
	Removed                         bool // gone, but its job runs on
	Starved                         bool
	CleanupAfter                    time.Duration
	OnlineAt                        time.Time
	Sessions                        int
	Given, Ran                      []int64
	Static                          bool
	System                          []string
}

type savedRun struct {
	ID, Number                                   int64
	Repo, SHA, PlanID, Conclusion                string
	CreatedAt, UpdatedAt, StartedAt, CompletedAt time.Time
	Held                                         bool
	Submission                                   Submission
	Journal                                      []planStep
	Attempt                                      int
	AttemptedAt                                  time.Time
	Carried                                      map[string]carried
}

type savedJob struct {
	View                            JobView
	State, GUID, RequestID, Token   string
	Seq, MessageID, Runner, GroupID int64
	GroupName                       string
	Timeout                         time.Duration
	AssignedAt, RenewedAt           time.Time
	Acknowledged, Cancelling        bool
	QueueLimit                      time.Duration
	CancelAt                        time.Time
	Attempt, Requeues               int
	Given                           []Given
}

type savedToken struct {
	Account     string
	Runner, Job int64
	Expires     time.Time
}

type savedRegistration struct {
	Scope   string
	Remove  bool
	Expires time.Time
}

type savedDelivery struct {
	delivery
	JobName                            string
	JobID, RunID                       int64
	Lost, Silent, Slow, Forged, Hidden bool
}

type savedBlob struct {
	Signature string
	Data      []byte
	Dropped   int64
}

// keepState writes the state file soon after changes, until ctx ends.
func (s *Server) keepState(ctx context.Context) {
	if s.opts.StateFile == "" {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		}
		began := s.now()
		if err := s.saveState(); err != nil {
			s.log.Error("the state was not saved", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.opts.After(max(saveEvery, saveShare*s.now().Sub(began))):
		}
	}
}

// saveState writes the state file: beside it first, then in its place.
func (s *Server) saveState() error {
	if s.opts.StateFile == "" {
		return nil
	}
	data, err := json.Marshal(s.snapshot())
	if err != nil {
		return fmt.Errorf("encoding the stand-in's state: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(s.opts.StateFile), ".standin-*") // readable by its owner only
	if err != nil {
		return fmt.Errorf("saving the stand-in's state: %w", err)
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), s.opts.StateFile)
	}
	if err != nil {
		_ = os.Remove(temporary.Name()) // it is no longer needed
		return fmt.Errorf("saving the stand-in's state: %w", err)
	}
	return nil
}

func (s *Server) snapshot() *savedState {
	st := &savedState{Version: stateVersion}
	s.mu.Lock()
	st.IDs = maps.Clone(s.ids)
	st.JobSeq, st.MessageSeq, st.Lost, st.Requeued, st.Minted = s.jobSeq, s.messageSeq, s.lost, s.requeued, s.minted
	for _, a := range s.accountsLocked() {
		st.Accounts = append(st.Accounts, saveAccount(a))
	}
	st.Gone = s.gone[:len(s.gone):len(s.gone)]
	st.Faults = s.faults.list()
	kept := map[int64]*runner{}
	maps.Copy(kept, s.runners)
	for _, j := range s.jobOrder {
		st.Jobs = append(st.Jobs, saveJob(j))
		if j.runner != nil {
			kept[j.runner.id] = j.runner
		}
	}
	for _, rn := range kept {
		st.Runners = append(st.Runners, saveRunner(rn))
	}
	for _, r := range s.runOrder {
		st.Runs = append(st.Runs, savedRun{
			ID: r.id, Number: r.number, Repo: r.repo.fullName(), SHA: r.sha, PlanID: r.planID, Conclusion: r.conclusion,
			CreatedAt: r.createdAt, UpdatedAt: r.updatedAt, StartedAt: r.startedAt, CompletedAt: r.completedAt,
			Held: r.held, Submission: r.submission, Journal: r.plan.journal[:len(r.plan.journal):len(r.plan.journal)],
			Attempt: r.attempt, AttemptedAt: r.attemptedAt, Carried: r.carried,
		})
	}
	s.saveTokensLocked(st)
	s.saveRegistrationsLocked(st)
	st.Calls = map[string]RouteCalls{}
	for route, c := range s.calls {
		st.Calls[route] = RouteCalls{Calls: c.Calls, ByStatus: maps.Clone(c.ByStatus)}
	}
	s.mu.Unlock()
	s.hooks.save(st)
	s.blobs.save(st)
	return st
}

// accountsLocked lists every account: those that have the App in the order in which they installed it, then the others.
func (s *Server) accountsLocked() []*account {
	out := slices.Clone(s.installOrder)
	had := len(out)
	for _, a := range s.accounts {
		if !a.installed() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out[had:], func(x, y *account) int { return int(x.id - y.id) })
	return out
}

func (s *Server) saveTokensLocked(st *savedState) {
	st.AppTokens, st.RunnerTokens = map[string]savedToken{}, map[string]savedToken{}
	for value, token := range s.appTokens {
		st.AppTokens[value] = savedToken{Account: token.account.login, Expires: token.expires}
	}
	for value, token := range s.runnerTokens {
		saved := savedToken{Runner: token.runner.id, Expires: token.expires}
		if token.job != nil {
			saved.Job = token.job.id
		}
		st.RunnerTokens[value] = saved
	}
}

func (s *Server) saveRegistrationsLocked(st *savedState) {
	st.Registrations, st.People = map[string]savedRegistration{}, map[string]PersonalToken{}
	for value, token := range s.registrations {
		st.Registrations[value] = savedRegistration{Scope: token.scope.path, Remove: token.remove, Expires: token.expires}
	}
	for value, person := range s.people {
		st.People[value] = person.PersonalToken
	}
}

func saveAccount(a *account) savedAccount {
	out := savedAccount{ID: a.id, Installation: a.installation, Login: a.login, Kind: a.kind, InstalledAt: a.installedAt, SuspendedAt: a.suspendedAt, Announced: a.announced,
		Formerly: maps.Clone(a.formerly), Groups: slices.Clone(a.groups), Access: maps.Clone(a.access)}
	for _, member := range a.members {
		out.Members = append(out.Members, member.login)
	}
	for _, r := range sortedRepos(a) {
		out.Repos = append(out.Repos, savedRepo{ID: r.id, RunSeq: r.runSeq, Name: r.name, Public: r.public})
	}
	return out
}

func saveRunner(rn *runner) savedRunner {
	out := savedRunner{
		ID: rn.id, GroupID: rn.groupID, CancelMessage: rn.cancelMessage, Name: rn.name, Scope: rn.scope.path, OS: rn.os,
		WorkFolder: rn.workFolder, ClientID: rn.clientID, Labels: rn.labels.names, Key: x509.MarshalPKCS1PublicKey(rn.key),
		CreatedAt: rn.createdAt, LastContact: rn.lastContact, CancelDelivered: rn.cancelDelivered,
		BusyHiddenUntil: rn.busyHiddenUntil, Removed: rn.removed, Starved: rn.starved, CleanupAfter: rn.cleanupAfter,
		OnlineAt: rn.onlineAt, Sessions: rn.sessions, Given: slices.Clone(rn.given), Ran: slices.Clone(rn.ran), Static: rn.static, System: rn.system,
	}
	if rn.session != nil {
		out.Session = rn.session.id
	}
	if rn.job != nil {
		out.Job = rn.job.id
	}
	return out
}

func saveJob(j *job) savedJob {
	out := savedJob{
		View: j.view(), State: j.state, GUID: j.guid, RequestID: j.requestID, Token: j.token, Seq: j.seq, MessageID: j.messageID,
		GroupID: j.groupID, GroupName: j.groupName, Timeout: j.timeout, AssignedAt: j.assignedAt, RenewedAt: j.renewedAt,
		Acknowledged: j.acknowledged, Cancelling: j.cancelling, QueueLimit: j.queueLimit, CancelAt: j.cancelAt,
		Attempt: j.attempt, Requeues: j.requeues, Given: slices.Clone(j.given),
	}
	if j.runner != nil {
		out.Runner = j.runner.id
	}
	return out
}

func (h *hookSender) save(st *savedState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st.HookSeq = h.nextID
	for i, d := range h.list {
		saved := savedDelivery{
			delivery: *d, JobName: d.jobName, JobID: d.jobID, RunID: d.runID,
			Lost: d.lost, Silent: d.silent, Slow: d.slow, Forged: d.forged, Hidden: d.hidden,
		}
		if len(h.list)-i > maxSavedDelivered && !d.DeliveredAt.IsZero() || d.hidden {
			saved.Payload, saved.Headers, saved.Answer, saved.AnswerHead = nil, nil, "", nil // the ledger's part stays
		}
		st.Deliveries = append(st.Deliveries, saved)
	}
}

func (b *blobStore) save(st *savedState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st.Blobs = map[string]savedBlob{}
	room := maxSavedBlobs
	for id, entry := range b.blobs {
		saved := savedBlob{Signature: entry.signature, Data: entry.data[:len(entry.data):len(entry.data)], Dropped: entry.dropped}
		if room -= len(saved.Data); room < 0 {
			saved.Data, saved.Dropped = nil, saved.Dropped+int64(len(entry.data))
		}
		st.Blobs[id] = saved
	}
}
