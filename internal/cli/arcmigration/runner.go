package arcmigration

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

const (
	// runnerImage is GitHub's own, in which Bullpen starts the runner without a command.
	runnerImage  = "ghcr.io/actions/actions-runner:latest"
	runnerFolder = "/home/runner"

	// Of the peer's images, and where its controller has jobs work by default.
	legacyFolder   = "/runner"
	legacyWorkPath = "/runner/_work"

	containerRunner = "runner"
	containerDocker = "docker"

	// placeholderHooks is written where the peer's controller would have made a ServiceAccount by itself.
	placeholderHooks = "runner-hooks"
)

// runnerSchema is that of a RunnerSpec, and podSchema that of its pods' spec.
func runnerSchema() schema { return kindSchemas()[v1alpha1.KindRunner].at("spec") }

func podSchema() schema { return runnerSchema().at("template", "spec") }

func containerSchema() schema { return podSchema().at("containers", "[]") }

// runnerParts are what a RunnerSpec is made from.
type runnerParts struct {
	*conversion
	// config is where the registration and the container mode are written, and at the path of the RunnerSpec in what is made.
	config *value
	at     string
	// spec, pod and runner are the RunnerSpec, its pod's spec and the container that jobs run in. others are the pod's other
	// containers.
	spec, pod, runner fields
	others            []any
	// daemon is a Docker daemon that is written into the pod.
	daemon *daemon
	// moved reports that the image is another, and with it the directory of the runner.
	moved bool
	// ofScaleSet says that the pod is that of a scale set, whose image is GitHub's own unless another is named.
	ofScaleSet bool
}

func (c *conversion) newParts(config *value, at string) *runnerParts {
	c.from(at, config)
	return &runnerParts{conversion: c, config: config, at: at, spec: fields{}, pod: fields{}, runner: fields{"name": containerRunner}}
}

// finished puts the parts together.
func (p *runnerParts) finished(podMeta fields) fields {
	p.pod["containers"] = append([]any{p.runner}, p.others...)
	if p.spec["kubernetes"] != nil { // which names the ServiceAccount
		delete(p.pod, "serviceAccountName")
		delete(p.pod, "serviceAccount")
	}
	template := fields{"spec": p.pod}
	set(template, "metadata", podMeta)
	p.spec["template"] = template
	return p.spec
}

// registration converts where the runner is registered, and as what.
func (p *runnerParts) registration() {
	v, s := p.config, runnerSchema()
	for _, name := range []string{"enterprise", "organization", "repository", "group"} {
		if field := v.get(name); field != nil && field.scalar == "" {
			field.use() // actions-runner-controller takes it for unset
		}
	}
	if v.get("repository").peek() != "" {
		p.drop(v.get("group"), "runner groups belong to organizations and enterprises; runners of a repository have none", "")
	}
	for _, name := range []string{"enterprise", "organization", "repository", "group"} {
		if field := v.get(name); field != nil && !field.used {
			set(p.spec, name, p.keep(field, s.at(name)))
		}
	}
	p.keepFields(p.spec, v, s, "ephemeral")
	p.labels(v.get("labels"))
	secret := p.text(v.get("githubAPICredentialsFrom", "secretRef", "name"))
	if secret != "" {
		p.spec["credentials"] = fields{"secretName": secret}
	}
	if p.spec["enterprise"] != nil && secret == "" {
		p.todo(v.get("enterprise"), "GitHub Apps cannot register runners of an enterprise, and the controller's own credentials are a GitHub App's",
			"put a personal access token into a Secret, and set credentials.secretName")
	}
	p.workFolder(v.get("workDir"))
}

// labels converts those that runners are registered with, and adds those that GitHub's config.sh gives them by itself at the peer's.
func (p *runnerParts) labels(v *value) {
	own, origins := []any{}, []*value{}
	seen := map[string]bool{}
	for i, label := range p.texts(v) {
		if lower := strings.ToLower(label); !seen[lower] {
			seen[lower] = true
			own, origins = append(own, label), append(origins, v.items[i])
			continue
		}
		p.find(Changed, v.items[i], fmt.Sprintf("duplicate label %s; GitHub ignores case", label), "")
	}
	kept := []any{}
	for _, label := range []string{"self-hosted", "Linux"} {
		if !seen[strings.ToLower(label)] {
			kept = append(kept, label)
		}
	}
	label, said := p.architecture()
	if !slices.ContainsFunc(architectureLabels, func(label string) bool { return seen[label] }) {
		kept = append(kept, label)
	}
	if len(kept) > 0 {
		why := fmt.Sprintf("GitHub's config.sh, with which actions-runner-controller registers, adds the labels self-hosted, Linux and that of the architecture, and jobs use them: %s are added", words(kept))
		if said == nil {
			p.find(Changed, p.config.place("labels"), why, "if the nodes are not x64, use ARM64 instead of X64")
		} else {
			p.find(Changed, p.config.place("labels"), why+", for the nodes set at "+p.pathOf(said), "")
		}
	}
	p.from(p.at+".labels", p.config.place("labels"))
	for i, origin := range origins {
		p.from(itemPath(p.at+".labels", len(kept)+i), origin)
	}
	set(p.spec, "labels", append(kept, own...))
}

func words(of []any) string {
	var text strings.Builder
	for i, word := range of {
		switch {
		case i > 0 && i == len(of)-1:
			text.WriteString(" and ")
		case i > 0:
			text.WriteString(", ")
		}
		fmt.Fprint(&text, word)
	}
	return text.String()
}

// architecture is the label of the runner's: of its nodes, or of its image.
func (p *runnerParts) architecture() (string, *value) {
	pod := p.config
	if whole := pod.get("template", "spec"); whole != nil { // of a RunnerSet
		pod = whole
	}
	return architecture(pod, p.config.get("image"), runnerOf(pod.get("containers")).get("image"))
}

// workFolder converts the jobs' working directory: absolute at the peer's, below the runner's directory at Bullpen.
func (p *runnerParts) workFolder(v *value) {
	given := v.peek()
	if given == "" {
		p.text(v)
		return
	}
	folder := path.Clean(given)
	for _, root := range []string{legacyFolder + "/", runnerFolder + "/"} {
		folder = strings.TrimPrefix(folder, root)
	}
	if path.IsAbs(folder) || strings.HasPrefix(folder, "..") {
		p.drop(v, "the work directory is below the runner's own directory (workFolder)", "mount the volume at "+runnerFolder+"/_work")
		return
	}
	p.text(v)
	if folder != "_work" {
		p.spec["workFolder"] = folder
	}
}

// image gives the runner's container its image: that of the config before that of the container.
func (p *runnerParts) image(container *value) {
	v := p.config.get("image")
	if v.peek() == "" {
		p.text(v)
		v = container.get("image")
	} else {
		p.drop(container.get("image"), "image of the runner's spec is set too, and actions-runner-controller uses that", "")
	}
	image := p.text(v)
	switch {
	case image == "":
		if image = runnerImage; p.ofScaleSet {
			break
		}
		p.moved = true
		p.find(Changed, p.config.place("image"), "no image is set; actions-runner-controller has its own default, and "+runnerImage+" is used instead",
			"check whether jobs need a program of the other image")
	case ofThePeer(image):
		p.moved = true
		p.todo(v, image+" starts the runner with an entrypoint that Bullpen does not use; "+runnerImage+" is used instead",
			"check whether jobs need a program of the other image, and build an image from GitHub's own if so")
		image = runnerImage
	case !strings.HasPrefix(image, "ghcr.io/actions/actions-runner:") && !strings.HasPrefix(image, "ghcr.io/actions/actions-runner@"):
		if p.runner["command"] == nil {
			p.todo(v, "Bullpen starts "+runnerFolder+"/bin/Runner.Listener, as in GitHub's own image, and "+image+" may not have it",
				"build the image from ghcr.io/actions/actions-runner, or give the container runner a command that starts the runner")
		}
	}
	p.runner["image"] = image
}

// ofThePeer knows the images that the peer publishes.
func ofThePeer(image string) bool {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	parts := strings.Split(name, "/")
	if len(parts) < 2 {
		return false
	}
	owner, base := parts[len(parts)-2], parts[len(parts)-1]
	return (owner == "summerwind" || owner == "actions-runner-controller") && strings.HasPrefix(base, "actions-runner")
}

// entrypointVariables are read by the entrypoint of the peer's images, and by nothing else.
var entrypointVariables = []string{
	"DISABLE_RUNNER_UPDATE", "DISABLE_WAIT_FOR_DOCKER", "DOCKERD_IN_RUNNER", "DOCKER_ENABLED", "GITHUB_URL", "LOG_DEBUG_DISABLED",
	"LOG_ERROR_DISABLED", "LOG_NOTICE_DISABLED", "LOG_SUCCESS_DISABLED", "LOG_WARNING_DISABLED", "RUNNER_ENTERPRISE", "RUNNER_EPHEMERAL",
	"RUNNER_FEATURE_FLAG_EPHEMERAL", "RUNNER_FEATURE_FLAG_ONCE", "RUNNER_GRACEFUL_STOP_TIMEOUT", "RUNNER_GROUP", "RUNNER_LABELS",
	"RUNNER_NAME", "RUNNER_ORG", "RUNNER_REPO", "RUNNER_STATUS_UPDATE_HOOK", "RUNNER_TOKEN", "RUNNER_WORKDIR", "STARTUP_DELAY_IN_SECONDS",
	"WAIT_FOR_DOCKER_SECONDS",
}

// neverInRunners takes out what would end a runner in the middle of its job, or hide whether it has one.
func (c *conversion) neverInRunners(pod, containers *value) {
	for _, toleration := range pod.get("tolerations").elements() {
		c.drop(toleration.get("tolerationSeconds"), "with tolerationSeconds Kubernetes would delete the runner in the middle of a job", // POOL-9
			"check whether the runner should tolerate the taint at all")
	}
	if automount := pod.get("automountServiceAccountToken"); scalarOf(automount) == true {
		c.drop(automount, "containers of a runner have a Kubernetes token only in container mode Kubernetes, so jobs that use the cluster's API lose it", // NET-3
			"give such jobs their own credentials, as secrets of the workflow")
	}
	c.drop(pod.get("activeDeadlineSeconds"), "it would stop the runner in the middle of a job", "limit jobs in their workflow, with timeout-minutes") // EXCL-7
	for _, container := range containers.elements() {
		c.drop(container.get("readinessProbe"), "readiness shows whether the runner has a job", "use a startupProbe if a container must be up first")
		if container.get("name").peek() == containerRunner {
			c.drop(container.get("livenessProbe"), "it could stop the runner in the middle of a job", "")
			c.drop(container.get("startupProbe"), "it would hide the runner's first job, and could stop it", "")
		}
	}
}

// env takes out what only the peer's images read.
func (c *conversion) env(v *value) {
	for _, variable := range v.elements() {
		if name := variable.get("name").peek(); slices.Contains(entrypointVariables, name) {
			c.drop(variable, name+" is for the entrypoint of actions-runner-controller's images, and nothing else reads it", "")
		}
	}
}

// move changes where volumes are mounted, if the runner lies in another directory than in the peer's image.
func (p *runnerParts) move(mounts []any, v *value) {
	if !p.moved {
		return
	}
	work := p.config.get("workDir").peek()
	if !path.IsAbs(work) {
		work = legacyWorkPath
	}
	for _, mount := range mounts {
		mount, _ := mount.(fields)
		at, _ := mount["mountPath"].(string)
		to := at
		switch clean := path.Clean(at); {
		case below(clean, path.Clean(work)) && below(work, legacyFolder):
			to = runnerFolder + strings.TrimPrefix(clean, legacyFolder)
		case below(clean, path.Clean(work)):
			to = runnerFolder + "/_work" + strings.TrimPrefix(clean, path.Clean(work))
		case below(clean, legacyFolder):
			to = runnerFolder + strings.TrimPrefix(clean, legacyFolder)
		}
		if to != at {
			mount["mountPath"] = to
			p.find(Changed, v, fmt.Sprintf("the mount at %s moves to %s, because the runner's directory is %s in this image", at, to, runnerFolder), "")
		}
	}
}

func below(at, folder string) bool { return at == folder || strings.HasPrefix(at, folder+"/") }
