package controller_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// crash kills a controller at one of its steps, as SIGKILL would: at the n-th mutating request to the API server or to Bullpen's server,
// either before the request is sent, or after it took effect and before its response is read. From then on none of the controller's
// requests reaches a server.
type crash struct {
	mu     sync.Mutex
	left   int  // requests until it happens; 0 for a controller that lives
	after  bool // the fatal request is carried out
	dead   bool
	buried bool     // another has taken its place
	steps  []string // what was done, for people
}

func newCrash(step int, after bool) *crash {
	return &crash{left: step, after: after}
}

var errDead = errors.New("the process was killed")

// through wraps a transport of the controller.
func (c *crash) through(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		send, answer := c.step(r)
		if !send {
			return nil, errDead
		}
		response, err := next.RoundTrip(r)
		if err == nil && !answer {
			_ = response.Body.Close()
			return nil, errDead
		}
		return response, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// step reports whether a request is sent, and whether its answer arrives.
func (c *crash) step(r *http.Request) (send, answer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false, false
	}
	// Events change no state that another component reads, and their order is not fixed.
	if r.Method == http.MethodGet || filepath.Base(filepath.Dir(r.URL.Path)) == "events" || filepath.Base(r.URL.Path) == "events" {
		return true, true
	}
	c.steps = append(c.steps, r.Method+" "+r.URL.Path)
	if c.left == 0 {
		return true, true
	}
	if c.left--; c.left > 0 {
		return true, true
	}
	c.dead = true
	return c.after, false
}

// startFragile runs a controller that dies as the crash says.
func (b *bench) startFragile(c *crash) {
	b.t.Helper()
	options := b.options()
	options.Config.Wrap(c.through)
	tokenFile := filepath.Join(b.t.TempDir(), "token")
	require.NoError(b.t, os.WriteFile(tokenFile, []byte(fakeToken), 0o600))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	b.t.Cleanup(transport.CloseIdleConnections)
	server, err := serverclient.New(serverclient.Options{
		BaseURL: b.server.http.URL, TokenFile: tokenFile, Timeout: 5 * time.Second,
		HTTPClient: &http.Client{Timeout: await.Limit, Transport: c.through(transport)},
	})
	require.NoError(b.t, err)
	options.Server = server
	b.stop = b.run(options)
}

// POOL-2, EXCL-2, POOL-1: a controller that is killed at any step of a drain and restarted deletes no busy runner, forgets no pod, and
// reaches the same end state as one that was not killed. The steps are counted, so that a new step is covered without a change here.
func TestPool_POOL2_ADrainSurvivesTheControllersDeathAtEachStep(t *testing.T) {
	b := newBench(t)
	b.orphanGrace = 2 * time.Second // nothing that a dead controller of this test has sent takes that long
	const mostSteps = 60
	for step := 1; ; step++ {
		require.Less(t, step, mostSteps, "a drain has no end of steps")
		died := false
		sides := []bool{false, true}
		if !deep.Enabled() {
			sides = sides[step%2 : step%2+1] // by turns before and after the step
		}
		for _, after := range sides {
			died = b.drainWithDeath(fmt.Sprintf("d%d%t", step, after)[:4], newCrash(step, after)) || died
		}
		if !died {
			t.Logf("a drain has %d steps at which to die", step-1)
			require.Greater(t, step, 8, "a pod, a ServiceAccount, a question and a report are steps each, at the least")
			return
		}
	}
}

// drainWithDeath deletes a pool of an idle and a busy runner under a controller that dies on the way, lets another
// finish, and reports whether the first has died at all.
func (b *bench) drainWithDeath(name string, c *crash) bool {
	t := b.t
	b.pool(name, 2)
	names := []string{}
	for _, pod := range b.havePods(name, 2) {
		names = append(names, pod.Name)
	}
	b.makeIdle(names...)
	b.makeBusy(names[1])
	b.stop()
	background := metav1.DeletePropagationBackground
	require.NoError(t, b.admin.Delete(t.Context(), b.get(name), &client.DeleteOptions{PropagationPolicy: &background}))

	b.startFragile(c)
	b.survive("the idle runners go", c, func() bool { return b.onlyBusy(name, names[1]) && len(b.accountNames(name)) == 1 })
	require.False(t, b.poolGone(name), "POOL-2: it waits for its busy runner")
	b.finish(names[1])
	b.survive("the pool goes with its last runner", c, func() bool {
		return b.poolGone(name) && len(b.podNames(name)) == 0 && len(b.accountNames(name)) == 0
	})
	report, reported := b.server.reportOf(names[1])
	require.True(t, reported && report.existed, "POOL-4: reported before it is deleted; the first controller did: %v", c.steps)
	c.disarm()
	b.bury(c)
	return c.happened()
}

// survive waits for what a controller does; when it dies, another takes its place.
func (b *bench) survive(what string, c *crash, condition func() bool) {
	b.t.Helper()
	b.eventually(what, func() bool {
		done := condition()
		b.bury(c)
		return done
	})
}

// bury puts another controller into the place of one that has died.
func (b *bench) bury(c *crash) {
	b.t.Helper()
	if c.happened() && !c.buried {
		b.stop()
		b.start()
		c.buried = true
	}
}

// disarm lets a controller live that has not died by now.
func (c *crash) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = 0
}

// happened reports whether the controller has died.
func (c *crash) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// onlyBusy reports whether the busy runner is the pool's only one; that it is being deleted is the end of the test.
func (b *bench) onlyBusy(pool, busy string) bool {
	b.t.Helper()
	found, others := false, 0
	for _, pod := range b.pods(pool) {
		if pod.Name != busy {
			others++
			continue
		}
		found = true
		require.True(b.t, pod.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodSucceeded, "POOL-2: a busy runner was deleted")
	}
	require.True(b.t, found, "POOL-2: a busy runner is gone")
	return others == 0
}
