package runner

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// Where a runner's directories are in a container (ContainerInfo.cs and ContainerOperationProvider.cs of actions/runner).
const (
	containerWork      = "/__w"
	containerTools     = "/__t"
	containerExternals = "/__e"
	containerHome      = "/github/home"
	containerWorkflow  = "/github/workflow"
	dockerSocket       = "/var/run/docker.sock"
)

// envRequireContainer forbids jobs without a container of their own.
const envRequireContainer = "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"

var errContainerRequired = errors.New("Jobs without a job container are forbidden on this runner, please add a 'container:' to your job or contact your self-hosted runner administrator.")

// errNoDocker is what GitHub's worker says without a hook, and without docker.
var errNoDocker = errors.New("docker: command not found")

// errNoContainer is .NET's text for a step whose container never got an id.
var errNoContainer = errors.New("Value cannot be null. (Parameter 'ContainerId')")

// container is a container of the job, a service, or that of a step.
type container struct {
	workflow.Container
	dockerfile string
	args       []string // of the entry point
	dir        string
	env        map[string]string
	mounts     []mount
	paths      []pathMapping // the first that fits counts
	alpine     bool
}

type pathMapping struct{ host, inside string }

// inside translates a path of the runner into one of the container. Other texts stay as they are.
func (c *container) inside(path string) string {
	for _, m := range c.paths {
		if path == m.host {
			return m.inside
		}
		if rest, ok := strings.CutPrefix(path, m.host+"/"); ok {
			return m.inside + "/" + rest
		}
	}
	return path
}

// resolve is inside for a path that a mounted directory may have.
func (c *container) resolve(path string) string {
	path = strings.Trim(path, `"`)
	for _, m := range c.mounts {
		if m.Source != nil && *m.Source != "" && strings.HasPrefix(path, *m.Source) {
			return c.inside(path)
		}
	}
	return path
}

// mountAs mounts a directory of the runner. Later mappings of paths go before earlier ones.
func (c *container) mountAs(host, inside string) {
	c.mounts = append(c.mounts, systemMount(host, inside, false))
	c.paths = append([]pathMapping{{host, inside}}, c.paths...)
}

func (c *container) hook() hookContainer {
	out := hookContainer{
		Image: orNull(c.Image), Dockerfile: orNull(c.dockerfile), EntryPointArgs: c.args, EntryPoint: orNull(c.Entrypoint),
		WorkingDirectory: orNull(c.dir), CreateOptions: orNull(c.Options), EnvironmentVariables: c.env,
		PortMappings: c.Ports, SystemMountVolumes: []mount{}, UserMountVolumes: []mount{},
	}
	if c.dockerfile != "" {
		out.Image = nil
	}
	if c.Username != "" {
		out.Registry = &hookRegistry{Username: c.Username, Password: c.Password, ServerURL: registryOf(c.Image)}
	}
	for _, m := range c.mounts {
		if m.UserProvidedValue != nil && *m.UserProvidedValue != "" {
			out.UserMountVolumes = append(out.UserMountVolumes, m)
		} else {
			out.SystemMountVolumes = append(out.SystemMountVolumes, m)
		}
	}
	out.PortMappings, out.EntryPointArgs = notNil(out.PortMappings), notNil(out.EntryPointArgs)
	return out
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// registryOf is the registry of an image, "" for Docker Hub.
func registryOf(image string) string {
	parts := strings.Split(image, "/")
	if len(parts) > 2 || len(parts) == 2 && strings.ContainsAny(parts[0], ":.") {
		return parts[0]
	}
	return ""
}

// pieces cuts a text at its spaces. Quotes stay in the pieces, as GitHub's worker leaves them.
func pieces(text string) []string {
	out := []string{}
	for piece := range strings.SplitSeq(text, " ") {
		if piece = strings.TrimSpace(piece); piece != "" {
			out = append(out, piece)
		}
	}
	return out
}

func (w *work) newContainer(spec workflow.Container, job bool) *container {
	c := &container{Container: spec, env: map[string]string{}, args: pieces(spec.Command)}
	c.paths = []pathMapping{{w.r.work, containerWork}, {w.tools(), containerTools}, {w.externals(), containerExternals}}
	if job {
		c.mounts = append(c.mounts, systemMount(dockerSocket, dockerSocket, false))
	}
	for _, v := range spec.Env {
		c.env[v.Name] = v.Value
	}
	for _, v := range spec.Volumes {
		c.mounts = append(c.mounts, userMount(v))
	}
	w.addProxies(c.env)
	return c
}

// addProxies adds the runner's proxies in both spellings, unless the workflow has set them.
func (w *work) addProxies(env map[string]string) {
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		upper := strings.ToUpper(name)
		value := firstOf(w.variable(name), w.variable(upper))
		for _, spelled := range []string{upper, name} {
			if _, ok := env[spelled]; !ok && value != "" {
				env[spelled] = value
			}
		}
	}
}

func (w *work) tools() string     { return filepath.Join(w.r.work, "_tool") }
func (w *work) externals() string { return filepath.Join(w.r.opts.WorkDir, "externals") }
func (w *work) home() string      { return filepath.Join(w.temp, "_github_home") }

// evaluateContainers finds out which containers the job wants.
func (w *work) evaluateContainers(s *stepRun) error {
	scope := w.scope(w.env)
	spec, err := scope.EvalContainer(w.msg.JobContainer)
	if err != nil {
		return fmt.Errorf("evaluating the job container: %w", err)
	}
	if spec == nil && strings.EqualFold(w.variable(envRequireContainer), "true") {
		return errContainerRequired
	}
	if spec != nil {
		if err := w.checkContainer(*spec, false); err != nil {
			return err
		}
		w.container = w.newContainer(*spec, true)
	}
	services, err := scope.EvalServices(w.msg.JobServiceContainers)
	if err != nil {
		return fmt.Errorf("evaluating the job service containers: %w", err)
	}
	for _, spec := range services {
		if spec.Image == "" {
			w.print(s, "The service '%s' will not be started because the container definition has an empty image.", spec.Name)
			continue
		}
		if err := w.checkContainer(spec, true); err != nil {
			return err
		}
		w.services = append(w.services, w.newContainer(spec, false))
	}
	if w.wantsContainers() && w.variable(envContainerHooks) == "" {
		return w.noDocker(s)
	}
	return nil
}

// checkContainer refuses what the service has not allowed.
func (w *work) checkContainer(c workflow.Container, service bool) error {
	allowed := service && strings.EqualFold(firstOf(w.msg.Variables[workflow.VarServiceCommand].Value, w.variable("ACTIONS_SERVICE_CONTAINER_COMMAND")), "true")
	switch {
	case allowed:
	case c.Entrypoint != "":
		return errors.New("The template is not valid. The key 'entrypoint' is not allowed")
	case c.Command != "":
		return errors.New("The template is not valid. The key 'command' is not allowed")
	}
	return nil
}

func (w *work) wantsContainers() bool { return w.container != nil || len(w.services) > 0 }

// noDocker ends a job that wants containers where no hook runs them. GitHub's worker would run them with docker.
func (w *work) noDocker(s *stepRun) error {
	if _, err := exec.LookPath("docker"); err == nil {
		return errors.New("the development runner doesn't use docker; set " + envContainerHooks + " to a hook that runs containers")
	}
	w.print(s, "Containers of a job need docker or a container hook (%s) on the runner. This runner has neither: use a pool that runs containers.", envContainerHooks)
	return errNoDocker
}

// startContainers is the step "Initialize containers".
func (w *work) startContainers(s *stepRun) error {
	w.cleanUp = true // also after a prepare_job that failed
	if !w.hooksEnabled() {
		return errNullReference // GitHub's worker has no docker then, and uses it
	}
	args := prepareArgs{Services: []hookContainer{}}
	if w.container != nil {
		if err := w.mountJob(w.container); err != nil {
			return err
		}
		c := w.container.hook()
		args.Container = &c
	}
	names := make([]string, 0, len(w.services))
	for _, service := range w.services {
		args.Services = append(args.Services, service.hook())
		names = append(names, service.Name)
	}
	response, err := w.callHook(s, prepareJob, args, nil, w.stop.gentle)
	if err != nil {
		return err
	}
	if response == nil {
		return errNullReference
	}
	if w.container != nil {
		w.container.alpine = *response.IsAlpine
	}
	w.saveState(response)
	w.job, err = response.contextOf(w.container != nil, names)
	return err
}

// mountJob mounts the runner's directories into the container of the job.
func (w *work) mountJob(c *container) error {
	for _, dir := range []string{w.home(), filepath.Join(w.r.work, "_actions"), w.tools(), w.externals()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("making the directories of the job container: %w", err)
		}
	}
	for _, m := range []struct {
		host     string
		readOnly bool
	}{{w.r.work, false}, {w.externals(), true}, {w.temp, false}, {filepath.Join(w.r.work, "_actions"), false}, {w.tools(), false}} {
		c.mounts = append(c.mounts, systemMount(m.host, c.inside(m.host), m.readOnly))
	}
	c.mountAs(w.home(), containerHome)
	c.env["HOME"] = containerHome
	c.mountAs(filepath.Dir(w.eventPath()), containerWorkflow)
	c.dir = c.inside(w.workspace)
	return nil
}

// stopContainers is the step "Stop containers", after everything else of the job.
func (w *work) stopContainers(s *stepRun) error {
	if !w.hooksEnabled() {
		return errNullReference
	}
	_, err := w.callHook(s, cleanupJob, struct{}{}, w.lastFiles, nil)
	return err
}

// inContainer runs a command by the hook in the container of the job.
func (w *work) inContainer(s *stepRun, entryPoint, arguments, dir string, env map[string]string, files fileCommands, halt <-chan struct{}) (int, error) {
	if !w.hooksEnabled() {
		return -1, errNoContainer
	}
	inside := make(map[string]string, len(env))
	for name, value := range env {
		inside[name] = w.container.inside(value)
	}
	response, err := w.callHook(s, runScriptStep, scriptArgs{
		EntryPoint: entryPoint, EntryPointArgs: splitTrimmed(arguments), EnvironmentVariables: inside,
		PrependPath: notNil(w.path), WorkingDirectory: w.container.resolve(dir),
	}, files, halt)
	w.saveState(response)
	return 0, err
}

// splitTrimmed cuts at each space; empty pieces stay.
func splitTrimmed(text string) []string {
	parts := strings.Split(text, " ")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// stepVariables are the variables of a step that runs in a container: those of the workflow, and last what GitHub defines. GitHub's worker
// leaves to the container what docker would set, such as CI.
func (w *work) stepVariables(env environment, files fileCommands) map[string]string {
	out := maps.Clone(map[string]string(env))
	maps.Copy(out, w.githubVariables())
	maps.Copy(out, w.idTokenVariables())
	maps.Copy(out, files)
	for _, name := range []string{"CI", "GITHUB_ACTIONS", "RUNNER_TRACKING_ID"} {
		if _, ok := env[name]; !ok {
			delete(out, name)
		} else {
			out[name] = env[name]
		}
	}
	return out
}

// serviceVariables tell an action where the services of the run are.
func (w *work) serviceVariables() map[string]string {
	endpoint, _ := w.msg.Endpoint(workflow.SystemConnection)
	out := map[string]string{"ACTIONS_RUNTIME_URL": endpoint.URL, "ACTIONS_RUNTIME_TOKEN": endpoint.Authorization.Parameters["AccessToken"]}
	for variable, key := range map[string]string{"ACTIONS_CACHE_URL": workflow.DataCache, "ACTIONS_RESULTS_URL": workflow.DataResults} {
		if endpoint.Data[key] != "" {
			out[variable] = endpoint.Data[key]
		}
	}
	return out
}
