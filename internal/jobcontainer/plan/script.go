package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// defaultPath is Docker's, for an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ForScript returns the process of RunScriptStep. base is Container.Env of the job container.
func ForScript(args hook.ScriptStepArgs, base []string) (Exec, error) {
	words, err := options.Join(args.EntryPointArgs)
	if err != nil {
		return Exec{}, fmt.Errorf("reading the arguments of %s: %w", args.EntryPoint, err)
	}
	e := &environment{at: map[string]int{}}
	for _, variable := range base {
		e.set(variable)
	}
	for _, name := range slices.Sorted(maps.Keys(args.EnvironmentVariables)) {
		e.set(name + "=" + args.EnvironmentVariables[name])
	}
	if len(args.PrependPath) > 0 {
		search := defaultPath
		if at, known := e.at["PATH"]; known {
			search = strings.TrimPrefix(e.variables[at], "PATH=")
		}
		e.set("PATH=" + strings.Join(args.PrependPath, ":") + ":" + search)
	}
	return Exec{Argv: append([]string{args.EntryPoint}, words...), Env: e.variables, WorkDir: args.WorkingDirectory}, nil
}

// Context returns the directory in which the image of a step is built, as the containers of a job have it, and the name of the Dockerfile
// in it. Like GitHub's runner, it is the Dockerfile's own (ContainerActionHandler.cs). It is not known if the directory is not the runner's.
func Context(step hook.Container, runner Runner) (directory, file string, known bool) {
	directory, known = runner.withDirectories(step.SystemMountVolumes).translate(path.Dir(step.Dockerfile))
	return directory, path.Base(step.Dockerfile), known
}

// ActionName returns the action whose Dockerfile this is, as in `uses:`: owner/repository, or a path of the workspace.
func ActionName(dockerfile string, runner Runner) string {
	directory := path.Dir(dockerfile)
	if translated, known := runner.translate(directory); known {
		directory = translated
	}
	if rest, found := strings.CutPrefix(directory, jobcontainer.WorkDir+"/_actions/"); found {
		parts := strings.Split(rest, "/") // owner, repository, ref, path…
		if len(parts) >= 3 {
			return strings.Join(append(parts[:2:2], parts[3:]...), "/")
		}
		return rest
	}
	if rest, found := strings.CutPrefix(directory, jobcontainer.WorkDir+"/"); found {
		parts := strings.Split(rest, "/") // repository, repository, path…
		if len(parts) >= 2 {
			return "./" + strings.Join(parts[2:], "/")
		}
	}
	return directory
}
