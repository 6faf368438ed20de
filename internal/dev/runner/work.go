package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// Conclusions of steps, and the status of a job while it runs.
const (
	success   = "success"
	failed    = "failure"
	cancelled = "cancelled"
	skipped   = "skipped"
)

// work is one job on its way through its steps.
type work struct {
	r     *Runner
	msg   *workflow.Message
	stop  *stopper
	masks *masker
	logs  *uploader

	workspace, temp string
	contexts        *workflow.Object // those that stay the same, and steps
	steps           *workflow.Object
	env             environment
	path            []string // what steps added to PATH, last first
	defaults        workflow.Defaults
	status          string
	ran             []*stepRun
	left            groups
	notes           []annotation

	container *container // of the job; nil without one
	services  []*container
	job       jobContext      // what the hook said of them
	hookState json.RawMessage // the last that a hook returned
	cleanUp   bool            // the containers have to be stopped
	posts     []*actionRun
	lastFiles fileCommands // of the last step

	unreadable bool // setting up failed before the steps could be known
}

// environment is the env of the job: names as spelled, last one wins.
type environment map[string]string

func (e environment) clone() environment {
	out := make(environment, len(e))
	for k, v := range e {
		out[k] = v
	}
	return out
}

// execute runs a job from its first to its last step and returns its conclusion.
func (r *Runner) execute(msg *workflow.Message, stop *stopper) completion {
	w := &work{r: r, msg: msg, stop: stop, masks: newMasker(msg), env: environment{}, status: success, steps: workflow.NewObject()}
	endpoint, _ := msg.Endpoint(workflow.SystemConnection)
	service := &results{
		caller: caller{r.opts.HTTP, fixedToken(endpoint.Authorization.Parameters["AccessToken"])},
		url:    msg.Variables[workflow.VarResults].Value, planID: msg.Plan.PlanID, jobID: msg.JobID, now: r.opts.Now,
	}
	live := &feed{address: endpoint.Data[workflow.DataFeed], token: endpoint.Authorization.Parameters["AccessToken"], log: r.opts.Log}
	if r.opts.NoFeed {
		live.address = ""
	}
	w.logs = newUploader(service, live, r, w.masks)
	defer w.logs.close()
	w.newStep(newStepID(), "Set up job")
	w.internal("Set up job", w.setUp)
	w.announce()
	if w.wantsContainers() {
		w.initialize()
	}
	for _, step := range msg.Steps {
		w.step(step)
	}
	w.afterwards()
	var outputs map[string]workflow.Variable
	w.newStep(newStepID(), "Complete job")
	w.internal("Complete job", func(s *stepRun) error {
		// Clean-up has to run after a cancelled job too.
		err := w.hook(s, "ACTIONS_RUNNER_HOOK_JOB_COMPLETED", nil)
		outputs = w.outputs(s)
		if n := w.left.clean(); n > 0 {
			w.print(s, "Cleaned up %d process groups that steps left behind.", n)
		}
		return err
	})
	if stop.cancelled() {
		w.status = cancelled
		w.notes = append(w.notes, annotation{Level: "FAILURE", Message: stop.reason})
	}
	return w.completion(outputs)
}

func (w *work) completion(outputs map[string]workflow.Variable) completion {
	c := completion{
		PlanID: w.msg.Plan.PlanID, JobID: w.msg.JobID, Outputs: outputs, Annotations: w.notes,
		Conclusion: map[string]string{success: "succeeded", failed: "failed", cancelled: "canceled"}[w.status],
	}
	for _, s := range w.ran {
		c.StepResults = append(c.StepResults, s.result())
	}
	return c
}

// setUp is the step "Set up job". If it can't find out what the job is, no step runs, whatever its condition.
func (w *work) setUp(s *stepRun) error {
	if err := w.readJob(s); err != nil {
		w.unreadable = true
		w.container, w.services = nil, nil
		return err
	}
	return w.hook(s, "ACTIONS_RUNNER_HOOK_JOB_STARTED", w.stop.gentle)
}

// readJob makes the directories and evaluates what holds for all steps.
func (w *work) readJob(s *stepRun) error {
	w.print(s, "Runner name: '%s'", w.r.config.AgentName)
	w.print(s, "Runner version: '%s' (development runner, no isolation)", w.r.opts.Version)
	if err := w.writeJobMessage(); err != nil {
		return err
	}
	w.contexts = w.msg.Contexts()
	if err := w.makeDirectories(); err != nil {
		return fmt.Errorf("making the job's directories: %w", err)
	}
	w.contexts.Set("github", w.githubContext())
	w.contexts.Set("runner", workflow.NewObject("name", w.r.config.AgentName, "os", osName(), "arch", archName(),
		"temp", w.temp, "tool_cache", filepath.Join(w.r.work, "_tool"), "workspace", filepath.Dir(w.workspace),
		"environment", "self-hosted", "debug", ""))
	w.contexts.Set("secrets", w.secrets())
	w.contexts.Set("steps", w.steps)
	for _, t := range w.msg.EnvironmentVariables {
		if err := w.addEnv(w.env, t, w.scope(w.env)); err != nil {
			return fmt.Errorf("evaluating env: %w", err)
		}
	}
	if err := w.evaluateContainers(s); err != nil {
		return err
	}
	if err := w.evaluateDefaults(); err != nil {
		return fmt.Errorf("evaluating defaults: %w", err)
	}
	return nil
}

// makeDirectories makes _work/<repository>/<repository> and _work/_temp, as GitHub's runner lays them out.
func (w *work) makeDirectories() error {
	github, _ := w.contexts.Get("github")
	object, _ := github.(*workflow.Object)
	name := filepath.Base(filepath.Clean("/" + object.String("repository")))
	if name == "/" || name == "." {
		name = "workspace"
	}
	w.workspace = filepath.Join(w.r.work, name, name)
	w.temp = filepath.Join(w.r.work, "_temp")
	for _, dir := range []string{w.workspace, filepath.Join(w.temp, "_runner_file_commands"), filepath.Join(w.temp, "_github_workflow")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	event, _ := object.Get("event")
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	if event == nil {
		data = []byte("{}")
	}
	return os.WriteFile(w.eventPath(), data, 0o666)
}

func (w *work) eventPath() string { return filepath.Join(w.temp, "_github_workflow", "event.json") }

func (w *work) githubContext() *workflow.Object {
	from, _ := w.contexts.Get("github")
	object, _ := from.(*workflow.Object)
	out := object.Clone()
	out.Set("workspace", w.workspace)
	out.Set("token", w.msg.Variables[workflow.VarToken].Value)
	if job := w.msg.Variables[workflow.VarJob].Value; job != "" {
		out.Set("job", job)
	}
	return out
}

// setGitHub sets a value of the github context from now on.
func (w *work) setGitHub(pairs ...string) {
	from, _ := w.contexts.Get("github")
	object, _ := from.(*workflow.Object)
	out := object.Clone()
	for i := 0; i+1 < len(pairs); i += 2 {
		out.Set(pairs[i], pairs[i+1])
	}
	w.contexts.Set("github", out)
}

// enterAction sets what the github context says of a step.
func (w *work) enterAction(step workflow.Step) {
	w.setGitHub("event_path", w.eventPath(), "action", step.Name, "action_repository", "", "action_ref", "")
}

func (w *work) secrets() *workflow.Object {
	out := workflow.NewObject("GITHUB_TOKEN", w.msg.Variables[workflow.VarToken].Value)
	for name, v := range w.msg.Variables {
		if v.IsSecret && !strings.HasPrefix(name, "system.") {
			out.Set(name, v.Value)
		}
	}
	return out
}

// scope is what expressions see now, with the env that holds where they stand.
func (w *work) scope(env environment) workflow.Scope {
	contexts := w.contexts.Clone()
	vars := workflow.NewObject()
	for k, v := range env {
		vars.Set(k, v)
	}
	contexts.Set("env", vars)
	job := workflow.NewObject("status", w.status)
	if w.job.services != nil {
		job.Set("container", w.job.container)
		job.Set("services", w.job.services)
	}
	contexts.Set("job", job)
	return workflow.Scope{Contexts: contexts}
}

// withStatus adds the status functions, which are for conditions only.
func withStatus(s workflow.Scope, status string) workflow.Scope {
	s.Success = func() bool { return status == success }
	s.Failure = func() bool { return status == failed }
	s.Cancelled = func() bool { return status == cancelled }
	return s
}

// addEnv evaluates a block of variables into env. Names keep their case: FOO and foo are two variables.
func (w *work) addEnv(env environment, t workflow.Token, scope workflow.Scope) error {
	if t.Kind == workflow.TokenMapping {
		for _, p := range t.Pairs {
			name, err := scope.EvalToken(p.Key)
			if err != nil {
				return err
			}
			value, err := scope.EvalToken(p.Value)
			if err != nil {
				return err
			}
			env[workflow.ToString(name)] = workflow.ToString(value)
		}
		return nil
	}
	v, err := scope.EvalToken(t)
	if err != nil {
		return err
	}
	object, ok := v.(*workflow.Object)
	if !ok {
		return fmt.Errorf("it is not a map")
	}
	for _, k := range object.Keys() {
		env[k] = object.String(k)
	}
	return nil
}

func (w *work) evaluateDefaults() error {
	for _, t := range w.msg.Defaults {
		run, ok := t.Get("run")
		if !ok {
			continue
		}
		for key, into := range map[string]*string{"shell": &w.defaults.Shell, "working-directory": &w.defaults.WorkingDirectory} {
			token, ok := run.Get(key)
			if !ok {
				continue
			}
			v, err := w.scope(w.env).EvalToken(token)
			if err != nil {
				return err
			}
			*into = workflow.ToString(v)
		}
	}
	return nil
}

// outputs evaluates the job's outputs. One that holds a secret is left out, as GitHub does: every reader of the run
// could read it.
func (w *work) outputs(s *stepRun) map[string]workflow.Variable {
	out := map[string]workflow.Variable{}
	if w.msg.JobOutputs == nil || w.contexts == nil {
		return out
	}
	for _, p := range w.msg.JobOutputs.Pairs {
		v, err := w.scope(w.env).EvalToken(p.Value)
		if err != nil {
			w.print(s, "##[error]Evaluating the output %s: %v", p.Key.Text, err)
			w.status = failed
			continue
		}
		value := workflow.ToString(v)
		if w.masks.mask(value) != value {
			w.print(s, "##[warning]Skip output '%s' since it may contain secret.", p.Key.Text)
			continue
		}
		out[p.Key.Text] = workflow.Variable{Value: value}
	}
	return out
}

// hook runs one of the scripts that the runner's administrator has set, until halt is closed.
func (w *work) hook(s *stepRun, variable string, halt <-chan struct{}) error {
	script := w.variable(variable)
	if script == "" || w.contexts == nil {
		return nil
	}
	w.setGitHub("event_path", w.eventPath())
	w.print(s, "A job %s hook has been configured: %s", strings.ToLower(variable[strings.LastIndex(variable, "_")+1:]), script)
	code, err := w.script(s, scriptRun{args: []string{"bash", "--noprofile", "--norc", "-eo", "pipefail", script}, dir: w.workspace, env: w.env.clone(), halt: halt})
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("the hook %s failed with exit code %d", script, code)
	}
	return nil
}

// announce tells the Results service of the steps before the first runs.
func (w *work) announce() {
	if w.wantsContainers() {
		w.newStep(newStepID(), "Initialize containers")
	}
	for _, s := range w.msg.Steps {
		w.newStep(s.ID, stepName(s, nil))
	}
}

func newStepID() string { return uuid.NewString() }

// initialize starts the containers of the job, if nothing went wrong before.
func (w *work) initialize() {
	if w.status != success || w.stop.cancelled() {
		w.end(w.next(), skipped)
		return
	}
	w.internal("Initialize containers", w.startContainers)
}
