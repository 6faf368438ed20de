package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// actionRun is an action on its way through its step, and later through its post step.
type actionRun struct {
	step   workflow.Step
	action *workflow.Action
	dir    string // of action.yml
	inputs *workflow.Object
	post   bool
	state  map[string]string // what the step saved for its post step
}

// imageStep runs an image as a step: uses: docker://….
func (w *work) imageStep(s *stepRun, step workflow.Step, scope workflow.Scope, env environment) (string, map[string]string, error) {
	inputs, err := evalInputs(step, scope)
	if err != nil {
		return failed, nil, err
	}
	run := &actionRun{step: step, inputs: inputs, action: &workflow.Action{Using: "docker", Image: "docker://" + step.Reference.Image}}
	return w.runAction(s, run, scope, env)
}

// localStep runs an action of the workspace: uses: ./….
func (w *work) localStep(s *stepRun, step workflow.Step, scope workflow.Scope, env environment) (string, map[string]string, error) {
	if step.Reference.RepositoryType != workflow.RepositorySelf {
		return failed, nil, fmt.Errorf("this runner downloads no actions, so it can't run %s", step.Reference.Name)
	}
	dir := w.workspace + "/" + step.Reference.Path // not cleaned: GitHub's worker passes it as it is
	action, err := loadAction(dir)
	if err != nil {
		return failed, nil, err
	}
	inputs, err := evalInputs(step, scope)
	if err != nil {
		return failed, nil, err
	}
	if err := addDefaults(inputs, action, scope); err != nil {
		return failed, nil, err
	}
	if action.Pre {
		w.print(s, "##[warning]`pre` execution is not supported for local action from '%s'", step.Reference.Path)
	}
	run := &actionRun{step: step, action: action, dir: dir, inputs: inputs}
	outcome, outputs, err := w.runAction(s, run, scope, env)
	if action.HasPost() {
		later := *run
		later.post, later.state = true, s.state
		w.posts = append(w.posts, &later)
	}
	return outcome, outputs, err
}

func loadAction(dir string) (*workflow.Action, error) {
	for _, name := range []string{"action.yml", "action.yaml"} {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		switch {
		case err == nil:
			return workflow.ParseAction(file, data)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("reading the action: %w", err)
		}
	}
	for _, name := range []string{"Dockerfile", "dockerfile"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return &workflow.Action{Using: "docker", Image: name}, nil
		}
	}
	return nil, fmt.Errorf("Can't find 'action.yml', 'action.yaml' or 'Dockerfile' under '%s'. Did you forget to run actions/checkout before running your local action?", filepath.Clean(dir))
}

func evalInputs(step workflow.Step, scope workflow.Scope) (*workflow.Object, error) {
	if step.Inputs == nil {
		return workflow.NewObject(), nil
	}
	v, err := scope.EvalToken(*step.Inputs)
	if err != nil {
		return nil, fmt.Errorf("evaluating the step: %w", err)
	}
	object, ok := v.(*workflow.Object)
	if !ok {
		return nil, errors.New("the step's inputs are not a map")
	}
	return object, nil
}

// addDefaults fills in the inputs that the step does not give.
func addDefaults(inputs *workflow.Object, action *workflow.Action, scope workflow.Scope) error {
	for _, in := range action.Inputs {
		if _, given := inputs.Get(in.Name); given {
			continue
		}
		value, err := only(scope, "github", "strategy", "matrix", "job", "runner").Interpolate(in.Value)
		if err != nil {
			return fmt.Errorf("evaluating the default of the input %s: %w", in.Name, err)
		}
		inputs.Set(in.Name, value)
	}
	return nil
}

// only keeps some contexts of a scope.
func only(scope workflow.Scope, names ...string) workflow.Scope {
	contexts := workflow.NewObject()
	for _, name := range names {
		if v, ok := scope.Contexts.Get(name); ok {
			contexts.Set(name, v)
		}
	}
	return workflow.Scope{Contexts: contexts}
}

// runAction runs the main or the post part of an action.
func (w *work) runAction(s *stepRun, run *actionRun, scope workflow.Scope, env environment) (string, map[string]string, error) {
	limit, err := w.timeLimit(run.step, scope)
	if err != nil {
		return failed, nil, err
	}
	w.actionHeader(s, run, env)
	env = env.clone()
	for name, value := range run.state {
		env["STATE_"+name] = value
	}
	for _, name := range run.inputs.Keys() {
		env["INPUT_"+strings.ToUpper(strings.ReplaceAll(name, " ", "_"))] = run.inputs.String(name)
	}
	if run.action.Using == "docker" {
		return w.dockerAction(s, run, env, limit)
	}
	return w.nodeAction(s, run, env, limit)
}

func (w *work) actionHeader(s *stepRun, run *actionRun, env environment) {
	if run.post {
		w.print(s, "Post job cleanup.")
		return
	}
	name := run.step.Reference.Path
	if run.step.Reference.Type == workflow.ReferenceImage {
		name = "docker://" + run.step.Reference.Image
	}
	w.print(s, "##[group]Run %s", name)
	if run.inputs.Len() > 0 {
		w.print(s, "with:")
		for _, k := range run.inputs.Keys() {
			if v := run.inputs.String(k); v != "" {
				w.print(s, "  %s: %s", k, v)
			}
		}
	}
	w.printEnv(s, env)
	w.print(s, "##[endgroup]")
}

func (w *work) dockerAction(s *stepRun, run *actionRun, env environment, limit deadline) (string, map[string]string, error) {
	if !w.hooksEnabled() {
		return failed, nil, w.noDocker(s)
	}
	c := &container{env: map[string]string{}}
	switch image := run.action.Image; {
	case workflow.IsDockerfile(image):
		c.dockerfile = run.dir + "/" + image
		if _, err := os.Stat(c.dockerfile); err != nil {
			return failed, nil, fmt.Errorf("File not found: '%s'", c.dockerfile)
		}
	case workflow.WithoutDocker(image) != image:
		c.Image = workflow.WithoutDocker(image)
	default:
		return failed, nil, fmt.Errorf("'%s' should be either '[path]/Dockerfile' or 'docker://image[:tag]'.", image)
	}
	if err := run.command(c, env); err != nil {
		return failed, nil, err
	}
	if err := os.MkdirAll(w.home(), 0o777); err != nil {
		return failed, nil, fmt.Errorf("making the container's home directory: %w", err)
	}
	c.mounts = []mount{systemMount(dockerSocket, dockerSocket, false)}
	c.mountAs(w.temp, "/github/runner_temp")
	c.mountAs(w.home(), containerHome)
	c.mountAs(filepath.Dir(w.eventPath()), containerWorkflow)
	c.mountAs(filepath.Join(w.temp, "_runner_file_commands"), "/github/file_commands")
	c.mountAs(w.workspace, "/github/workspace")
	c.dir = "/github/workspace"
	return w.supervise(s, run.step, scriptRun{env: env, limit: limit, do: func(files fileCommands, halt <-chan struct{}) (int, error) {
		variables := w.stepVariables(env, files)
		variables["HOME"] = w.home()
		maps.Copy(variables, w.serviceVariables())
		for name, value := range variables {
			c.env[name] = c.inside(value)
		}
		w.addProxies(c.env)
		response, err := w.callHook(s, runContainerStep, c.hook(), files, halt)
		w.saveState(response)
		return 0, err
	}})
}

// command sets what the container of an action runs. Variables of the action go to env unless the workflow has them.
func (run *actionRun) command(c *container, env environment) error {
	scope := workflow.Scope{Contexts: workflow.NewObject("inputs", run.inputs)}
	c.Entrypoint = firstOf(run.action.Entrypoint, run.inputs.String("entrypoint"))
	if run.post {
		c.Entrypoint = run.action.PostEntrypoint
	}
	arguments := run.inputs.String("args")
	if run.action.Args != nil {
		arguments = ""
		for _, arg := range run.action.Args {
			value, err := scope.Interpolate(arg)
			if err != nil {
				return fmt.Errorf("evaluating the action's arguments: %w", err)
			}
			arguments += ` "` + strings.ReplaceAll(value, `"`, `\"`) + `"`
		}
	}
	c.args = pieces(arguments)
	for _, v := range run.action.Env {
		if _, ok := env[v.Name]; ok {
			continue
		}
		value, err := scope.Interpolate(v.Value)
		if err != nil {
			return fmt.Errorf("evaluating the action's environment: %w", err)
		}
		env[v.Name] = value
	}
	return nil
}

func (w *work) nodeAction(s *stepRun, run *actionRun, env environment, limit deadline) (string, map[string]string, error) {
	script := run.action.Main
	if run.post {
		script = run.action.Post
	}
	script = run.dir + "/" + script
	if _, err := os.Stat(script); err != nil {
		return failed, nil, fmt.Errorf("File not found: '%s'", script)
	}
	version := run.action.Using
	if w.container == nil {
		node, err := w.node(version)
		if err != nil {
			return failed, nil, err
		}
		maps.Copy(env, w.serviceVariables())
		return w.supervise(s, run.step, scriptRun{args: []string{node, script}, dir: w.workspace, env: env, limit: limit})
	}
	if w.container.alpine {
		if runtime.GOARCH != "amd64" {
			return failed, nil, fmt.Errorf("JavaScript Actions in Alpine containers are only supported on x64 Linux runners. Detected %s %s", osName(), archName())
		}
		version += "_alpine"
	}
	return w.supervise(s, run.step, scriptRun{env: env, limit: limit, do: func(files fileCommands, halt <-chan struct{}) (int, error) {
		variables := w.stepVariables(env, files)
		maps.Copy(variables, w.serviceVariables())
		node := w.container.resolve(filepath.Join(w.externals(), version, "bin", "node"))
		return w.inContainer(s, node, w.container.resolve(script), w.workspace, variables, files, halt)
	}})
}

// node is the program for JavaScript actions on the runner itself. GitHub's runner brings its own; this one uses what there is.
func (w *work) node(version string) (string, error) {
	own := filepath.Join(w.externals(), version, "bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	found, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("this runner has no Node.js for JavaScript actions: install node, or place it at %s", own)
	}
	return found, nil
}

// afterwards runs the post steps of the actions, the last action's first, and then stops the containers.
func (w *work) afterwards() {
	for i := len(w.posts) - 1; i >= 0; i-- {
		run := w.posts[i]
		step := run.step
		step.Condition, step.ContinueOnError = run.action.PostIf, nil
		name := stepName(run.step, nil)
		w.newStep(newStepID(), "Post "+name)
		s := w.next()
		w.perform(s, step, "Post "+name, func(scope workflow.Scope, env environment) (string, map[string]string, error) {
			w.enterAction(run.step)
			return w.runAction(s, run, scope, env)
		})
	}
	if w.cleanUp {
		w.newStep(newStepID(), "Stop containers")
		w.internal("Stop containers", w.stopContainers)
	}
}
