package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

const (
	// stopTimeout is Docker's: from the stop signal to SIGKILL.
	stopTimeout = 10 * time.Second
	// maxStopTimeout is in place of Docker's "no limit".
	maxStopTimeout = 10 * time.Minute
)

// Complete returns the plan, given what was added to the pod, in the order of Wanted. It returns *Error for what only the images
// show: another platform, root where it is not permitted, two services on one port.
func (d Draft) Complete(granted []jobcontainer.Granted) (Plan, error) {
	if len(granted) != len(d.drafts) {
		return Plan{}, fmt.Errorf("planning a job: %d containers were granted, and %d were requested", len(granted), len(d.drafts))
	}
	var found problems
	plan, err := d.network(granted)
	found.take(err)
	names := &hostNames{}
	for i, one := range d.drafts {
		if g := granted[i]; g.Role != one.role || g.Position != one.position || g.Name == "" {
			return Plan{}, fmt.Errorf("planning a job: container %d that was granted is not the one that was requested", i)
		}
		container := d.container(one, granted[i], &plan, &found)
		container.Ports = plan.Containers[i].Ports
		plan.Containers[i] = container
		names.add(one)
		plan.Warnings = append(plan.Warnings, one.options.Warnings...)
		plan.Notes = append(plan.Notes, one.notes...)
	}
	if err := found.err(); err != nil {
		return Plan{}, err
	}
	plan.Hosts = names.lines
	plan.Warnings = append(plan.Warnings, names.warnings...)
	return plan, nil
}

// container merges what is asked for with what the image says.
func (d Draft) container(one draft, granted jobcontainer.Granted, plan *Plan, found *problems) Container {
	config, asked := granted.Config, one.options
	c := Container{
		Role: one.role, Position: one.position, Name: one.name, Container: granted.Name, Image: one.asked.Image, Reference: granted.Image,
		User: first(asked.User, config.User), WorkDir: path.Clean(first(asked.WorkDir, one.asked.WorkingDirectory, config.WorkingDir, "/")),
		StopSignal: asked.StopSignal, StopTimeout: stopTimeout, NoFile: asked.NoFile, Links: one.links, Volumes: slices.Clone(one.volumes),
	}
	c.Env = d.env(one, config, c.WorkDir, found)
	if config.OS != "" && d.runner.Platform != "" && config.OS+"/"+config.Architecture != d.runner.Platform {
		found.add("%s", PlatformText(c.Image, d.runner.Platform, config.OS+"/"+config.Architecture))
	}
	if d.runner.Restricted {
		d.runner.checkUser(c, found)
	}
	if one.role != jobcontainer.RoleJob { // which runs nothing but steps
		c.Argv = argv(one, config)
		if len(c.Argv) == 0 {
			found.add("Image '%s' of container '%s' has neither an entrypoint nor a command. Set one of them.", c.Image, c.Name)
		}
	}
	if c.StopSignal == "" && options.IsSignal(config.StopSignal) {
		c.StopSignal = config.StopSignal
	}
	if seconds := asked.StopTimeout; seconds != nil {
		c.StopTimeout = maxStopTimeout
		if *seconds >= 0 && *seconds < int(maxStopTimeout/time.Second) {
			c.StopTimeout = time.Duration(*seconds) * time.Second
		}
	}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		v.Keep = v.Keep || slices.Contains(config.Volumes, v.Target) && d.ofOne(v.Source)
		if v.Source == "" {
			v.Source = path.Join(volumesDir, "_"+granted.Name+"-"+strconv.Itoa(i))
		}
	}
	if one.role == jobcontainer.RoleService {
		c.Health = health.For(config.Healthcheck, asked.Health)
		if c.Health == nil && asked.HealthIsChanged {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("Options --health-* of container '%s' have no effect: image '%s' has no HEALTHCHECK. Add --health-cmd.", c.Name, c.Image))
		}
	}
	return c
}

// ofOne says whether a volume that begins empty is of one container, at one path. The directory that a runtime mounts at a VOLUME of the image
// is then as good. A later container of a step may have a volume with a name.
func (d Draft) ofOne(source string) bool {
	if source == "" {
		return true
	}
	uses := 0
	for _, one := range d.drafts {
		for _, v := range one.volumes {
			if v.Source != "" && (below(v.Source, source) || below(source, v.Source)) {
				uses++
			}
		}
	}
	return uses == 1 && below(source, volumesDir)
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// argv is what Docker starts: whoever sets the entrypoint drops the image's command.
func argv(one draft, config jobcontainer.ImageConfig) []string {
	switch entrypoint := one.options.Entrypoint; {
	case one.asked.EntryPoint != "":
		return append([]string{one.asked.EntryPoint}, one.args...)
	case entrypoint != nil && *entrypoint == "":
		return one.args
	case entrypoint != nil:
		return append([]string{*entrypoint}, one.args...)
	case len(one.args) > 0:
		return slices.Concat(config.Entrypoint, one.args)
	default:
		return slices.Concat(config.Entrypoint, config.Cmd)
	}
}

// IsRoot says whether Container.User is root, by its name or number.
func IsRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	id, err := strconv.Atoi(name)
	return name == "" || name == "root" || err == nil && id == 0
}

// checkUser refuses a user that a container which runs as the runner's can't change to. A name may be the runner's in the image: its guard knows.
func (r Runner) checkUser(c Container, found *problems) {
	name, _, _ := strings.Cut(c.User, ":")
	id, err := strconv.Atoi(name)
	switch {
	case IsRoot(c.User):
		found.add("%s", RootText(c.Image))
	case err == nil && id != r.User:
		found.add("%s", UserText(c.Name, c.Image, uint32(id), uint32(r.User))) //nolint:gosec // numbers of users
	}
}

// env merges variables as docker mode does, where options stand before the variables of the workflow on docker's command line.
func (d Draft) env(one draft, config jobcontainer.ImageConfig, workDir string, found *problems) []string {
	e := &environment{at: map[string]int{}}
	for _, variable := range config.Env {
		e.set(variable)
	}
	for _, file := range one.options.EnvFiles {
		for _, variable := range d.runner.envFile(one.name, file, found) {
			d.runner.option(e, variable)
		}
	}
	for _, variable := range one.options.Env {
		d.runner.option(e, variable)
	}
	for _, name := range slices.Sorted(maps.Keys(one.asked.EnvironmentVariables)) {
		e.set(name + "=" + one.asked.EnvironmentVariables[name])
	}
	e.set("GITHUB_ACTIONS=true")
	if _, given := one.asked.EnvironmentVariables["CI"]; !given {
		e.set("CI=true")
	}
	if name := one.options.Hostname; name != "" { // the kernel's is the pod's, and the guard's default
		e.fill([]string{"HOSTNAME=" + name})
	}
	if one.role != jobcontainer.RoleService {
		e.fill(d.runner.builder())
	}
	if one.role == jobcontainer.RoleStep {
		e.trustWorkspace(workDir)
	}
	return e.variables
}

// trustWorkspace is for actions, whose workspace is a link: a program that asks the kernel for its directory gets another path, and git then ignores
// a safe.directory with the link's. The files are the job's own, so no owner of theirs is wrong. Git reads these variables from 2.38 on.
func (e *environment) trustWorkspace(workDir string) {
	e.fill([]string{"PWD=" + workDir})
	text, set := e.get("GIT_CONFIG_COUNT")
	count, err := strconv.Atoi(text)
	if set && (err != nil || count < 0) { // git reports it
		return
	}
	e.set(fmt.Sprintf("GIT_CONFIG_COUNT=%d", count+1))
	e.set(fmt.Sprintf("GIT_CONFIG_KEY_%d=safe.directory", count))
	e.set(fmt.Sprintf("GIT_CONFIG_VALUE_%d=*", count)) // also checkouts below the workspace, and submodules
}

// builder returns the variables by which clients of the runner find the pod's BuildKit daemon, for containers that run steps: its socket and the
// configuration of buildx are in the volume that they share with the runner.
func (r Runner) builder() []string {
	var found []string
	for _, name := range []string{"BUILDKIT_HOST", "BUILDX_CONFIG", "BUILDX_BUILDER"} {
		for _, own := range r.Environ {
			if strings.HasPrefix(own, name+"=") {
				found = append(found, own)
			}
		}
	}
	if !slices.Contains(found, "BUILDKIT_HOST=unix://"+jobcontainer.BuildKitSocket) || !slices.Contains(found, "BUILDX_CONFIG="+jobcontainer.BuildxConfig) {
		return nil // there is none, or the pool has another
	}
	return found
}

// environment keeps each name once, where it first occurred.
type environment struct {
	variables []string
	at        map[string]int
}

// fill sets what is not set.
func (e *environment) fill(variables []string) {
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		if _, set := e.get(name); !set {
			e.set(variable)
		}
	}
}

func (e *environment) get(name string) (value string, set bool) {
	i, set := e.at[name]
	if !set {
		return "", false
	}
	return strings.TrimPrefix(e.variables[i], name+"="), true
}

func (e *environment) set(variable string) {
	name, _, given := strings.Cut(variable, "=")
	if !given || name == "" {
		return
	}
	if i, known := e.at[name]; known {
		e.variables[i] = variable
		return
	}
	e.at[name] = len(e.variables)
	e.variables = append(e.variables, variable)
}

// option sets a variable of --env. Without a value it has the runner's, and without that it is not set.
func (r Runner) option(e *environment, variable options.Variable) {
	if !variable.FromRunner {
		e.set(variable.Name + "=" + variable.Value)
		return
	}
	for _, own := range r.Environ {
		if strings.HasPrefix(own, variable.Name+"=") {
			e.set(own)
		}
	}
}

// envFile reads --env-file.
func (r Runner) envFile(container, file string, found *problems) []options.Variable {
	if r.ReadFile == nil {
		found.add("Option '--env-file %s' of container '%s' can't be used: the file can't be read on this runner.", file, container)
		return nil
	}
	data, err := r.ReadFile(file)
	if err != nil {
		found.add("Option '--env-file %s' of container '%s' can't be used: the file can't be read. It must be a file below the workspace.", file, container)
		return nil
	}
	variables, line := options.ParseEnvFile(data)
	if line > 0 {
		found.add("Option '--env-file %s' of container '%s' is invalid: line %d must be NAME=value or NAME.", file, container, line)
	}
	return variables
}

// hostNames collects lines of /etc/hosts. The containers share the file, so a name has one address.
type hostNames struct {
	lines    []HostName
	warnings []string
}

const localhost = "127.0.0.1"

func (h *hostNames) add(one draft) {
	if one.role == jobcontainer.RoleService {
		h.line(localhost, one.name)
	}
	if one.options.Hostname != "" {
		h.line(localhost, one.options.Hostname)
	}
	for _, name := range one.options.Names {
		h.line(localhost, name)
	}
	for _, host := range one.options.AddHosts {
		h.line(host.IP, host.Name)
	}
}

func (h *hostNames) line(ip, name string) {
	for _, line := range h.lines {
		if strings.EqualFold(line.Name, name) {
			if line.IP != ip {
				h.warnings = append(h.warnings, fmt.Sprintf("Host name '%s' has two addresses. On this runner all containers of a job share their host names; %s is used and %s is not.", name, line.IP, ip))
			}
			return
		}
	}
	h.lines = append(h.lines, HostName{IP: ip, Name: name})
}
