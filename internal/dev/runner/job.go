package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

const (
	renewEvery = 60 * time.Second
	// lockPatience is how long past its lock's end a job runs on while renewing fails.
	lockPatience = 5 * time.Minute
	// cancelPatience is how long a cancelled job's last steps may take unless the order says otherwise.
	cancelPatience = 5 * time.Minute
	acquireTries   = 5
	renewTries     = 6 // of the first renewal
	completeTries  = 10
)

// errNothingToDo ends an ephemeral runner whose only job went elsewhere: GitHub's listener exits with 0 then.
var errNothingToDo = errors.New("the job this runner was made for went elsewhere")

// runService is the service that owns a job.
type runService struct {
	caller
	url string
}

// take acknowledges, acquires, runs and completes the job of a message. ran is true once the job was ours.
func (r *Runner) take(ctx context.Context, m *message) (ran bool, err error) {
	ref, err := m.jobRef()
	if err != nil {
		return false, err
	}
	if ref.ShouldAcknowledge {
		switch err := r.broker.acknowledge(ctx, ref.RunnerRequestID); {
		case errors.Is(err, errJobGone) && r.config.Ephemeral:
			return false, errNothingToDo
		case errors.Is(err, errJobGone) || fatal(err):
			return false, err
		case err != nil: // best effort: acquiring decides
			r.opts.Log.Warn("acknowledging the job failed", "error", err)
		}
	}
	raw, err := r.acquire(ctx, ref)
	if err != nil {
		return false, err
	}
	msg, service, err := r.read(raw)
	if err != nil {
		return false, err
	}
	lockedUntil, err := r.firstRenewal(ctx, msg, service)
	if err != nil {
		// GitHub's listener abandons the job then: no worker starts, and an ephemeral one ends.
		r.opts.Log.Error("the job's lock could not be renewed, so the job is not started", "job", msg.JobID, "error", err)
		return true, ctx.Err()
	}
	if r.opts.WorkerAfter > 0 {
		if err := r.pause(ctx, r.opts.WorkerAfter, 1); err != nil {
			r.opts.Log.Error("stopped before the worker was started: the job is lost", "job", msg.JobID)
			return false, err
		}
	}
	r.say("%s: Running job: %s", r.opts.Now().UTC().Format("2006-01-02 15:04:05Z"), msg.JobDisplayName)
	r.runJob(ctx, msg, service, lockedUntil, func(stop *stopper) {
		if len(r.opts.Worker) > 0 {
			r.delegate(ctx, raw, msg, service, stop)
			return
		}
		r.finish(ctx, msg, service, stop)
	})
	return true, nil
}

// read makes sense of a job that was acquired.
func (r *Runner) read(raw []byte) (*workflow.Message, runService, error) {
	msg, err := workflow.ParseJobMessage(raw)
	if err != nil {
		return nil, runService{}, err
	}
	endpoint, ok := msg.Endpoint(workflow.SystemConnection)
	if !ok || !webURL(endpoint.URL) {
		return nil, runService{}, fmt.Errorf("reading job %s: it names no %s", msg.JobID, workflow.SystemConnection)
	}
	return msg, runService{caller{r.opts.HTTP, fixedToken(endpoint.Authorization.Parameters["AccessToken"])}, endpoint.URL}, nil
}

// finish runs a job's steps and reports its end, also when the runner is being stopped: no other process can.
func (r *Runner) finish(ctx context.Context, msg *workflow.Message, service runService, stop *stopper) {
	outcome := r.execute(msg, stop)
	r.say("%s: Job %s completed with result: %s", r.opts.Now().UTC().Format("2006-01-02 15:04:05Z"), msg.JobDisplayName, outcome.Conclusion)
	r.report(ctx, msg, service, outcome)
}

func (r *Runner) report(ctx context.Context, msg *workflow.Message, service runService, outcome completion) {
	if err := r.complete(context.WithoutCancel(ctx), service, outcome); err != nil {
		r.opts.Log.Error("the job ended, but the service does not know; it will time the job out", "job", msg.JobID, "error", err)
	}
}

// acquire fetches the job. A job that another runner has is errJobGone; other failures are retried a few
// times.
func (r *Runner) acquire(ctx context.Context, ref jobRef) ([]byte, error) {
	in := map[string]string{"jobMessageId": ref.RunnerRequestID, "runnerOS": osName(), "billingOwnerId": ref.BillingOwnerID}
	// GitHub's listener has a connection of its own to the run service, with a token of its own.
	service := caller{r.opts.HTTP, &tokens{config: r.config, http: r.opts.HTTP, now: r.opts.Now}}
	for try := 1; ; try++ {
		var raw json.RawMessage
		_, err := service.call(ctx, "acquiring a job", http.MethodPost, join(ref.RunServiceURL, "acquirejob"), in, &raw, callTimeout)
		if err == nil {
			return raw, nil
		}
		if errors.Is(err, errJobGone) || fatal(err) || ctx.Err() != nil || try == acquireTries {
			return nil, err
		}
		r.opts.Log.Warn("acquiring the job failed", "error", err, "try", try)
		if err := r.pause(ctx, time.Second<<try, 1.5); err != nil {
			return nil, err
		}
	}
}

// completion is the body of completejob.
type completion struct {
	PlanID      string                       `json:"planId"`
	JobID       string                       `json:"jobId"`
	Conclusion  string                       `json:"conclusion"` // succeeded, failed, canceled
	Outputs     map[string]workflow.Variable `json:"outputs"`
	StepResults []stepResult                 `json:"stepResults"`
	Annotations []annotation                 `json:"annotations"`
}

type stepResult struct {
	ExternalID  string       `json:"external_id"`
	Number      int          `json:"number"`
	Name        string       `json:"name"`
	Status      string       `json:"status"`
	Conclusion  string       `json:"conclusion,omitempty"`
	StartedAt   string       `json:"started_at,omitempty"`
	CompletedAt string       `json:"completed_at,omitempty"`
	LogLines    int64        `json:"completed_log_lines,omitempty"`
	Annotations []annotation `json:"annotations,omitempty"`
}

// annotation is a note at a place in the code.
type annotation struct {
	Level       string `json:"level"` // NOTICE, WARNING, FAILURE
	Message     string `json:"message"`
	RawDetails  string `json:"rawDetails,omitempty"` // the title
	Path        string `json:"path,omitempty"`
	StartLine   int64  `json:"startLine,omitempty"`
	EndLine     int64  `json:"endLine,omitempty"`
	StartColumn int64  `json:"startColumn,omitempty"`
	EndColumn   int64  `json:"endColumn,omitempty"`
}

func (r *Runner) complete(ctx context.Context, service runService, outcome completion) error {
	for try := 1; ; try++ {
		_, err := service.call(ctx, "completing the job", http.MethodPost, join(service.url, "completejob"), outcome, nil, callTimeout)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errJobGone):
			r.opts.Log.Warn("the service no longer has the job that ended", "error", err)
			return nil
		case try == completeTries:
			return fmt.Errorf("giving up after %d tries: %w", try, err)
		}
		r.opts.Log.Warn("completing the job failed", "error", err, "try", try)
		if err := r.pause(ctx, min(time.Second<<(try-1), 10*time.Second), 1.5); err != nil {
			return err
		}
	}
}

// stopper ends a job: gently first, so that steps that clean up still run, then, some time later, for good.
type stopper struct {
	once   sync.Once
	gentle chan struct{} // closed when the job is cancelled
	hard   context.Context
	kill   context.CancelFunc
	reason string // set before gentle is closed
	after  func(time.Duration) <-chan time.Time
}

func newStopper(after func(time.Duration) <-chan time.Time) *stopper {
	s := &stopper{gentle: make(chan struct{}), after: after}
	s.hard, s.kill = context.WithCancel(context.Background())
	return s
}

// cancel cancels the job; the first reason counts. The caller's wait group owns the goroutine that ends it for good.
func (s *stopper) cancel(wg *sync.WaitGroup, reason string, patience time.Duration) {
	s.once.Do(func() {
		s.reason = reason
		close(s.gentle)
		wg.Go(func() {
			select {
			case <-s.after(patience):
				s.kill()
			case <-s.hard.Done():
			}
		})
	})
}

func (s *stopper) cancelled() bool {
	select {
	case <-s.gentle:
		return true
	default:
		return false
	}
}

// ended reports whether the cancelled job's time is up.
func (s *stopper) ended() bool { return s.hard.Err() != nil }

// runJob has the steps run while it renews the job's lock and listens for its cancellation.
func (r *Runner) runJob(ctx context.Context, msg *workflow.Message, service runService, lockedUntil time.Time, steps func(*stopper)) {
	stop := newStopper(r.opts.After)
	// The companions outlive ctx: a job that is being cancelled still needs its lock.
	companions, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.renew(companions, msg, service, lockedUntil, stop, &wg) })
	wg.Go(func() { r.listenForCancel(companions, msg, stop, &wg) })
	wg.Go(func() { r.watchShutdown(ctx, companions, msg, stop, &wg) })
	steps(stop)
	end()
	stop.kill()
	wg.Wait()
}

// watchShutdown cancels the job when the runner is asked to stop, and when its time is up.
func (r *Runner) watchShutdown(ctx, companions context.Context, msg *workflow.Message, stop *stopper, wg *sync.WaitGroup) {
	var timeUp <-chan time.Time
	minutes, err := strconv.ParseFloat(msg.Variables[workflow.VarTimeout].Value, 64)
	if err == nil && minutes > 0 {
		timeUp = r.opts.After(time.Duration(minutes * float64(time.Minute)))
	}
	select {
	case <-companions.Done():
	case <-ctx.Done():
		stop.cancel(wg, "The runner has received a shutdown signal.", cancelPatience)
	case <-timeUp:
		stop.cancel(wg, fmt.Sprintf("The job has exceeded the maximum execution time of %gm.", minutes), cancelPatience)
	}
}

// renew takes the job's lock for some more minutes.
func (s runService) renew(ctx context.Context, msg *workflow.Message) (lockedUntil time.Time, err error) {
	in := map[string]string{"planId": msg.Plan.PlanID, "jobId": msg.JobID}
	var out struct {
		LockedUntil time.Time `json:"lockedUntil"`
	}
	_, err = s.call(ctx, "renewing the job", http.MethodPost, join(s.url, "renewjob"), in, &out, callTimeout)
	return out.LockedUntil, err
}

// firstRenewal makes sure that the job is ours before its worker starts, as GitHub's listener does.
func (r *Runner) firstRenewal(ctx context.Context, msg *workflow.Message, service runService) (lockedUntil time.Time, err error) {
	for try := 1; ; try++ {
		until, err := service.renew(ctx, msg)
		switch {
		case err == nil:
			return until, nil
		case errors.Is(err, errJobGone), ctx.Err() != nil, try == renewTries:
			return time.Time{}, err
		}
		r.opts.Log.Warn("renewing the job for the first time failed", "error", err, "try", try)
		if err := r.pause(ctx, time.Second, 10); err != nil {
			return time.Time{}, err
		}
	}
}

// renew keeps the job's lock. When the service says that the job is gone, or the lock has long expired, the job is
// cancelled: another runner may run it by now.
func (r *Runner) renew(ctx context.Context, msg *workflow.Message, service runService, lockedUntil time.Time, stop *stopper, wg *sync.WaitGroup) {
	for {
		select {
		case <-r.opts.After(renewEvery):
		case <-ctx.Done():
			return
		}
		until, err := service.renew(ctx, msg)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			lockedUntil = until
		case errors.Is(err, errJobGone), r.opts.Now().After(lockedUntil.Add(lockPatience)):
			r.opts.Log.Error("the job's lock is lost, cancelling it", "error", err)
			stop.cancel(wg, "The runner has lost the job's lock.", cancelPatience)
			return
		default:
			r.opts.Log.Warn("renewing the job failed", "error", err)
		}
	}
}

// listenForCancel polls as a busy runner and cancels the job when a message asks for it.
func (r *Runner) listenForCancel(ctx context.Context, msg *workflow.Message, stop *stopper, wg *sync.WaitGroup) {
	for {
		m, err := r.nextMessage(ctx, "Busy")
		if err != nil {
			if ctx.Err() == nil {
				// The registration was removed while the job runs. The job has its own token and lock: let it finish.
				r.opts.Log.Warn("no more messages for this runner, the job runs on", "error", err)
			}
			return
		}
		if m.Type != messageCancel {
			r.opts.Log.Debug("ignoring a message while busy", "type", m.Type)
			continue
		}
		var order cancelOrder
		if err := json.Unmarshal([]byte(m.Body), &order); err != nil || !strings.EqualFold(order.JobID, msg.JobID) {
			r.opts.Log.Warn("ignoring a cancellation of another job")
			continue
		}
		stop.cancel(wg, "The operation was canceled.", dotnetDuration(order.Timeout, cancelPatience))
	}
}

// dotnetDuration reads "[d.]hh:mm:ss[.fff]"; what it cannot read is the fallback.
func dotnetDuration(text string, fallback time.Duration) time.Duration {
	days := 0
	if d, rest, ok := strings.Cut(text, "."); ok && !strings.Contains(d, ":") {
		n, err := strconv.Atoi(d)
		if err != nil || n < 0 || n > 365 {
			return fallback
		}
		days, text = n, rest
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return fallback
	}
	d, err := time.ParseDuration(parts[0] + "h" + parts[1] + "m" + parts[2] + "s")
	if err != nil || d < 0 {
		return fallback
	}
	return d + time.Duration(days)*24*time.Hour
}
