package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	stopCommands       string            // the token that resumes workflow commands; "" while they work
	state              map[string]string // what it saved for its post step
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
	switch step.Reference.Type {
	case workflow.ReferenceImage:
		return "Run " + step.Reference.Image
	case workflow.ReferenceAction:
		return "Run " + step.Reference.Path
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
	w.perform(s, step, "", func(scope workflow.Scope, env environment) (string, map[string]string, error) {
		w.enterAction(step)
		return w.runStep(s, step, scope, env)
	})
}

// perform runs a step: its condition, what it does, its conclusion. name is that of a post step, which has no place in the steps context.
func (w *work) perform(s *stepRun, step workflow.Step, name string, run func(workflow.Scope, environment) (string, map[string]string, error)) {
	if w.unreadable {
		w.end(s, skipped)
		return
	}
	env := w.env.clone()
	scope := w.scope(env)
	if w.stop.cancelled() {
		w.status = cancelled
	}
	due, err := w.condition(step, scope)
	if err == nil && !due {
		w.end(s, skipped)
		if name == "" {
			w.record(step, skipped, skipped, nil)
		}
		return
	}
	w.begin(s)
	outcome, outputs := failed, map[string]string(nil)
	if err == nil {
		if step.Environment != nil {
			err = w.addEnv(env, *step.Environment, scope)
		}
		scope = w.scope(env)
		s.name = w.masks.mask(firstOf(name, stepName(step, &scope)))
	}
	if err == nil {
		outcome, outputs, err = run(scope, env)
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
	if name == "" {
		w.record(step, outcome, conclusion, outputs)
	}
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
	switch reference := step.Reference.Type; {
	case strings.EqualFold(reference, workflow.ReferenceImage):
		return w.imageStep(s, step, scope, env)
	case strings.EqualFold(reference, workflow.ReferenceAction):
		return w.localStep(s, step, scope, env)
	case reference != "" && !strings.EqualFold(reference, workflow.ReferenceScript) || step.Inputs == nil:
		return failed, nil, fmt.Errorf("this runner doesn't run steps of type %q", reference)
	}
	object, err := evalInputs(step, scope)
	if err != nil {
		return failed, nil, err
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
	if w.container != nil {
		return w.scriptInContainer(s, step, scriptRun{args: args, dir: dir, env: env, limit: limit})
	}
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
	w.printEnv(s, env)
	w.print(s, "##[endgroup]")
}

func (w *work) printEnv(s *stepRun, env environment) {
	if len(env) == 0 {
		return
	}
	w.print(s, "env:")
	for _, name := range sortedNames(env) {
		w.print(s, "  %s: %s", name, env[name])
	}
}

// deadline fires when a step's time is up; nil never does.
type deadline = <-chan time.Time

func (w *work) timeLimit(step workflow.Step, scope workflow.Scope) (deadline, error) {
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
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		return nil, fmt.Errorf("writing the step's script: %w", err)
	}
	switch {
	case name == "" && w.container != nil: // whether the image has bash is not known
		return []string{"sh", "-e", file}, nil
	case name == "":
		if _, err := exec.LookPath("bash"); err == nil {
			return []string{"bash", "-e", file}, nil
		}
		return []string{"sh", "-e", file}, nil
	case name == "bash" && w.container != nil:
		return []string{"bash", "--noprofile", "--norc", "-e", "-o", "pipefail", file}, nil
	case name == "bash":
		return []string{"bash", "--noprofile", "--norc", "-eo", "pipefail", file}, nil
	case name == "sh":
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
	switch {
	case err != nil:
	case run.do != nil:
		code, err = run.do(files, halt)
	default:
		code, err = w.scriptWithFiles(s, run, files)
	}
	w.lastFiles = files
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

// scriptInContainer runs a script in the container of the job.
func (w *work) scriptInContainer(s *stepRun, step workflow.Step, run scriptRun) (string, map[string]string, error) {
	last := len(run.args) - 1
	arguments := strings.Join(append(slices.Clone(run.args[1:last]), w.container.resolve(run.args[last])), " ")
	run.do = func(files fileCommands, halt <-chan struct{}) (int, error) {
		return w.inContainer(s, run.args[0], arguments, run.dir, w.stepVariables(run.env, files), files, halt)
	}
	return w.supervise(s, step, run)
}
