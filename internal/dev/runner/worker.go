package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// workerName is the name of GitHub's worker, by which a supervisor recognizes that a runner has a job.
const workerName = "Runner.Worker"

// assignment is what a listener tells its worker first: one line of JSON on its standard input.
type assignment struct {
	Message json.RawMessage `json:"message"`
	Runner  string          `json:"runner"`
	Work    string          `json:"work"`
}

// cancellation is the other line, if any.
type cancellation struct {
	Reason   string        `json:"reason"`
	Patience time.Duration `json:"patience"`
}

// delegate has a job run, and its end reported, by a process of its own.
func (r *Runner) delegate(ctx context.Context, raw []byte, msg *workflow.Message, service runService, stop *stopper) {
	if err := r.inWorker(raw, stop); err != nil {
		r.opts.Log.Error("the worker failed", "job", msg.JobID, "error", err)
		r.report(ctx, msg, service, completion{PlanID: msg.Plan.PlanID, JobID: msg.JobID, Conclusion: "failed"})
	}
}

func (r *Runner) inWorker(raw []byte, stop *stopper) error {
	program, err := r.workerProgram()
	if err != nil {
		return err
	}
	// It is asked to end the job by its standard input; a context would kill it.
	cmd := exec.CommandContext(context.Background(), program, r.opts.Worker...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = r.opts.Environ, r.opts.WorkDir, r.opts.Console, os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting the worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the worker: %w", err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tell := json.NewEncoder(orders)
		_ = tell.Encode(assignment{Message: raw, Runner: r.config.AgentName, Work: r.work}) // its exit code reports a failure
		select {
		case <-stop.gentle:
			_ = tell.Encode(cancellation{Reason: stop.reason, Patience: cancelPatience})
		case <-over:
		}
		select {
		case <-stop.hard.Done():
			_ = cmd.Process.Kill()
		case <-over:
		}
	})
	err = cmd.Wait()
	close(over)
	wg.Wait()
	if err != nil {
		return fmt.Errorf("running the worker: %w", err)
	}
	return nil
}

// workerProgram is this program under the worker's name.
func (r *Runner) workerProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the worker: %w", err)
	}
	dir := filepath.Join(r.opts.WorkDir, ".worker")
	program := filepath.Join(dir, workerName)
	if target, err := os.Readlink(program); err == nil && target == self {
		return program, nil
	}
	_ = os.Remove(program) // it is another version's
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("placing the worker: %w", err)
	}
	if err := os.Symlink(self, program); err != nil {
		return "", fmt.Errorf("placing the worker: %w", err)
	}
	return program, nil
}

// RunWorker runs the one job that comes on orders, and reports its end. When orders end before the job does, its listener
// has exited, and the job is cancelled. The options JIT, Root and Worker are ignored.
func RunWorker(ctx context.Context, orders io.Reader, opts Options) error {
	if err := opts.setDefaults(); err != nil {
		return err
	}
	var what assignment
	lines := json.NewDecoder(bufio.NewReader(orders))
	if err := lines.Decode(&what); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	r := &Runner{opts: opts, config: &Config{AgentName: what.Runner}, work: what.Work}
	msg, service, err := r.read(what.Message)
	if err != nil {
		return err
	}
	stop := newStopper(opts.After)
	defer stop.kill()
	go func() { // it ends with its listener's end of the pipe, or with this process
		var wg sync.WaitGroup
		order := cancellation{Reason: "The runner's listener is gone.", Patience: cancelPatience}
		_ = lines.Decode(&order) // nothing more comes: the listener is gone
		stop.cancel(&wg, order.Reason, order.Patience)
		wg.Wait()
	}()
	r.finish(ctx, msg, service, stop)
	return nil
}
