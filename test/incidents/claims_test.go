package incidents

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// between holds a server's mints: the first few at GitHub's door, the others when GitHub has minted already. None of them is
// ever answered.
type between struct {
	next        http.RoundTripper
	before      int // the number of jobs that are not requested from GitHub at all
	mu          sync.Mutex
	asked, held int
	never       chan struct{}
}

func (b *between) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/generate-jitconfig") {
		return b.next.RoundTrip(r)
	}
	b.mu.Lock()
	b.asked++
	pass := b.asked > b.before
	b.mu.Unlock()
	if pass {
		answer, err := b.next.RoundTrip(r)
		if err == nil {
			answer.Body.Close()
		}
	}
	b.mu.Lock()
	b.held++
	b.mu.Unlock()
	select {
	case <-b.never:
	case <-r.Context().Done():
	}
	return nil, errNoRoute
}

func (b *between) all(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held == n
}

// inFlight makes a warm pool and a job for each pod, and kills the server when every claim is made and no mint is
// answered.
func inFlight(t *testing.T, warm int, change func(*world, *dispatch.Options)) (*world, []*pod, *run) {
	t.Helper()
	w := newWorld(t)
	held := &between{next: http.DefaultTransport, before: warm / 2, never: make(chan struct{})}
	w.killServer()
	w.newServer(func(o *dispatch.Options) {
		o.Forge = w.client(held)
		if change != nil {
			change(w, o)
		}
	})
	pods := make([]*pod, warm)
	for i := range pods {
		pods[i] = w.add("linux")
	}
	run := w.submit("acme", "linux", warm)
	w.eventually("a mint is under way for every pod", func() bool { return held.all(warm) })
	for _, p := range pods {
		require.Equal(t, fleet.ClaimClaimed, w.claim(p).State)
	}
	w.killServer()
	close(held.never) // what is left of it need not wait
	return w, pods, run
}

// A deploy stops the server while a whole warm pool is between claim and answer: half of the registrations exist, half
// do not, and which is unknown.
func TestDeploy_CLAIM16_AWholeWarmPoolInFlight(t *testing.T) {
	t.Parallel()
	const warm = 6
	w, pods, run := inFlight(t, warm, nil)
	require.Len(t, w.runners(), warm/2, "GitHub has minted for some")
	require.Empty(t, w.leaked(), "no label was written yet")
	w.newServer()
	w.clock.Advance(31 * time.Second) // the leases of the dead end
	run.running()
	for _, p := range pods {
		require.True(t, w.claim(p).State.Live(), "each pod works")
	}
	require.Empty(t, w.uncharged())
	require.Len(t, w.runners(), warm, "what the dead server had registered was removed")
	run.release()
	run.succeed()
	w.eventually("all pods go", func() bool { return len(w.cluster.Pods()) == 0 })

	t.Run("control: the label at the claim, and a recovery of rows alone", func(t *testing.T) {
		w, pods, _ := inFlight(t, warm, func(w *world, o *dispatch.Options) { stampFirst(w)(o) })
		w.write(`DELETE FROM runner_claims WHERE state = 'claimed'`) // what released stale claims
		require.Len(t, w.leaked(), len(pods), "every pod is busy for ever, without a job")
	})
}

// A mint that is refused gives back job and pod; one that is not answered keeps the claim. Neither leaves a label.
func TestMint_CLAIM8_AFailureLeavesNoLabel(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"refused": http.StatusUnprocessableEntity, "uncertain": http.StatusBadGateway} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			refusal := w.fault(standin.Fault{Kind: "rest-status", Route: "generate-jitconfig", Status: status})
			p := w.add("linux")
			run := w.submit("acme", "linux", 1)
			w.eventually("a mint fails", func() bool { return w.struck(refusal) > 0 })
			w.eventually("no mint is in progress", func() bool { return w.claim(p).LeaseUntil.IsZero() })
			if status == http.StatusUnprocessableEntity {
				w.eventually("job and pod are free", func() bool {
					return w.claim(p).State == fleet.ClaimNone && w.state(run.jobs[0]) == fleet.JobQueued
				})
			} else {
				require.Equal(t, fleet.ClaimClaimed, w.claim(p).State, "it may have happened")
			}
			require.Zero(t, w.cluster.StampAttempts(p.UID))
			w.heal()
			w.clock.Advance(time.Minute) // the installation's back-off
			run.running()
			require.Equal(t, run.jobs[0], w.claim(p).JobID, "the same pod does the job")
			run.release()
			run.succeed()
		})
	}
	t.Run("control: the label before the mint", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.killServer()
		w.newServer(stampFirst(w))
		w.fault(standin.Fault{Kind: "rest-status", Route: "generate-jitconfig", Status: http.StatusUnprocessableEntity})
		w.add("linux")
		w.submit("acme", "linux", 1)
		w.eventually("the pod looks busy and is nobody's", func() bool { return len(w.leaked()) == 1 })
	})
}

// The owner label's patch fails once, twice, and more often than it is tried.
func TestLabel_CLAIM6_PatchesThatFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const forever = 1_000_000
	failing := map[string]int{}
	var mu sync.Mutex
	w.cluster.OnStamp(func(p dispatch.Pod) error {
		mu.Lock()
		defer mu.Unlock()
		if failing[p.UID] == 0 {
			return nil
		}
		failing[p.UID]--
		return dispatchtest.ErrAPIServer
	})
	var pods []*pod
	mu.Lock()
	for _, failures := range []int{0, 1, 2, forever} {
		p := w.add("linux")
		failing[p.UID] = failures
		pods = append(pods, p)
	}
	mu.Unlock()
	run := w.submit("acme", "linux", len(pods))
	run.running()
	label := func(p *pod) string {
		shown, _ := w.cluster.Pod(p.UID)
		return shown.OwnerLabel
	}
	for failures, p := range pods[:3] {
		w.eventually("the label is written", func() bool { return label(p) == "acme" })
		require.Equal(t, failures+1, w.cluster.StampAttempts(p.UID), "with a single attempt the job would run without its label")
	}
	stubborn := pods[3]
	// At least: what else happens to the pod may begin another pass.
	w.eventually("three attempts", func() bool { return w.cluster.StampAttempts(stubborn.UID) >= 3 })
	require.Empty(t, label(stubborn))
	require.Equal(t, fleet.ClaimExecuting, w.claim(stubborn).State, "the dispatch did not fail for it")
	mu.Lock()
	failing[stubborn.UID] = 0
	mu.Unlock()
	w.eventually("a later pass notes its owner, and whatever else happens in the background, without the label", func() bool {
		w.clock.Advance(30 * time.Second)
		shown, _ := w.cluster.Pod(stubborn.UID)
		return shown.OwnerID != 0
	})
	require.Empty(t, label(stubborn), "TEN-8: the policies that select the pod change in the middle of its job")
	run.release()
	run.succeed()
	// A pod whose job has ended has its label for as long as it is there.
	w.eventually("no pod has a label without a job", func() bool { return len(w.leaked()) == 0 })
}

// Egress is cut the moment the label appears, in the middle of an answer to the pod.
func TestEgress_CLAIM6_CutAtTheLabel(t *testing.T) {
	t.Parallel()
	const warm = 4
	cutting := func(w *world) (pods map[string]*pod) {
		pods = map[string]*pod{}
		var mu sync.Mutex
		mu.Lock()
		defer mu.Unlock()
		w.cluster.OnStamp(func(p dispatch.Pod) error {
			mu.Lock()
			defer mu.Unlock()
			pods[p.UID].egress.close()
			return nil
		})
		for range warm {
			p := w.add("linux")
			pods[p.UID] = p
		}
		return pods
	}
	w := newWorld(t)
	pods := cutting(w)
	run := w.submit("acme", "linux", warm)
	run.running()
	for _, p := range pods {
		w.eventually("the label is there, and the way to the server is not", p.egress.isCut)
	}
	run.release()
	run.succeed()

	t.Run("control: the label before the answer", func(t *testing.T) {
		w := newWorld(t)
		w.killServer()
		w.newServer(stampFirst(w))
		pods := cutting(w)
		run := w.submit("acme", "linux", warm)
		for _, p := range pods {
			w.eventually("a claim is minted for no job, or was returned by a pod that looks busy", func() bool {
				state := w.claim(p).State
				return p.egress.isCut() && (state == fleet.ClaimMinted || state == fleet.ClaimNone)
			})
			require.NoFileExists(t, p.file("jitconfig"))
		}
		for _, id := range run.jobs {
			require.Equal(t, "queued", w.job(id).Status)
		}
	})
}

// The runner that was minted for a job does another one, and the job ends on the runner that came after it.
func TestRelease_CLAIM8_ByJobIDWouldFreeAWorkingRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fault(standin.Fault{Kind: "assign-different"})
	first, second := w.submit("acme", "linux", 1).known(), w.submit("acme", "linux", 1).known()
	working := w.add("linux") // minted for the first job
	second.running()
	w.heal()
	ended := w.add("linux")
	first.running()
	require.EqualValues(t, first.jobs[0], w.count(`SELECT job_id FROM runner_sessions WHERE pod_uid = $1`, working.UID))
	first.release()
	first.succeed()
	w.eventually("the pod of the ended job is free", func() bool { return !w.claim(ended).State.Live() })
	require.Equal(t, fleet.ClaimExecuting, w.claim(working).State)
	require.Empty(t, w.uncharged())

	// Control: the claim that was made for the job that has ended goes, as it went elsewhere.
	w.write(`DELETE FROM runner_claims WHERE pod_uid IN (SELECT pod_uid FROM runner_sessions WHERE job_id = $1)`, first.jobs[0])
	require.Len(t, w.uncharged(), 1, "a runner is busy, charged to no account and protected by nothing")
	second.release()
}

// The only runner takes another job than the one that it was minted for.
func TestJob_CLAIM9_GivenToAnotherRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fault(standin.Fault{Kind: "assign-different"})
	displaced := w.submit("acme", "linux", 1).known()
	other := w.submit("acme", "linux", 1).known()
	p := w.add("linux")
	other.running()
	require.Equal(t, other.jobs[0], w.claim(p).JobID, "the claim is the pod's slot, and follows what it does")
	require.Equal(t, fleet.JobQueued, w.state(displaced.jobs[0]), "free again at once, while the pod that was meant for it works on")
	w.heal()
	w.add("linux")
	displaced.running()
	require.Equal(t, fleet.JobExecuting, w.state(other.jobs[0]))
	other.release()
	displaced.release()
	other.succeed()
	displaced.succeed()
	require.EqualValues(t, 2, w.count(`SELECT count(*) FROM runner_sessions`), "two jobs, two pods")
}
