package plan

import (
	"path"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// volumesDir has the volumes of a job that are no directories of the workflow. A name begins with no underscore, so what is
// anonymous does.
const volumesDir = jobcontainer.WorkDir + "/_volumes"

// hostDir has those that are paths of the host.
const hostDir = volumesDir + "/_host"

// withDirectories fills in the runner's directories from the volumes that it mounts in every container (ContainerOperationProvider.cs
// and ContainerActionHandler.cs of GitHub's runner).
func (r Runner) withDirectories(mounts []hook.Mount) Runner {
	for _, mount := range mounts {
		switch {
		case mount.Target == jobcontainer.WorkDir && r.Work == "":
			r.Work = mount.Source
		case mount.Target == jobcontainer.GitHubDir+"/runner_temp" && r.Work == "":
			r.Work = path.Dir(mount.Source)
		case mount.Target == jobcontainer.ExternalsDir && r.Externals == "":
			r.Externals = mount.Source
		case mount.Target == jobcontainer.ToolsDir && r.Tools == "":
			r.Tools = mount.Source
		}
	}
	return r
}

// translate returns the path in every container of a path on the runner.
func (r Runner) translate(file string) (string, bool) {
	file = path.Clean(file)
	for _, directory := range [][2]string{{r.Work, jobcontainer.WorkDir}, {r.Tools, jobcontainer.ToolsDir}, {r.Externals, jobcontainer.ExternalsDir},
		{jobcontainer.WorkDir, jobcontainer.WorkDir}} {
		if directory[0] == "" {
			continue
		}
		if root := path.Clean(directory[0]); below(file, root) {
			return directory[1] + strings.TrimPrefix(file, root), true
		}
	}
	return "", false
}

// below says whether a path is directory, or in it.
func below(file, directory string) bool {
	rest, found := strings.CutPrefix(file, directory)
	return found && (rest == "" || rest[0] == '/')
}

// isRunners says whether what is at a path belongs to the runner.
func isRunners(target string) bool {
	switch target {
	case jobcontainer.WorkDir, jobcontainer.ExternalsDir, jobcontainer.ToolsDir, jobcontainer.GitHubDir:
		return true
	}
	return below(target, jobcontainer.Dir) || below(jobcontainer.Dir, target)
}

// links returns the links for the directories that the runner mounts in a container. Those that have the same path in the pod's
// volumes need none. The docker socket, which the runner always asks for, is left out.
func (r Runner) links(one *draft) []Link {
	var links []Link
	for _, mount := range one.asked.SystemMountVolumes {
		if isDockerSocket(mount.Source) {
			continue
		}
		source, known := r.translate(mount.Source)
		if !known {
			one.options.Warnings = append(one.options.Warnings, "The runner's directory '"+mount.Source+"' is not available in container '"+one.name+"' at '"+mount.Target+"'.")
			continue
		}
		if target := path.Clean(mount.Target); source != target {
			links = append(links, Link{Path: target, Target: source})
		}
	}
	return links
}

// tools are in the work directory, where containers share them, if the runner has its own elsewhere: no container has that directory. Actions
// read RUNNER_TOOL_CACHE, which the runner sets to ToolsDir.
func (r Runner) tools(one *draft) []Volume {
	for _, mount := range one.asked.SystemMountVolumes {
		if path.Clean(mount.Target) != jobcontainer.ToolsDir || r.Work != "" && below(path.Clean(mount.Source), path.Clean(r.Work)) {
			continue
		}
		one.notes = append(one.notes, "The runner's tools in '"+mount.Source+"' are not available in container '"+one.name+"'.")
		return []Volume{{Text: jobcontainer.ToolsDir, Source: jobcontainer.WorkDir + "/_tool", Target: jobcontainer.ToolsDir, Keep: true, Optional: true}}
	}
	return nil
}

func isDockerSocket(file string) bool {
	switch path.Clean(file) {
	case "/var/run/docker.sock", "/run/docker.sock":
		return true
	}
	return false
}

// volumes returns `volumes:`, and those of the options.
func (r Runner) volumes(one *draft, found *problems) []Volume {
	var asked []options.Volume
	for _, mount := range one.asked.UserMountVolumes {
		v := options.Volume{Text: mount.UserProvidedValue, Source: mount.Source, Target: mount.Target, ReadOnly: mount.ReadOnly}
		if v.Text == "" {
			v.Text = strings.TrimPrefix(mount.Source+":"+mount.Target, ":")
		}
		asked = append(asked, v)
	}
	var volumes []Volume
	seen := map[string]bool{}
	for _, v := range append(asked, one.options.Volumes...) {
		v.Target = path.Clean(v.Target)
		switch {
		case !path.IsAbs(v.Target) || v.Target == "/":
			found.add("Volume '%s' of container '%s' is invalid: the target must be an absolute path of a directory.", v.Text, one.name)
			continue
		case isRunners(v.Target):
			found.add("Volume '%s' of container '%s' is invalid: the runner uses '%s'.", v.Text, one.name, v.Target)
			continue
		case seen[v.Target]:
			found.add("Volume '%s' of container '%s' is invalid: there are two volumes for '%s'.", v.Text, one.name, v.Target)
			continue
		}
		seen[v.Target] = true
		source, ok := r.source(v, one, found)
		if !ok || source == v.Target {
			continue
		}
		if v.ReadOnly {
			one.options.Warnings = append(one.options.Warnings, "Volume '"+v.Text+"' of container '"+one.name+"' is writable: read-only volumes are not available on this runner.")
		}
		volumes = append(volumes, Volume{Text: v.Text, Source: source, Target: v.Target})
	}
	for _, target := range one.options.Tmpfs {
		if !seen[target] {
			volumes = append(volumes, Volume{Text: target, Target: target, Keep: true, Optional: true})
		}
	}
	return volumes
}

// source returns the directory of a volume. That of an anonymous one is empty until its container has a name.
func (r Runner) source(v options.Volume, one *draft, found *problems) (string, bool) {
	switch {
	case isDockerSocket(v.Source) || isDockerSocket(v.Target):
		found.add("%s", DockerSocketText())
		return "", false
	case v.Source == "":
		return "", true
	case path.IsAbs(v.Source):
		return r.hostPath(v, one, found)
	case !isVolumeName(v.Source):
		found.add("Volume '%s' of container '%s' is invalid: '%s' is neither an absolute path nor a name of letters, digits, '_', '.' and '-'.", v.Text, one.name, v.Source)
		return "", false
	}
	return path.Join(volumesDir, v.Source), true
}

// hostPath returns the directory of a volume whose source is a path on the runner. Docker makes a path that is not there. So does this, in the
// work directory: the containers of the job share it, as those of a machine would. What the runner has elsewhere can't be in a container.
func (r Runner) hostPath(v options.Volume, one *draft, found *problems) (string, bool) {
	source := path.Clean(v.Source)
	translated, known := r.translate(source)
	switch {
	case known && below(translated, jobcontainer.WorkDir):
		return translated, true
	case known || ofSystem(source) || r.Exists != nil && r.Exists(source):
		found.add("%s", HostPathText(v.Source, v.Text))
		return "", false
	}
	one.options.Warnings = append(one.options.Warnings, HostPathMadeText(v.Source, v.Text))
	return path.Join(hostDir, source), true
}

// ofSystem says whether what a workflow expects at a path of the host is the host's: a device, a socket, a daemon's data or its configuration. An
// empty directory there would hide that it is not available.
func ofSystem(file string) bool {
	if strings.HasSuffix(file, ".sock") || file == "/" {
		return true
	}
	for _, directory := range []string{"/boot", "/dev", "/etc", "/lib/modules", "/proc", "/run", "/sys", "/usr", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/run"} {
		if below(file, directory) {
			return true
		}
	}
	return false
}

// isVolumeName is Docker's rule: it begins with a letter or digit and has at least two characters.
func isVolumeName(name string) bool {
	for i, c := range []byte(name) {
		letter := (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
		if !letter && (i == 0 || !strings.ContainsRune("_.-", rune(c))) {
			return false
		}
	}
	return len(name) >= 2 && len(name) <= 255
}
