package runner

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// trial is a runner that runs against a service.
type trial struct {
	t       testing.TB
	service *service
	clock   *clock // nil for the real one
	opts    Options
	log     bytes.Buffer
	stop    context.CancelFunc
	done    chan error
}

func newTrial(t testing.TB, fake bool) *trial {
	s := newService(t)
	x := &trial{t: t, service: s, done: make(chan error, 1)}
	x.opts = Options{
		JIT: s.jit(), WorkDir: t.TempDir(), HTTP: s.http.Client(), Random: func() float64 { return 0.5 },
		Log: slog.New(slog.NewTextHandler(&x.log, nil)), Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere"},
	}
	if fake {
		x.clock = newClock()
		x.opts.Now, x.opts.After = x.clock.Now, x.clock.After
	}
	return x
}

func (x *trial) start() {
	x.t.Helper()
	r, err := New(x.opts)
	require.NoError(x.t, err)
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	go func() { x.done <- r.Run(ctx) }()
	x.t.Cleanup(stop)
}

// wait returns how the runner ended, and checks that no secret is in its log.
func (x *trial) wait() error {
	x.t.Helper()
	select {
	case err := <-x.done:
		for _, secret := range []string{"ghs_token", "hunter22", "job-token", "runner-token", "sig=secret", x.service.jit()[:200]} {
			require.NotContains(x.t, x.log.String(), secret)
		}
		return err
	case <-time.After(30 * time.Second):
		require.FailNow(x.t, "the runner does not end", x.log.String())
		return nil
	}
}

// run runs one job to its end and returns its conclusion.
func run(t testing.TB, jobs string) *trial {
	t.Helper()
	x := newTrial(t, false)
	x.service.queue(jobs)
	x.start()
	require.NoError(t, x.wait())
	require.NotNil(t, x.service.completed)
	return x
}

func requireExit(t testing.TB, err error, code int) {
	t.Helper()
	var coded *ExitError
	require.ErrorAs(t, err, &coded)
	require.Equal(t, code, coded.ExitCode(), err.Error())
}

func TestRun_OneJobThenExitZero(t *testing.T) {
	x := run(t, `  a: {runs-on: x, steps: [{run: echo hello}]}`)
	s := x.service
	require.Equal(t, "succeeded", s.completed.Conclusion)
	require.Equal(t, s.job.JobID, s.completed.JobID)
	require.Equal(t, s.job.Plan.PlanID, s.completed.PlanID)
	require.Equal(t, 1, s.count("/broker/acknowledge"))
	require.Equal(t, 1, s.count("/run/acquirejob"))
	require.Equal(t, 1, s.count("/run/completejob"))
	require.Equal(t, 1, s.count("DELETE /broker/session"))
	require.Equal(t, 2, s.tokens, "one for the broker, one for the run service, as GitHub's listener has it")
	require.Contains(t, s.queries[0], "status=Online")
	require.Contains(t, s.queries[0], "disableUpdate=true")
	require.Contains(t, s.queries[1], "status=Busy")
	require.Contains(t, s.bodies["/run/acquirejob"][0], `"jobMessageId":"req-1"`)
	require.Contains(t, s.stepLog("Run echo hello"), "Z hello\n")
	require.Contains(t, s.jobLog(), "Z hello\n")
	require.Contains(t, s.jobLog(), "Runner name: 'warm-1'")
	id := s.stepID("Run echo hello")
	require.Equal(t, s.job.Steps[0].ID, id)
	require.Equal(t, stepUpdate{ExternalID: id, Number: 2, Name: "Run echo hello", Status: 6, Conclusion: 2,
		StartedAt: s.steps[id].StartedAt, CompletedAt: s.steps[id].CompletedAt}, s.steps[id])
	require.Equal(t, float64(strings.Count(s.stepLog("Run echo hello"), "\n")), s.metadata["CreateStepLogsMetadata/"+id]["line_count"])
	require.Contains(t, s.metadata, "CreateJobLogsMetadata/")
	require.DirExists(t, filepath.Join(x.opts.WorkDir, "_work", "shop", "shop"))
	files, err := os.ReadDir(filepath.Join(x.opts.WorkDir, "_work", "_temp", "_runner_file_commands"))
	require.NoError(t, err)
	require.Empty(t, files, "command files are removed")
}

func TestRun_FailedJobExitsZeroToo(t *testing.T) {
	x := run(t, `  a: {runs-on: x, steps: [{run: exit 3}, {run: echo never}]}`)
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Equal(t, "skipped", x.service.conclusions()["Run echo never"])
	require.Equal(t, "Process completed with exit code 3.", x.service.completed.StepResults[1].Annotations[0].Message)
}

func TestRun_NET3_JITConfigIsKeptFromSteps(t *testing.T) {
	x := newTrial(t, false)
	x.opts.Environ = append(x.opts.Environ, "ACTIONS_RUNNER_INPUT_JITCONFIG="+x.opts.JIT)
	x.service.queue(`  a: {runs-on: x, steps: [{run: "env | grep -c ACTIONS_RUNNER_INPUT || echo clean"}, {run: "grep -rl inverse''Q ../../.. || echo nothing on disk"}]}`)
	x.start()
	require.NoError(t, x.wait())
	require.Contains(t, x.service.jobLog(), "Z clean\n")
	require.Contains(t, x.service.jobLog(), "Z nothing on disk\n")
}

func TestRun_StopWhileIdle(t *testing.T) {
	x := newTrial(t, false)
	x.start()
	x.service.await("a poll", func() bool { return x.service.calls["/broker/message"] == 1 })
	x.stop()
	require.NoError(t, x.wait())
	require.Equal(t, 1, x.service.count("DELETE /broker/session"))
}

func TestRun_StopWhileBusyCancelsTheJob(t *testing.T) {
	x := newTrial(t, false)
	x.service.queue(`  a: {runs-on: x, steps: [{run: sleep 1000}, {run: echo tidy, if: always()}, {run: echo never}]}`)
	x.start()
	x.service.awaitStep("Run sleep 1000", "in_progress")
	x.stop()
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Equal(t, map[string]string{"Set up job": "succeeded", "Run sleep 1000": "canceled", "Run echo tidy": "succeeded",
		"Run echo never": "skipped", "Complete job": "succeeded"}, x.service.conclusions())
	require.Contains(t, x.service.completed.Annotations[0].Message, "shutdown signal")
	require.Equal(t, 1, x.service.count("DELETE /broker/session"))
}

func TestRun_RemovedRunnerExitsOne(t *testing.T) {
	for name, set := range map[string]func(*service){
		"no token":   func(s *service) { s.fail("/token", fault{400, "", "invalid_client"}) },
		"no session": func(s *service) { s.fail("/broker/session", fault{404, "actions-broker-listener", "RunnerNotFound"}) },
		"while idle": func(s *service) { s.fail("/broker/message", fault{404, "actions-broker-listener", "RunnerNotFound"}) },
		"put off": func(s *service) {
			s.fail("/broker/message", fault{403, "actions-broker-listener", "HostedRunnerDeprovisioned"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, true)
			set(x.service)
			x.start()
			requireExit(t, x.wait(), ExitTerminated)
			require.Zero(t, x.service.count("DELETE /broker/session"))
		})
	}
}

// As GitHub's runner 2.336.0 was seen to: 7 at the poll when it is asked to tell, and otherwise 1; 1 at the session in either case.
func TestRun_TellsThatItsVersionIsRefusedWhenItIsAskedTo(t *testing.T) {
	for name, c := range map[string]struct {
		path, asked string
		want        int
	}{
		"at the poll":               {"/broker/message", "true", ExitVersionDeprecated},
		"at the poll, not asked":    {"/broker/message", "", ExitTerminated},
		"at the poll, asked not to": {"/broker/message", "false", ExitTerminated},
		"at the session":            {"/broker/session", "true", ExitTerminated},
		"at the session, not asked": {"/broker/session", "", ExitTerminated},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, true)
			if c.asked != "" {
				x.opts.Environ = append(x.opts.Environ, "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE="+c.asked)
			}
			x.service.fail(c.path, fault{403, "actions-broker-listener", "RunnerVersionTooOld"})
			x.start()
			requireExit(t, x.wait(), c.want)
		})
	}
}

// As GitHub's runner: a stop between the job's acquisition and the start of its worker loses the job.
func TestRun_AStopBeforeTheWorkerStartsLosesTheJob(t *testing.T) {
	start := func() *trial {
		x := newTrial(t, true)
		x.opts.WorkerAfter = time.Minute
		x.service.queue(`  a: {runs-on: x, steps: [{run: echo hello}]}`)
		x.start()
		x.service.await("the job is acquired", func() bool { return x.service.calls["/run/acquirejob"] == 1 })
		return x
	}
	x := start()
	x.stop()
	require.NoError(t, x.wait())
	require.Nil(t, x.service.completed)

	x = start()
	x.clock.fire(t, time.Minute, time.Minute)
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
}

func TestRun_SessionConflict(t *testing.T) {
	conflict := fault{409, "actions-broker-listener", ""}
	t.Run("that lasts exits five after four minutes", func(t *testing.T) {
		x := newTrial(t, true)
		for range 20 {
			x.service.fail("/broker/session", conflict)
		}
		x.start()
		began := x.clock.Now()
		for x.clock.Now().Sub(began) < conflictPatience {
			x.clock.fire(t, 30*time.Second, 36*time.Second)
		}
		requireExit(t, x.wait(), ExitSessionConflict)
	})
	t.Run("that ends is waited for", func(t *testing.T) {
		x := newTrial(t, true)
		x.service.fail("/broker/session", conflict, conflict)
		x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
		x.start()
		x.clock.fire(t, 30*time.Second, 36*time.Second)
		x.clock.fire(t, 30*time.Second, 36*time.Second)
		require.NoError(t, x.wait())
		require.Equal(t, "succeeded", x.service.completed.Conclusion)
	})
}

func TestRun_LostConnections(t *testing.T) {
	x := newTrial(t, true)
	// A connection that is not used again is not tried again behind our back.
	x.opts.HTTP = &http.Client{Timeout: await.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
	s := x.service
	s.fail("/token", fault{}, fault{status: 503})
	s.fail("/broker/session", fault{}, fault{status: 401})
	s.fail("/broker/message", fault{}, fault{status: 502}, fault{}, fault{}, fault{}, fault{})
	s.fail("/broker/acknowledge", fault{status: 500})
	s.fail("/run/acquirejob", fault{}, fault{status: 503})
	s.fail("/run/completejob", fault{}, fault{status: 503})
	s.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
	x.start()
	for range 3 { // two tokens and a session are lost; the refused token is replaced at once
		x.clock.fire(t, 30*time.Second, 36*time.Second)
	}
	for range 5 {
		require.Equal(t, 22500*time.Millisecond, x.clock.fire(t, 15*time.Second, 30*time.Second))
	}
	require.Equal(t, 45*time.Second, x.clock.fire(t, 31*time.Second, 60*time.Second), "and longer after five")
	x.clock.fire(t, 2*time.Second, 3*time.Second) // acquirejob
	x.clock.fire(t, 4*time.Second, 6*time.Second)
	x.clock.fire(t, 1200*time.Millisecond, 1500*time.Millisecond) // completejob
	x.clock.fire(t, 2400*time.Millisecond, 3*time.Second)
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", s.completed.Conclusion)
	require.Equal(t, 3, s.tokens)
}

func TestRun_UploadsThatFailDoNotFailTheJob(t *testing.T) {
	x := newTrial(t, true)
	for range 3 {
		x.service.fail("/results/"+stepUpdates, fault{status: 500})
	}
	x.opts.FlushEvery = time.Hour // so that it is the waits between tries that fire
	x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
	x.start()
	x.clock.fire(t, time.Second, time.Second)
	x.clock.fire(t, 2*time.Second, 2*time.Second)
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
	require.Contains(t, x.log.String(), "uploading to the Results service failed")
}

func TestRun_NewSessionWhenTheOldOneIsInvalid(t *testing.T) {
	x := newTrial(t, true)
	x.service.fail("/broker/message", fault{400, "actions-broker-listener", "RunnerSessionInvalid"})
	x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
	x.start()
	require.NoError(t, x.wait())
	require.Equal(t, 2, x.service.count("/broker/session"))
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
}

func TestRun_JobsThatWentElsewhere(t *testing.T) {
	t.Run("unknown at the acknowledgement ends an ephemeral runner", func(t *testing.T) {
		x := newTrial(t, true)
		x.service.fail("/broker/acknowledge", fault{404, "actions-broker-listener", "AcknowledgeJobNotFound"})
		x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
		x.start()
		require.NoError(t, x.wait())
		require.Nil(t, x.service.completed)
		require.Equal(t, 1, x.service.count("DELETE /broker/session"))
	})
	for _, status := range []int{404, 409, 422} {
		t.Run("refused by the run service are skipped with "+http.StatusText(status), func(t *testing.T) {
			x := newTrial(t, true)
			x.service.fail("/run/acquirejob", fault{status, "actions-run-service", ""})
			x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
			x.service.offer()
			x.start()
			x.clock.fire(t, time.Second, 1500*time.Millisecond)
			require.NoError(t, x.wait())
			require.Equal(t, "succeeded", x.service.completed.Conclusion)
			require.Equal(t, 2, x.service.count("/run/acquirejob"))
		})
	}
}

func TestRun_MessagesItDoesNotKnowAreIgnored(t *testing.T) {
	x := newTrial(t, true)
	x.service.messages <- message{Type: "RunnerRefresh", Body: "{}"}
	x.service.messages <- message{Type: messageTokenRefresh}
	x.service.messages <- message{Type: messageJob, Body: "not json"}
	x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
	x.start()
	x.clock.fire(t, time.Second, 1500*time.Millisecond)
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
	require.Equal(t, 3, x.service.tokens, "the refresh cost the broker's connection one more")
}

func TestRun_EmptyAnswersAtOnceDoNotSpin(t *testing.T) {
	x := newTrial(t, true)
	x.service.emptyAtOnce = true
	x.start()
	x.clock.fire(t, time.Second, 2*time.Second)
	x.clock.fire(t, time.Second, 2*time.Second)
	require.LessOrEqual(t, x.service.count("/broker/message"), 5)
	x.stop()
	require.NoError(t, x.wait())
}

func TestRun_NotEphemeralTakesJobAfterJob(t *testing.T) {
	x := newTrial(t, false)
	files := x.service.files()
	files[".runner"].(map[string]any)["Ephemeral"] = "False"
	x.opts.JIT = encodeJIT(files)
	x.service.repeat = true
	x.service.queue(`  a: {runs-on: x, steps: [{run: "true"}]}`)
	x.start()
	x.service.await("the first job's end", func() bool { return x.service.calls["/run/completejob"] == 1 })
	x.service.mu.Lock()
	x.service.order = 0 // it is the same job again, with a new count
	x.service.mu.Unlock()
	x.service.offer()
	x.service.await("the second job's end", func() bool { return x.service.calls["/run/completejob"] == 2 })
	x.stop()
	require.NoError(t, x.wait())
}

func TestNew_BadConfig(t *testing.T) {
	_, err := New(Options{JIT: "%%%"})
	requireExit(t, err, ExitTerminated)
	require.True(t, errors.Is(err, ErrBadJIT))
}

// A job of one step costs little more than its shell.
func BenchmarkOneStepJob(b *testing.B) {
	for b.Loop() {
		run(b, `  a: {runs-on: x, steps: [{run: "true"}]}`)
	}
}

// A program with many runners runs some scripts itself; what it leaves alone the shell runs, and the job's end is theirs, too.
func TestRun_ScriptsWithoutAProcess(t *testing.T) {
	x := newTrial(t, false)
	x.opts.Within = func(ctx context.Context, args []string) (code int, ran bool) {
		script, err := os.ReadFile(args[len(args)-1])
		require.NoError(t, err)
		switch strings.TrimSpace(string(script)) {
		case "of its own":
			return 0, true
		case "wait":
			<-ctx.Done()
			return 143, true
		}
		return 1, false
	}
	x.service.queue(`  a: {runs-on: x, steps: [{run: of its own}, {run: echo by the shell}, {run: wait}, {run: echo never}]}`)
	x.start()
	x.service.awaitStep("Run wait", "in_progress")
	x.stop()
	require.NoError(t, x.wait())
	require.Equal(t, map[string]string{"Set up job": "succeeded", "Run of its own": "succeeded", "Run echo by the shell": "succeeded", "Run wait": "canceled",
		"Run echo never": "skipped", "Complete job": "succeeded"}, x.service.conclusions())
	require.Contains(t, x.service.jobLog(), "Z by the shell\n")
}
