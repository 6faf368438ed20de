package standin

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const scaleWorkflow = `
on: push
jobs:
  test:
    runs-on: [self-hosted, linux]
    strategy:
      matrix:
        a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        b: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    steps:
      - run: "true"
`

// addIdle registers a runner that is online and polls, without a client.
func (s *Server) addIdle(key *rsa.PublicKey, name string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	rn := &runner{
		id: s.nextIDLocked("runner", 1), name: name, scope: s.accounts["acme"].scope, labels: newLabelSet([]string{"self-hosted", "linux", "x64"}),
		clientID: name, key: key, createdAt: s.now(), wake: make(chan struct{}), session: &session{id: name}, polls: 1, lastContact: s.now(),
	}
	rn.scope.insert(rn)
	s.runners[rn.id], s.clients[rn.clientID] = rn, rn
	s.settleRunnerLocked(rn)
	s.matchRunnerLocked(rn)
	return rn
}

// BenchmarkJobs measures what one job costs the stand-in from its queueing to its end, with 2,000 idle runners online
// and 10,000 jobs in the queue.
func BenchmarkJobs(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(b, err)
	s, err := New(Options{
		URL: "http://standin.test", AppID: 1, AppKey: &key.PublicKey, MaxDeliveries: 1000,
		Installations: []Installation{{Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(b, err)
	made := 0
	add := func() *runner {
		made++
		return s.addIdle(&key.PublicKey, fmt.Sprintf("runner-%d", made))
	}
	submit := func(count int) {
		_, err := s.Submit(Submission{Content: scaleWorkflow, Repo: "acme/app", Count: count})
		require.NoError(b, err)
	}
	for range 2000 {
		add()
	}
	submit(60) // 12,000 jobs: 2,000 are assigned at once, 10,000 wait
	require.Equal(b, 2000, s.State().Busy)
	b.ResetTimer()
	for i := range b.N {
		if i%200 == 199 {
			submit(1)
		}
		rn := s.firstBusy()
		s.mu.Lock()
		j := rn.job
		s.startLocked(j)
		s.finishLocked(j, concludedSuccess, "", nil)
		s.mu.Unlock()
		require.Equal(b, jobAssigned, add().job.state, "the runner that takes its place gets a job at once")
	}
}

func (s *Server) firstBusy() *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accounts["acme"].scope.ordered[0]
}

// BenchmarkSave measures writing the state of 400 queued jobs and their webhooks.
func BenchmarkSave(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(b, err)
	s, err := New(Options{
		URL: "http://standin.test", AppID: 1, AppKey: &key.PublicKey, StateFile: filepath.Join(b.TempDir(), "state.json"),
		Installations: []Installation{{Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(b, err)
	_, err = s.Submit(Submission{Content: scaleWorkflow, Repo: "acme/app", Count: 2})
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, s.saveState())
	}
}
