package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// Names of containers in texts that are no services.
const (
	JobName  = "job"
	StepName = "step"
)

// draft is one container before its image is known.
type draft struct {
	role     jobcontainer.Role
	position int
	name     string
	asked    hook.Container
	args     []string
	options  options.Options
	ports    []mapping
	volumes  []Volume // the source of an anonymous one is empty
	links    []Link
	notes    []string
}

// problems collects the sentences of an Error.
type problems []string

func (p *problems) add(format string, args ...any) {
	*p = append(*p, fmt.Sprintf(format, args...))
}

// take adds what an error says.
func (p *problems) take(err error) {
	var options *options.Error
	var own *Error
	switch {
	case errors.As(err, &options):
		*p = append(*p, options.Problems...)
	case errors.As(err, &own):
		*p = append(*p, own.Problems...)
	case err != nil:
		*p = append(*p, err.Error())
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &Error{Problems: p}
}

// ForJob returns what to request for PrepareJob, or *Error.
func ForJob(job Job, runner Runner) (Draft, error) {
	var found problems
	d := Draft{runner: runner}
	if len(job.Names) != len(job.Services) {
		return Draft{}, fmt.Errorf("planning a job: %d names for %d services", len(job.Names), len(job.Services))
	}
	if job.Container != nil {
		d.runner = runner.withDirectories(job.Container.SystemMountVolumes)
		d.add(jobcontainer.RoleJob, 0, JobName, *job.Container, &found)
	}
	for i, service := range job.Services {
		d.add(jobcontainer.RoleService, i, job.Names[i], service, &found)
	}
	d.checkCredentials(&found)
	if _, err := d.network(nil); len(found) == 0 && err != nil {
		return Draft{}, err
	}
	if err := found.err(); err != nil {
		return Draft{}, err
	}
	return d, nil
}

// ForStep returns what to request for RunContainerStep, or *Error. A Dockerfile must have been built before: the image is that
// which was built.
func ForStep(step hook.Container, runner Runner) (Draft, error) {
	var found problems
	d := Draft{runner: runner.withDirectories(step.SystemMountVolumes)}
	if step.Image == "" {
		found.add("%s", DockerfileText(ActionName(step.Dockerfile, d.runner)))
		return Draft{}, found.err()
	}
	d.add(jobcontainer.RoleStep, 0, StepName, step, &found)
	if err := found.err(); err != nil {
		return Draft{}, err
	}
	return d, nil
}

// add reads one container.
func (d *Draft) add(role jobcontainer.Role, position int, name string, asked hook.Container, found *problems) {
	one := draft{role: role, position: position, name: name, asked: asked}
	var err error
	if one.args, err = options.Join(asked.EntryPointArgs); err != nil {
		found.add("Arguments of container '%s' are invalid: a double quote is not closed.", name)
	}
	if one.options, err = options.Parse(name, asked.CreateOptions, d.runner.Pool); err != nil {
		found.take(err)
	}
	for _, text := range slices.Concat(asked.PortMappings, one.options.Ports) {
		mappings, why := parsePort(text)
		if why != "" {
			found.add("Port '%s' of container '%s' is invalid: %s.", text, name, why)
		}
		one.ports = append(one.ports, mappings...)
	}
	for _, text := range one.options.Expose {
		if _, why := parseExposed(text); why != "" {
			found.add("Option '--expose %s' of container '%s' is invalid: %s.", text, name, why)
		}
	}
	if platform := one.options.Platform; platform != "" && d.runner.Platform != "" && !samePlatform(platform, d.runner.Platform) {
		found.add("Option '--platform %s' of container '%s' is not available on this runner: its node is %s. Use a pool with such nodes.", platform, name, d.runner.Platform)
	}
	one.volumes = append(d.runner.volumes(&one, found), d.runner.tools(&one)...)
	one.links = d.runner.links(&one)
	wanted := jobcontainer.Wanted{Role: role, Position: position, Image: strings.TrimPrefix(asked.Image, "docker://")}
	if r := asked.Registry; r != nil {
		wanted.Credentials = &jobcontainer.Credentials{Username: r.Username, Password: r.Password, Server: r.ServerURL}
	}
	d.wanted = append(d.wanted, wanted)
	d.drafts = append(d.drafts, one)
}

// samePlatform compares os/architecture, and nothing else if an option has only a part.
func samePlatform(asked, node string) bool {
	asked, node = strings.ToLower(asked), strings.ToLower(node)
	if !strings.Contains(asked, "/") {
		system, architecture, _ := strings.Cut(node, "/")
		return asked == system || asked == architecture
	}
	parts := strings.SplitN(asked, "/", 3)
	return parts[0]+"/"+parts[1] == node
}

// checkCredentials refuses two credentials for one repository: the pod has one list for all of its containers, by repository.
func (d *Draft) checkCredentials(found *problems) {
	first := map[string]jobcontainer.Credentials{}
	for _, wanted := range d.wanted {
		if wanted.Credentials == nil {
			continue
		}
		registry, repository := splitImage(wanted.Image)
		key := registry + "/" + repository
		if before, known := first[key]; known && before != *wanted.Credentials {
			found.add("Two different credentials for registry '%s' and repository '%s' can't be used in one job. Use the same for both.", registry, repository)
			continue
		}
		first[key] = *wanted.Credentials
	}
}

// splitImage returns the registry and the repository of an image, as Docker reads them.
func splitImage(image string) (registry, repository string) {
	image, _, _ = strings.Cut(image, "@")
	registry, repository, found := strings.Cut(image, "/")
	if !found || (!strings.ContainsAny(registry, ".:") && registry != "localhost") {
		registry, repository = "docker.io", image
	}
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository = repository[:i]
	}
	if registry == "docker.io" && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	return registry, repository
}
