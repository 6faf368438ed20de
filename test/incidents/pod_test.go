package incidents

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/agent"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// pod is a runner pod: the agent's poller, then the development runner.
type pod struct {
	dispatch.Pod
	w      *world
	dir    string
	egress *egress
	ended  chan struct{} // its poller has ended
	done   chan struct{} // all of it has
	stop   context.CancelFunc
	code   int // of the poller
}

// podOptions say what is wrong with a pod.
type podOptions struct {
	neverRegisters bool // its runner hangs before it speaks to GitHub
	transport      http.RoundTripper
}

// add makes a warm pod that polls.
func (w *world) add(pool string, change ...func(*podOptions)) *pod {
	w.t.Helper()
	options := podOptions{transport: w}
	for _, f := range change {
		f(&options)
	}
	uid := uuid.NewString()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pod{
		Pod: dispatch.Pod{Namespace: "runners", Name: pool + "-" + uid[:8], UID: uid, Pool: dispatch.PoolRef{Namespace: "runners", Name: pool}},
		w:   w, dir: w.t.TempDir(), egress: &egress{next: options.transport}, ended: make(chan struct{}), done: make(chan struct{}), stop: cancel,
	}
	require.NoError(w.t, os.WriteFile(p.file("token"), []byte(uid), 0o600))
	require.NoError(w.t, os.WriteFile(p.file("runner.idle"), nil, 0o600))
	w.cluster.ChangePod(uid, func(q *dispatch.Pod) { *q = p.Pod })
	var running sync.WaitGroup
	running.Go(func() { p.live(ctx, options) })
	w.t.Cleanup(func() { cancel(); await.Return(w.t, running.Wait, "the parts stop") })
	return p
}

func (p *pod) file(name string) string { return filepath.Join(p.dir, name) }

// live is a pod's life, as its node agent would show it.
func (p *pod) live(ctx context.Context, options podOptions) {
	defer close(p.done)
	err := agent.Poll(ctx, agent.PollOptions{
		URL: "http://bullpen.internal", TokenFile: p.file("token"), JITFile: p.file("jitconfig"), Transport: p.egress,
		Sleep: soon, Random: func() float64 { return 0 },
	})
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		p.code = coded.ExitCode()
	}
	if ctx.Err() != nil {
		close(p.ended)
		return
	}
	if p.code == 0 {
		p.w.cluster.ChangePod(p.UID, func(q *dispatch.Pod) { q.PollerEnded = true })
	}
	close(p.ended)
	jit, err := os.ReadFile(p.file("jitconfig"))
	if err == nil && len(jit) > 0 {
		p.work(ctx, options, strings.TrimSpace(string(jit)))
	}
	if ctx.Err() == nil {
		p.gone()
	}
}

func (p *pod) work(ctx context.Context, options podOptions, jit string) {
	if options.neverRegisters {
		<-ctx.Done()
		return
	}
	runner, err := devrunner.New(devrunner.Options{
		JIT: jit, WorkDir: p.dir, FlushEvery: 20 * time.Millisecond, Now: p.w.clock.Now, After: p.w.clock.After,
	})
	if err == nil {
		_ = runner.Run(ctx) // a pod's end, not its exit code, is what counts
	}
}

// gone is what the controller does with a pod that has ended: it tells the server, and deletes it.
func (p *pod) gone() {
	if up := p.w.up(); up != nil {
		_, _ = up.dispatcher.PodStopped(context.Background(), p.UID, p.w.clock.Now(), nil)
	}
	p.w.cluster.DropPod(p.UID)
}

// delivered waits until the pod has a configuration.
func (p *pod) delivered() *pod {
	p.w.t.Helper()
	p.w.eventually("the pod is given a configuration", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	require.Zero(p.w.t, p.code)
	return p
}

// soon waits for a small part of the time, so that what is tried again is tried soon.
func soon(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(min(d, 20*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// egress is a pod's way to the server, which a network policy may cut in the middle of a request.
type egress struct {
	next http.RoundTripper
	mu   sync.Mutex
	cut  bool
	open map[int]context.CancelFunc
	n    int
}

var errNoRoute = errors.New("no route to the server")

func (e *egress) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	e.mu.Lock()
	if e.cut {
		e.mu.Unlock()
		cancel()
		return nil, errNoRoute
	}
	if e.open == nil {
		e.open = map[int]context.CancelFunc{}
	}
	e.n++
	id := e.n
	e.open[id] = cancel
	e.mu.Unlock()
	answer, err := e.next.RoundTrip(r.WithContext(ctx))
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, id)
	if err != nil || e.cut {
		cancel()
		if err == nil {
			answer.Body.Close()
			err = errNoRoute
		}
		return nil, err
	}
	context.AfterFunc(r.Context(), cancel)
	return answer, nil
}

// close cuts it permanently.
func (e *egress) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = true
	for _, cancel := range e.open {
		cancel()
	}
}

func (e *egress) isCut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut
}

func touch(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
}
