package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/internal/server/restore/rebuild"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

var acme = dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}

const (
	holdFor  = 600 * time.Millisecond
	beat     = 20 * time.Millisecond
	patience = 2 * time.Second
)

var pool = dispatch.Pool{
	Namespace: "runners", Name: "linux", Labels: []string{"linux"}, Platform: fleet.Linux,
	Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1,
}

// world is what outlives servers and databases: GitHub, the cluster, and the copy of the epoch in it.
type world struct {
	t       *testing.T
	forge   *dispatchtest.GitHub
	cluster *dispatchtest.Cluster
	copy    *copied
	pods    int

	mu     sync.Mutex
	missed []time.Time
}

func newWorld(t *testing.T) *world {
	github := dispatchtest.NewGitHub(fleet.Owner{ID: acme.ID, Login: acme.Login, InstallationID: acme.InstallationID})
	github.Shared = []fleet.Repository{{Name: acme.Login + "/app"}}
	cluster := dispatchtest.NewCluster()
	cluster.PutPool(pool)
	return &world{t: t, forge: github, cluster: cluster, copy: &copied{}}
}

// copied is the ConfigMap.
type copied struct {
	mu     sync.Mutex
	mark   epoch.Mark
	unread error
}

func (c *copied) ReadCopy(context.Context) (epoch.Mark, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark, c.mark != epoch.Mark{}, c.unread
}

func (c *copied) WriteCopy(_ context.Context, m epoch.Mark) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark = m
	return c.unread
}

func (c *copied) now() epoch.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

func (c *copied) set(m epoch.Mark, unread error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.unread = m, unread
}

// server is one replica.
type server struct {
	w          *world
	store      *ledger.Store
	dispatcher *dispatch.Dispatcher
	keeper     *epoch.Keeper
	stop       func()
}

// server starts a replica on a database; skew is how wrong its clock is.
func (w *world) server(url string, skew time.Duration) *server {
	w.t.Helper()
	store, err := ledger.Open(w.t.Context(), url, 8)
	require.NoError(w.t, err)
	store.Guard()
	now := func() time.Time { return time.Now().Add(skew) }
	s := &server{w: w, store: store}
	lists, err := roster.New(roster.Options{Forge: w.forge, Ledger: store, Now: now})
	require.NoError(w.t, err)
	builder, err := rebuild.New(rebuild.Options{
		Pods: w.cluster.ListPods, Pool: w.cluster.Pool, Lists: lists, Ledger: store, Forge: w.forge, Now: now,
	})
	require.NoError(w.t, err)
	s.keeper, err = epoch.New(epoch.Options{
		Ledger: store, Copies: w.copy, Rebuild: builder.Run, Hold: holdFor, Beat: beat, Patience: patience, Now: now,
		Unexplained: func(ctx context.Context) (bool, error) {
			for _, pod := range w.cluster.Pods() {
				if known, err := store.Heard(ctx, []string{pod.UID}); err != nil || pod.PollerEnded && len(known) == 0 {
					return true, err
				}
			}
			return false, nil
		},
		Missed: func(_ context.Context, since time.Time) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.missed = append(w.missed, since)
			return nil
		},
		Frozen:  func(string) { store.Restored(); s.dispatcher.LedgerFrozen() },
		Resumed: func() { store.Restored(); s.dispatcher.LedgerResumed() },
	})
	require.NoError(w.t, err)
	s.dispatcher, err = dispatch.New(dispatch.Options{
		Store: store, Forge: w.forge, Cluster: w.cluster, Roster: lists, Gate: s.keeper, Hold: 100 * time.Millisecond,
		Now: now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.dispatcher.Run(ctx) })
	running.Go(func() { _ = s.keeper.Run(ctx) })
	running.Go(func() { ledger.Listen(ctx, url, s.dispatcher, slog.New(slog.DiscardHandler)) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		await.Return(w.t, running.Wait, "the server stops")
		store.Close()
	})
	w.t.Cleanup(s.stop)
	return s
}

func (s *server) frozen() bool {
	_, _, frozen := s.keeper.Frozen()
	return frozen
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	require.Eventually(w.t, check, 20*time.Second, 5*time.Millisecond, what)
}

func (s *server) open() *server {
	s.w.t.Helper()
	s.w.eventually("the server dispatches", func() bool { return !s.frozen() })
	return s
}

func (w *world) pod() dispatch.Pod {
	w.t.Helper()
	w.pods++
	pod := dispatch.Pod{
		Namespace: "runners", Name: fmt.Sprintf("linux-%d", w.pods), UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", w.pods), Pool: pool.Ref(),
	}
	w.cluster.PutPod(pod)
	return pod
}

// install adds the account to the ledger, with room for that many jobs.
func (s *server) install(jobs int64) {
	s.w.t.Helper()
	_, err := s.store.RecordInstallation(s.w.t.Context(), dispatch.Delivery{Event: "installation", At: time.Now()},
		dispatch.Installation{Action: "created", Account: acme})
	require.NoError(s.w.t, err)
	s.limit(jobs)
}

func (s *server) limit(jobs int64) {
	s.w.t.Helper()
	require.NoError(s.w.t, s.store.SetLimits(s.w.t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 1e6, MemoryMB: 1e6, Jobs: jobs}))
}

func (s *server) tell(kind fleet.JobEvent, id int64, runner string, labels ...string) {
	s.w.t.Helper()
	if labels == nil {
		labels = []string{"linux"}
	}
	ev := dispatch.JobEvent{
		Kind: kind, Account: acme, JobID: id, Repository: "acme/app", RunID: 1, RunAttempt: 1, Name: "build",
		Labels: labels, QueuedAt: time.Unix(1_700_000_000+id, 0), RunnerName: runner,
	}
	_, err := s.store.RecordJob(s.w.t.Context(), dispatch.Delivery{Event: "workflow_job", At: time.Now()}, ev)
	require.NoError(s.w.t, err)
}

// serve polls as the agent does, until there is a configuration; the runner's name is returned.
func (s *server) serve(pod dispatch.Pod) string {
	s.w.t.Helper()
	name := ""
	s.w.eventually("pod "+pod.Name+" is served", func() bool {
		answer, err := s.dispatcher.Poll(await.Context(s.w.t), pod, 0)
		if err != nil || answer.Reply != dispatch.ReplyServe {
			return false
		}
		if won, _ := s.dispatcher.Acknowledge(s.w.t.Context(), pod, answer.Generation); won {
			s.dispatcher.Label(s.w.t.Context(), pod)
		}
		s.w.cluster.ChangePod(pod.UID, func(p *dispatch.Pod) { p.PollerEnded = true })
		name = answer.JIT.Name
		return true
	})
	return name
}

// work has a pod execute a job, with or without a report to the ledger.
func (s *server) work(pod dispatch.Pod, job int64) string {
	s.w.t.Helper()
	name := s.serve(pod)
	s.w.forge.Start(name, job)
	s.tell(fleet.JobEventStarted, job, name)
	return name
}

// end has a pod complete its job, and end.
func (s *server) end(pod dispatch.Pod, job int64, runner string) {
	s.w.t.Helper()
	s.tell(fleet.JobEventCompleted, job, runner)
	require.NoError(s.w.t, s.store.PodStopped(s.w.t.Context(), pod.UID, time.Now(), nil))
}

func (s *server) claim(pod dispatch.Pod) dispatch.Claim {
	s.w.t.Helper()
	claim, err := s.store.Claim(s.w.t.Context(), pod.UID)
	require.NoError(s.w.t, err)
	return claim
}

func (s *server) job(id int64) fleet.JobState {
	s.w.t.Helper()
	state, err := s.store.JobState(s.w.t.Context(), id)
	require.NoError(s.w.t, err)
	return state
}

func (s *server) retire(pods ...dispatch.Pod) []runnerapi.RetireAnswer {
	s.w.t.Helper()
	answers, err := s.dispatcher.Retire(s.w.t.Context(), pods)
	require.NoError(s.w.t, err)
	return answers
}

// guardian asks for busy pods again and again, at every server and in both ways, until stop: none may ever be granted.
func (w *world) guardian(servers []*server, pods ...dispatch.Pod) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	granted := make(chan runnerapi.RetireAnswer, 1)
	for _, s := range servers {
		for _, ask := range []func(context.Context, []dispatch.Pod) ([]runnerapi.RetireAnswer, error){
			s.dispatcher.Retire, s.dispatcher.RetireLost,
		} {
			asking.Go(func() {
				for ctx.Err() == nil {
					answers, _ := ask(ctx, pods) // while there is no database there is no answer
					for _, answer := range answers {
						if answer.Verdict == runnerapi.Granted {
							select {
							case granted <- answer:
							default:
							}
						}
					}
				}
			})
		}
	}
	return func() {
		w.t.Helper()
		cancel()
		await.Return(w.t, asking.Wait, "the fence answers")
		select {
		case answer := <-granted:
			w.t.Fatalf("a busy runner was granted: %+v", answer)
		default:
		}
	}
}

var errDown = errors.New("away")
