package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// maxSummary is the most that a step may write to its summary, in bytes.
const maxSummary = 1 << 20

// stepRun is one line of the job's display: a step, or one of the runner's own.
type stepRun struct {
	id, name           string
	number             int
	status             string // pending, in_progress, completed
	conclusion         string
	started, completed time.Time
	log                *jobLog
	notes              []annotation
	stopCommands       string // the token that resumes workflow commands; "" while they work
}

func (w *work) newStep(id, name string) {
	s := &stepRun{id: id, name: name, number: len(w.ran) + 1, status: "pending"}
	w.ran = append(w.ran, s)
	w.logs.update(s.update())
}

func (s *stepRun) update() stepUpdate {
	u := stepUpdate{ExternalID: s.id, Number: s.number, Name: s.name, Status: stepStatus[s.status], Conclusion: stepConclusion[s.conclusion]}
	if !s.started.IsZero() {
		u.StartedAt = stamp(s.started)
	}
	if !s.completed.IsZero() {
		u.CompletedAt = stamp(s.completed)
	}
	return u
}

func (s *stepRun) result() stepResult {
	out := stepResult{ExternalID: s.id, Number: s.number, Name: s.name, Status: s.status, Annotations: s.notes}
	out.Conclusion = map[string]string{success: "succeeded", failed: "failed", cancelled: "canceled", skipped: "skipped"}[s.conclusion]
	if !s.started.IsZero() {
		out.StartedAt, out.CompletedAt = stamp(s.started), stamp(s.completed)
	}
	if s.log != nil {
		out.LogLines = s.log.lines
	}
	return out
}

// next is the step whose turn it is.
func (w *work) next() *stepRun {
	for _, s := range w.ran {
		if s.status == "pending" {
			return s
		}
	}
	return nil
}

func (w *work) begin(s *stepRun) {
	s.status, s.started = "in_progress", w.r.opts.Now()
	s.log = w.logs.open(s.id)
	w.logs.update(s.update())
}

func (w *work) end(s *stepRun, conclusion string) {
	s.status, s.conclusion, s.completed = "completed", conclusion, w.r.opts.Now()
	if s.log != nil {
		w.logs.finish(s.log)
	}
	w.logs.update(s.update())
}

func (w *work) print(s *stepRun, format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...) + "\n") {
		w.logs.line(s.log, strings.TrimSuffix(line, "\n"))
	}
}

// fail notes an error on a step, as an annotation and in its log.
func (w *work) fail(s *stepRun, err error) {
	w.print(s, "##[error]%v", err)
	s.notes = append(s.notes, annotation{Level: "FAILURE", Message: w.masks.mask(err.Error())})
}

// internal runs one of the runner's own steps; its failure fails the job.
func (w *work) internal(name string, do func(*stepRun) error) {
	s := w.next()
	s.name = name
	w.begin(s)
	err := do(s)
	if err == nil {
		w.end(s, success)
		return
	}
	w.fail(s, err)
	if w.status == success {
		w.status = failed
	}
	w.end(s, failed)
}

// stepName is what a step is called; without a scope expressions stay as written.
func stepName(step workflow.Step, scope *workflow.Scope) string {
	if step.DisplayName != nil {
		if scope == nil {
			return step.DisplayName.Text
		}
		if v, err := scope.EvalToken(*step.DisplayName); err == nil && workflow.ToString(v) != "" {
			return workflow.ToString(v)
		}
	}
	script := ""
	if step.Inputs != nil {
		token, _ := step.Inputs.Get("script")
		script = token.Text
		if scope != nil {
			if v, err := scope.EvalToken(token); err == nil {
				script = workflow.ToString(v)
			}
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(script), "\n")
	return "Run " + first
}

// step runs one step of the workflow: its condition, its script, its conclusion.
func (w *work) step(step workflow.Step) {
	s := w.next()
	if w.contexts == nil { // setting up failed before there was anything to evaluate
		w.end(s, skipped)
		return
	}
	env := w.env.clone()
	scope := w.scope(env)
	if w.stop.cancelled() {
		w.status = cancelled
	}
	run, err := w.condition(step, scope)
	if err == nil && !run {
		w.end(s, skipped)
		w.record(step, skipped, skipped, nil)
		return
	}
	w.begin(s)
	outcome, outputs := failed, map[string]string(nil)
	if err == nil {
		if step.Environment != nil {
			err = w.addEnv(env, *step.Environment, scope)
		}
		scope = w.scope(env)
		s.name = w.masks.mask(stepName(step, &scope))
	}
	if err == nil {
		outcome, outputs, err = w.runStep(s, step, scope, env)
	}
	if err != nil {
		w.fail(s, err)
	}
	conclusion := outcome
	if outcome == failed && w.carryOn(s, step, scope) {
		conclusion = success
	}
	switch {
	case conclusion == failed && w.status == success:
		w.status = failed
	case conclusion == cancelled:
		w.status = cancelled
	}
	w.end(s, conclusion)
	w.record(step, outcome, conclusion, outputs)
}

// condition evaluates a step's `if`, with the status the job has now.
func (w *work) condition(step workflow.Step, scope workflow.Scope) (bool, error) {
	run, err := withStatus(scope, w.status).Condition(step.Condition)
	if err != nil {
		return false, fmt.Errorf("evaluating the step's condition: %w", err)
	}
	return run, nil
}

func (w *work) carryOn(s *stepRun, step workflow.Step, scope workflow.Scope) bool {
	if step.ContinueOnError == nil {
		return false
	}
	v, err := scope.EvalToken(*step.ContinueOnError)
	if err != nil {
		w.fail(s, fmt.Errorf("evaluating continue-on-error: %w", err))
		return false
	}
	return workflow.Truthy(v) && workflow.ToString(v) != "false"
}

// record puts a step's end into the steps context; steps without an id have names that no expression can spell wrong.
func (w *work) record(step workflow.Step, outcome, conclusion string, outputs map[string]string) {
	out := workflow.NewObject()
	for k, v := range outputs {
		out.Set(k, v)
	}
	w.steps.Set(step.ContextName, workflow.NewObject("outcome", outcome, "conclusion", conclusion, "outputs", out))
}

// runStep runs a step's script and reads what it left in its command files.
func (w *work) runStep(s *stepRun, step workflow.Step, scope workflow.Scope, env environment) (string, map[string]string, error) {
	if step.Reference.Type != "" && !strings.EqualFold(step.Reference.Type, "script") || step.Inputs == nil {
		return failed, nil, fmt.Errorf("this runner runs scripts only, not steps of type %q", step.Reference.Type)
	}
	inputs, err := scope.EvalToken(*step.Inputs)
	if err != nil {
		return failed, nil, fmt.Errorf("evaluating the step: %w", err)
	}
	object, ok := inputs.(*workflow.Object)
	if !ok {
		return failed, nil, errors.New("the step's inputs are not a map")
	}
	limit, err := w.timeLimit(step, scope)
	if err != nil {
		return failed, nil, err
	}
	text := object.String("script")
	args, err := w.shell(firstOf(object.String("shell"), w.defaults.Shell), text)
	if err != nil {
		return failed, nil, err
	}
	defer os.Remove(args[len(args)-1])
	dir := firstOf(object.String("workingDirectory"), w.defaults.WorkingDirectory)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.workspace, dir)
	}
	w.header(s, text, args, env)
	return w.supervise(s, step, scriptRun{args: args, dir: dir, env: env, limit: limit})
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func (w *work) header(s *stepRun, script string, args []string, env environment) {
	lines := strings.Split(strings.TrimRight(script, "\n"), "\n")
	w.print(s, "##[group]Run %s", lines[0])
	w.print(s, "%s", strings.Join(lines, "\n"))
	w.print(s, "shell: %s {0}", strings.Join(args[:len(args)-1], " "))
	if len(env) > 0 {
		w.print(s, "env:")
		for _, name := range sortedNames(env) {
			w.print(s, "  %s: %s", name, env[name])
		}
	}
	w.print(s, "##[endgroup]")
}

func (w *work) timeLimit(step workflow.Step, scope workflow.Scope) (<-chan time.Time, error) {
	if step.TimeoutInMinutes == nil {
		return nil, nil
	}
	v, err := scope.EvalToken(*step.TimeoutInMinutes)
	if err != nil {
		return nil, fmt.Errorf("evaluating timeout-minutes: %w", err)
	}
	minutes, ok := workflow.Minutes(v)
	if !ok {
		return nil, nil // none, as 0 means to GitHub's runner
	}
	return w.r.opts.After(time.Duration(minutes * float64(time.Minute))), nil
}

// shell writes the script to a file and returns the command that runs it; the file is its last word.
func (w *work) shell(name, script string) ([]string, error) {
	file := filepath.Join(w.temp, uuid.NewString()+".sh")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		return nil, fmt.Errorf("writing the step's script: %w", err)
	}
	switch name {
	case "":
		if _, err := exec.LookPath("bash"); err == nil {
			return []string{"bash", "-e", file}, nil
		}
		return []string{"sh", "-e", file}, nil
	case "bash":
		return []string{"bash", "--noprofile", "--norc", "-eo", "pipefail", file}, nil
	case "sh":
		return []string{"sh", "-e", file}, nil
	}
	os.Remove(file)
	return nil, fmt.Errorf("the shell %q is not supported by this runner; use bash or sh", name)
}

// supervise runs a step's script until it ends, its time is up, or the job is cancelled.
func (w *work) supervise(s *stepRun, step workflow.Step, run scriptRun) (string, map[string]string, error) {
	halt, finished := make(chan struct{}), make(chan struct{})
	watching := make(chan struct{})
	var timedOut, stopped atomic.Bool
	go func() {
		defer close(watching)
		gentle := w.stop.gentle
		for {
			select {
			case <-run.limit:
				timedOut.Store(true)
				close(halt)
				return
			case <-gentle:
				// A step whose condition also holds for a cancelled job, such as always(), runs on.
				if keep, err := withStatus(w.scope(run.env), cancelled).Condition(step.Condition); err == nil && keep {
					gentle = nil
					continue
				}
				stopped.Store(true)
				close(halt)
				return
			case <-finished:
				return
			}
		}
	}()
	run.halt = halt
	files, err := w.commandFiles()
	var code int
	if err == nil {
		code, err = w.scriptWithFiles(s, run, files)
	}
	close(finished)
	<-watching
	outputs, fileErr := w.readFiles(s, files)
	switch {
	case err != nil:
		return failed, outputs, err
	case stopped.Load() || w.stop.ended():
		w.print(s, "##[error]%s", w.stop.reason)
		return cancelled, outputs, nil
	case timedOut.Load():
		return failed, outputs, fmt.Errorf("the step has timed out")
	case code != 0: // in GitHub's own words
		return failed, outputs, fmt.Errorf("Process completed with exit code %d.", code)
	}
	if fileErr != nil {
		return failed, outputs, fileErr
	}
	return success, outputs, nil
}

// lineWriter cuts a process's output into lines and acts on the workflow commands among them.
type lineWriter struct {
	w    *work
	s    *stepRun
	rest []byte
}

// maxLine is the longest line kept whole, in bytes.
const maxLine = 64 << 10

func (l *lineWriter) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < maxLine {
			return len(data), nil
		}
		if end < 0 {
			l.w.output(l.s, string(l.rest))
			l.rest = l.rest[:0]
			return len(data), nil
		}
		l.w.output(l.s, strings.TrimSuffix(string(l.rest[:end]), "\r"))
		l.rest = l.rest[end+1:]
	}
}

func (l *lineWriter) flush() {
	if len(l.rest) > 0 {
		l.w.output(l.s, string(l.rest))
		l.rest = nil
	}
}
