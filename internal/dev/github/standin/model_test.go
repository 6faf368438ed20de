package standin

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model drives a server through anything that may happen, without clients, and checks after each step that jobs and
// runners fit together.
type model struct {
	s    *Server
	now  time.Time
	made int
}

const modelWorkflow = `
on: push
jobs:
  %s:
    runs-on: [%s]
    steps: [{run: "true"}]
  after:
    needs: %[1]s
    runs-on: [linux]
    steps: [{run: "true"}]
`

func (m *model) submit(t *rapid.T) {
	_, err := m.s.Submit(Submission{
		Repo:    rapid.SampledFrom([]string{"acme/app", "acme/lib", "octo/solo"}).Draw(t, "repo"),
		Content: fmt.Sprintf(modelWorkflow, "first", rapid.SampledFrom([]string{"linux", "linux, gpu", "macos"}).Draw(t, "labels")),
	})
	require.NoError(t, err)
}

func (m *model) addRunner(t *rapid.T) {
	m.made++
	labels := rapid.SampledFrom([][]string{{"linux"}, {"linux", "gpu"}, {"macOS"}, {"Linux", "macos", "gpu"}}).Draw(t, "labels")
	where := rapid.SampledFrom([]string{"acme", "acme/app", "octo/solo"}).Draw(t, "scope")
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.accounts["acme"].scope
	switch where {
	case "acme/app":
		sc = s.accounts["acme"].repos["app"].scope
	case "octo/solo":
		sc = s.accounts["octo"].repos["solo"].scope
	}
	m.registerLocked(sc, labels, rapid.Bool().Draw(t, "online"))
}

// registerLocked adds a runner, with a session or without.
func (m *model) registerLocked(sc *scope, labels []string, online bool) *runner {
	s := m.s
	rn := &runner{
		id: s.nextIDLocked("runner", 1), name: fmt.Sprintf("r%d", m.made), scope: sc, labels: newLabelSet(labels),
		clientID: fmt.Sprint(m.made), createdAt: s.now(), wake: make(chan struct{}),
	}
	sc.insert(rn)
	s.runners[rn.id], s.clients[rn.clientID] = rn, rn
	s.intendLocked(rn)
	s.watchCleanupLocked(rn)
	if online {
		rn.session, rn.lastContact = &session{id: rn.name}, s.now()
		s.watchOfflineLocked(rn)
		s.settleRunnerLocked(rn)
		s.matchRunnerLocked(rn)
	}
	return rn
}

func (m *model) anyRunner(t *rapid.T) *runner {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	ids := make([]int64, 0, len(m.s.runners))
	for id := range m.s.runners {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Skip("no runner")
	}
	slices.Sort(ids)
	return m.s.runners[rapid.SampledFrom(ids).Draw(t, "runner")]
}

func (m *model) anyJob(t *rapid.T, state string) *job {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	var found []*job
	for _, j := range m.s.jobOrder {
		if j.state == state {
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		t.Skip("no such job")
	}
	return found[rapid.IntRange(0, len(found)-1).Draw(t, "job")]
}

// poll begins or ends a held poll of a runner with a session.
func (m *model) poll(t *rapid.T) {
	rn := m.anyRunner(t)
	if rn.session == nil {
		t.Skip("not online")
	}
	if rn.polls > 0 {
		m.s.endPoll(rn)
		return
	}
	require.NoError(t, m.s.beginPoll(rn, rn.session.id, "Linux", rn.job != nil))
}

func (m *model) acquire(t *rapid.T) {
	j := m.anyJob(t, jobAssigned)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.startLocked(j)
}

func (m *model) complete(t *rapid.T) {
	j := m.anyJob(t, jobInProgress)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.finishLocked(j, rapid.SampledFrom([]string{concludedSuccess, concludedFailure}).Draw(t, "conclusion"), "", nil)
}

func (m *model) cancel(t *rapid.T) {
	j := m.anyJob(t, rapid.SampledFrom([]string{jobQueued, jobAssigned, jobInProgress}).Draw(t, "state"))
	if rapid.Bool().Draw(t, "whole run") {
		require.NoError(t, m.s.CancelRun(j.run.id))
		return
	}
	require.NoError(t, m.s.CancelJob(j.id))
}

// remove takes a registration away as the REST API allows it, or as the "remove-busy" fault does.
func (m *model) remove(t *rapid.T) {
	rn := m.anyRunner(t)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if rn.job != nil && rn.job.state != jobInProgress {
		t.Skip("refused")
	}
	m.s.removeRunnerLocked(rn, removedOffline)
}

func (m *model) endSession(t *rapid.T) {
	rn := m.anyRunner(t)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.endSessionLocked(rn)
}

func (m *model) pass(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second, 2 * time.Minute, 11 * time.Minute, 25 * time.Hour}).Draw(t, "time"))
	m.s.Tick()
}

func (m *model) toggleDifferent(*rapid.T) {
	if m.s.RemoveFault(0) {
		m.outlastHold()
		return
	}
	_, _ = m.s.AddFault(Fault{Kind: FaultAssignDifferent}) // it is valid
}

// outlastHold lets the hold of the "different" fault run out, so that nothing is held back once it is gone.
func (m *model) outlastHold() {
	m.now = m.now.Add(differentHold + time.Second)
	m.s.Tick()
}

func (m *model) check(t *rapid.T) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.faults.active(FaultAssignDifferent, subject{})
	var waiting []*job
	for _, j := range s.jobOrder {
		require.LessOrEqual(t, j.acquisitions, 1, "a job is acquired once")
		require.Equal(t, j.state == jobQueued, j.group != nil, "queued jobs, and only they, are in the queue")
		require.Equal(t, j.state == jobAssigned || j.state == jobInProgress, j.runner != nil, "job %d is %s", j.id, j.state)
		if j.runner != nil {
			require.Same(t, j, j.runner.job)
			require.True(t, j.runner.labels.covers(j.labels))
			require.Equal(t, j.run.repo.owner, j.runner.scope.owner)
			require.True(t, j.runner.scope.repo == nil || j.runner.scope.repo == j.run.repo)
		}
		if j.state == jobQueued {
			waiting = append(waiting, j)
		}
	}
	for _, rn := range s.runners {
		require.False(t, rn.removed)
		require.Same(t, rn, rn.scope.byName[rn.name])
		if rn.job != nil {
			require.Same(t, rn, rn.job.runner)
		}
		if rn.idleGroup == nil {
			continue
		}
		require.Nil(t, rn.job, "an idle runner has no job")
		for _, j := range waiting {
			fits := rn.labels.covers(j.labels) && rn.scope.owner == j.run.repo.owner && (rn.scope.repo == nil || rn.scope.repo == j.run.repo)
			require.False(t, fits && !held, "job %d waits although runner %s is idle", j.id, rn.name)
		}
	}
}

// newModel is a server with two accounts.
func newModel(t require.TestingT, key *rsa.PrivateKey) *model {
	m := &model{now: time.Unix(1_700_000_000, 0)}
	var err error
	m.s, err = New(Options{
		URL: "http://standin.test", AppID: 1, AppKey: &key.PublicKey, Now: func() time.Time { return m.now },
		Installations: []Installation{{Account: "acme", Repositories: []string{"app", "lib"}}, {Account: "octo", Type: typeUser, Repositories: []string{"solo"}}},
	})
	require.NoError(t, err)
	return m
}

// A runner does not acquire its job, which is assigned to another one. It gets a job that only it can run.
func TestAssignment_ARunnerThatIsFreedGetsWhatWaitedForIt(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	m := newModel(t, key)
	s := m.s
	submit := func(runsOn string) {
		_, err := s.Submit(Submission{Repo: "acme/app", Content: "on: push\njobs:\n  one:\n    runs-on: [" + runsOn + "]\n    steps: [{run: 'true'}]\n"})
		require.NoError(t, err)
	}
	register := func(labels ...string) *runner {
		s.mu.Lock()
		m.made++
		rn := m.registerLocked(s.accounts["acme"].scope, labels, true)
		s.mu.Unlock()
		require.NoError(t, s.beginPoll(rn, rn.session.id, "Linux", rn.job != nil))
		return rn
	}
	special := register("linux", "gpu")
	submit("linux")
	require.NotNil(t, special.job)
	submit("linux, gpu")
	register("linux")
	m.now = m.now.Add(time.Second)
	m.s.Tick()
	special.lastContact = m.now // it has been idle for less long than the other
	m.now = m.now.Add(time.Minute)
	m.s.Tick()
	require.NotNil(t, special.job, "a job waits for it")
	require.Equal(t, "gpu\x00linux", special.job.labels.key)
}

func TestModel_JobsAndRunnersFitTogether(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, key)
		t.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "addRunner": m.addRunner, "poll": m.poll, "acquire": m.acquire, "complete": m.complete,
			"cancel": m.cancel, "remove": m.remove, "endSession": m.endSession, "pass": m.pass, "different": m.toggleDifferent,
			"": m.check,
		})
	})
}
