package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// PollOptions of Poll. The zero value of an optional field takes its default.
type PollOptions struct {
	// URL is the server's base address.
	URL string
	// TokenFile is re-read for every request: the kubelet rotates it.
	TokenFile string
	// JITFile is where the configuration is staged.
	JITFile string
	// StatusDir is where the supervisor leaves its signs; the directory of JITFile when empty.
	StatusDir string
	// RunnerUID and RunnerGID own the staged file; below zero: the owner of the shared directory when we are root,
	// else ourselves.
	RunnerUID, RunnerGID int
	// Space measures the file system of a directory; optional. The poller asks for work only while there is room: 256 MiB,
	// or a twentieth of a file system smaller than 5 GiB.
	Space func(dir string) (Space, error)
	// Transport of the requests; optional.
	Transport http.RoundTripper
	// Timeout of one poll; runnerapi.PollClientTimeout when zero.
	Timeout time.Duration
	// AcknowledgeWait is how long the server's answer to the acknowledgement is waited for in all; runnerapi.AcknowledgeWait when zero.
	AcknowledgeWait time.Duration
	// Sleep waits, or returns ctx's error; optional.
	Sleep func(ctx context.Context, d time.Duration) error
	// Random returns a number in [0, 1); optional.
	Random func() float64
	// Now is the clock; optional.
	Now func() time.Time
	// Log; discarded when nil.
	Log *slog.Logger
}

// Waiting times of the poller.
const (
	backoffFirst   = 250 * time.Millisecond // doubles with each failure in a row
	backoffLongest = 10 * time.Second
	longestAsked   = time.Minute            // of a Retry-After that is followed
	emptySpacing   = 500 * time.Millisecond // between polls that a server answers 204 at once
	ackAttempts    = 3
	ackPause       = 100 * time.Millisecond
	endAttempts    = 12 // to end the runner's container when nothing can be handed over
	endPause       = 5 * time.Second
	lookForRunner  = 250 * time.Millisecond // where the kernel cannot tell
)

func (o PollOptions) withDefaults() (PollOptions, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return o, errors.New("invalid server URL: expected https://HOST:PORT")
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.TokenFile == "" {
		return o, errors.New("missing token file: set $BULLPEN_TOKEN_FILE or --token-file")
	}
	if o.JITFile == "" {
		return o, errors.New("missing shared directory: set $BULLPEN_SHARED_DIR or --shared-dir")
	}
	if o.Space == nil {
		o.Space = spaceOf
	}
	if o.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.Proxy = nil // the server is inside the cluster; a proxy for the internet must not see the token
		o.Transport = transport
	}
	if o.Timeout == 0 {
		o.Timeout = runnerapi.PollClientTimeout
	}
	if o.AcknowledgeWait == 0 {
		o.AcknowledgeWait = runnerapi.AcknowledgeWait
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Poll asks the server for work until it has an answer, stages it, acknowledges, releases it to the supervisor and returns:
// it never asks again after an answer. The server answers the acknowledgement when the pod has its owner label, so that the
// runner starts with it (TEN-8). It asks only while the supervisor waits in the runner's container, and there is room on
// the shared directory's disk. nil (exit 0) means that the server's answer is staged: a configuration, or an empty file
// when it does not need this pod, which ends the runner's container too. Everything else is an *ExitError, so that the
// pod's status distinguishes a poller that has delivered from one that has not:
//
//   - 1, the token is not accepted; an empty file is staged, so that the pod ends and is replaced;
//   - 1, the answer cannot be staged; it is not acknowledged either, and an empty file is staged if that can be;
//   - 143, ctx ended first. Nothing is staged: the pod is being stopped and the runner's container has a signal of its
//     own. A configuration that was on its way is handed out again, or its registration removed (CLAIM-7).
func Poll(ctx context.Context, options PollOptions) error {
	options, err := options.withDefaults()
	if err != nil {
		return fail("starting the poller: %v", err)
	}
	p := &poller{PollOptions: options, files: filesIn(options.JITFile, options.StatusDir)}
	if err := p.files.check(); err != nil {
		return fail("starting the poller: %v", err)
	}
	if p.to, err = runnerOwner(p.files.dir(), owner{options.RunnerUID, options.RunnerGID}); err != nil {
		return fail("starting the poller: %v", err)
	}
	if exists(p.files.staged) || exists(p.files.jit) || exists(p.files.taken) {
		p.Log.Info("a response was already stored; not polling again")
		p.release()
		return nil
	}
	// Redirects are not followed: one could carry the token elsewhere.
	p.client = &http.Client{Transport: options.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return p.loop(ctx)
}

type poller struct {
	PollOptions
	client   *http.Client
	files    files
	to       owner
	failures int
	sequence int64 // of the last request
}

func (p *poller) loop(ctx context.Context) error {
	// Checked once more after a wait for room: a supervisor that has exited in between runs no job.
	for p.awaitRunner(ctx) && p.awaitRoom(ctx) && p.awaitRunner(ctx) {
		began := p.Now()
		got := p.ask(ctx)
		switch got.kind {
		case answerJIT:
			return p.deliver(ctx, got.dispatch)
		case answerGone:
			p.Log.Info("the server has no job for this pod", "status", got.status)
			return p.stage(nil)
		case answerRefused:
			p.endRunner(ctx)
			return fail("the server rejects this pod's token (status %d)", got.status)
		}
		if err := p.Sleep(ctx, p.pause(got, p.Now().Sub(began))); err != nil {
			break
		}
	}
	return &ExitError{Code: exitSignalBase + int(syscall.SIGTERM), Text: "stopped before an answer came"}
}

// awaitRunner returns true while the supervisor waits in the runner's container, and false when ctx ended. Work that is
// fetched for a container whose image is still being pulled, or which has ended, is a job that never runs.
func (p *poller) awaitRunner(ctx context.Context) bool {
	if ctx.Err() != nil || exists(p.files.idle) {
		return ctx.Err() == nil
	}
	p.Log.Info("waiting for the runner's container")
	every := lookForRunner
	var events <-chan struct{}
	if !p.files.apart() {
		appeared, stop, err := watch(p.files.dir())
		if err == nil {
			defer stop()
			events, every = appeared, lookAnyway
		}
	}
	look := time.NewTicker(every)
	defer look.Stop()
	for !exists(p.files.idle) {
		select {
		case <-ctx.Done():
			return false
		case <-events:
		case <-look.C:
		}
	}
	return true
}

// pause is how long to wait before the next poll.
func (p *poller) pause(got result, took time.Duration) time.Duration {
	switch got.kind {
	case answerNone:
		p.failures = 0
		// A server that holds its polls is asked again at once; one that does not must not be hammered.
		return max(0, emptySpacing-max(0, took)) + time.Duration(p.Random()*float64(20*time.Millisecond))
	case answerLater:
		p.Log.Warn("the server asks to retry later", "status", got.status, "after", got.after)
		p.failures++
		if got.after > 0 {
			return min(got.after, longestAsked) + time.Duration(p.Random()*float64(time.Second))
		}
	default:
		p.Log.Warn("polling failed, retrying", "status", got.status, "error", got.err)
		p.failures++
	}
	longest := min(backoffLongest, backoffFirst<<min(p.failures-1, 10))
	return 10*time.Millisecond + time.Duration(p.Random()*float64(longest))
}

// stage puts an answer where the supervisor takes it at once.
func (p *poller) stage(content []byte) error { return p.stageAt(p.files.jit, content) }

func (p *poller) stageAt(path string, content []byte) error {
	if err := stage(path, content, p.to); err != nil {
		return fail("storing the server's response in %s: %v", p.files.dir(), withoutPath(err))
	}
	return nil
}

// endRunner lets the runner's container end, so that a pod which will get no work is replaced. An empty file often fits
// where a configuration did not, and a full disk may be emptied.
func (p *poller) endRunner(ctx context.Context) {
	for attempt := 1; ; attempt++ {
		err := p.stage(nil)
		if err == nil {
			return
		}
		p.Log.Error("stopping the runner's container", "attempt", attempt, "error", err)
		if attempt == endAttempts || p.Sleep(ctx, endPause) != nil {
			return
		}
	}
}

// deliver stages the configuration, says so, and only then has the runner start.
func (p *poller) deliver(ctx context.Context, got runnerapi.Dispatch) error {
	if err := p.stageAt(p.files.staged, []byte(got.JITConfig)); err != nil {
		p.endRunner(ctx)
		return err // not acknowledged: the server must not assume that a runner starts
	}
	p.Log.Info("stored a configuration", "runner", got.RunnerName, "generation", got.Generation)
	// From here a stop changes nothing: what is staged is staged, and says so.
	p.acknowledge(context.WithoutCancel(ctx), got.Generation)
	p.release() // TEN-8
	return nil
}

// release has the supervisor start the runner. If that fails, the supervisor takes what is staged after releasePatience.
func (p *poller) release() {
	if err := p.files.release(); err != nil {
		p.Log.Error("releasing the configuration", "error", withoutPath(err))
	}
}

// acknowledge is best effort, and returns when the runner may start. A failure is retried while time is left: that this
// container terminates says the same as an acknowledgement.
func (p *poller) acknowledge(ctx context.Context, generation int64) {
	ctx, cancel := context.WithTimeout(ctx, p.AcknowledgeWait)
	defer cancel()
	for attempt := 1; ; attempt++ {
		status, err := p.acknowledgeOnce(ctx, generation)
		if err == nil && (status < 300 || status == http.StatusConflict || status == http.StatusGone) {
			return
		}
		p.Log.Warn("the acknowledgement failed", "attempt", attempt, "status", status, "error", err)
		if attempt == ackAttempts || p.Sleep(ctx, ackPause) != nil {
			return
		}
	}
}
