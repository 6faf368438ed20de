package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// ExitError is a command that failed. The reason is in the step's log already.
type ExitError struct{ Code int }

// Error is empty: see ExitError.
func (*ExitError) Error() string { return "" }

// ExitCode is the code that the process must exit with: of a step, its own.
func (e *ExitError) ExitCode() int { return e.Code }

// Run executes one command of the runner. Errors are *ExitError, except for missing Options.
//
// The end of ctx cancels prepare_job and what else waits. A step is cancelled by Signals as well (cancel.go). cleanup_job goes on: it is
// bounded by itself, and the runner calls it once.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	c := &call{Options: o}
	err = c.run(ctx)
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errCancelled
	}
	for _, text := range sentences(err) {
		c.fail(text)
	}
	return &ExitError{Code: 1}
}

// call is one command. The log may be written by several goroutines.
type call struct {
	Options
	input hook.Input
	mu    sync.Mutex // of the log
}

func (c *call) run(ctx context.Context) error {
	if system, _, _ := strings.Cut(c.Platform, "/"); system != "linux" {
		return refuse("%s", plan.NeedsLinuxText())
	}
	data, err := readCommand(c.Input)
	if err != nil {
		return err
	}
	if c.input, err = hook.Parse(data); err != nil {
		return err
	}
	if len(c.input.Ignored) > 0 {
		c.say(steplog.Debug("Unknown fields of the container hook's input: " + strings.Join(c.input.Ignored, ", ")))
	}
	switch c.input.Command {
	case hook.PrepareJob:
		return c.prepare(ctx)
	case hook.RunScriptStep:
		return c.scriptStep(ctx)
	case hook.RunContainerStep:
		return c.containerStep(ctx)
	case hook.CleanupJob:
		return c.cleanup(context.WithoutCancel(ctx))
	}
	return &hook.CommandError{Command: string(c.input.Command)}
}

// readCommand reads one JSON value. The runner need not close standard input after it.
func readCommand(input io.Reader) ([]byte, error) {
	var command json.RawMessage
	err := json.NewDecoder(io.LimitReader(input, hook.MaxInput+1)).Decode(&command)
	var invalid *json.SyntaxError
	switch {
	case err == nil:
		return command, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &hook.SyntaxError{Reason: fmt.Sprintf("the JSON ends too early, or is larger than %d MiB", hook.MaxInput>>20)}
	case errors.As(err, &invalid): // its text may quote a secret
		return nil, &hook.SyntaxError{Reason: "invalid JSON"}
	default:
		return nil, fmt.Errorf("reading the container hook's input: %w", err)
	}
}

// say writes lines of the step's log.
func (c *call) say(lines ...string) {
	if len(lines) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.Stdout, strings.Join(lines, "\n")+"\n") // a log that can't be written is the runner's end
}

// warn shows a warning of the job.
func (c *call) warn(text string) { c.say(steplog.Warning(text)) }

// fail shows an error of the job.
func (c *call) fail(text string) { c.say(steplog.Error(text)) }

// sentences are the problems of an error, each of which is shown by itself.
func sentences(err error) []string {
	var problem *plan.Error
	if errors.As(err, &problem) {
		return problem.Problems
	}
	var refusal *refusal
	if errors.As(err, &refusal) {
		return []string{refusal.text}
	}
	return []string{err.Error()}
}

// refusal is a sentence for the job's log that needs no other words around it.
type refusal struct {
	text  string
	cause error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.cause }

func refuse(format string, args ...any) error { return &refusal{text: fmt.Sprintf(format, args...)} }

// requestID is that of the request that this command sends at its first try: the runner's own id of the command, so that sending it again changes
// nothing.
func (c *call) requestID() string {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(c.input.ResponseFile), ".json"))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, name)
	name = strings.TrimLeft(name, "-")
	return name[:min(len(name), 36)] // a try is appended
}

// ask sends the request, and returns what was added to the pod.
func (c *call) ask(ctx context.Context, wanted []jobcontainer.Wanted, try int) ([]jobcontainer.Granted, error) {
	id := c.requestID()
	if try > 1 {
		id = fmt.Sprintf("%s-%d", id, try)
	}
	response, err := c.Broker.Ask(ctx, jobcontainer.Request{ID: id, Containers: wanted})
	switch {
	case err != nil:
		return nil, err
	case response.Refusal != "":
		return nil, refuse("%s", response.Refusal)
	case len(response.Containers) != len(wanted):
		return nil, fmt.Errorf("asking for containers: the controller added %d of %d; re-run the job, and report this", len(response.Containers), len(wanted))
	}
	return response.Containers, nil
}

// runner is what plans know of this pod.
func (c *call) runner() plan.Runner {
	work := c.workDir()
	return plan.Runner{
		Platform: c.Platform, Work: work, Tools: c.variable("RUNNER_TOOL_CACHE"), Environ: c.Environ,
		Pool: options.Pool{Resources: c.Resources, ShmBytes: c.ShmBytes}, Exists: exists, Restricted: c.Restricted, User: os.Getuid(), ReadFile: func(path string) ([]byte, error) { return readBelow(work, path) },
	}
}

// exists says whether something is at a path of the runner's container, if only a link that leads nowhere.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// workDir is the runner's work directory. Its _temp is in a variable that the runner sets for every step.
func (c *call) workDir() string {
	if temp := c.variable("RUNNER_TEMP"); filepath.IsAbs(temp) {
		return filepath.Dir(temp)
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(c.input.ResponseFile)))
}

// checkWorkDir refuses a runner whose work directory is not the volume that containers have: they would not find the job's files.
func (c *call) checkWorkDir() error {
	volume, err := os.Stat(c.WorkVolume)
	if err != nil {
		return nil //nolint:nilerr // a runner without the volume is compared with nothing
	}
	if work, err := os.Stat(c.workDir()); err == nil && os.SameFile(work, volume) {
		return nil
	}
	return refuse("The runner's work directory is '%s', and containers of jobs have '%s'. An administrator must start the runners of this pool in '%s'.",
		c.workDir(), c.WorkVolume, filepath.Dir(c.WorkVolume))
}

func (c *call) variable(name string) string {
	value := ""
	for _, entry := range c.Environ {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value = v
		}
	}
	return value
}

// maxFile is how large a file of a workspace may be that is read.
const maxFile = 1 << 20

// readBelow reads a file below a directory, where the job can have put links.
func readBelow(dir, path string) ([]byte, error) {
	relative, err := filepath.Rel(dir, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	file, err := root.Open(relative)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("not a regular file"), err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return content, err
}

// respond writes the response file whole: the runner reads it when this process has exited with 0.
func (c *call) respond(content []byte) error {
	if err := writeWhole(c.input.ResponseFile, content, 0o644); err != nil {
		return fmt.Errorf("writing the response for the runner: %w", err)
	}
	return nil
}

// writeWhole replaces a file, so that no reader sees a part of it.
func writeWhole(path string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
