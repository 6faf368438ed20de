package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// scriptRun is one script to run.
type scriptRun struct {
	args  []string
	dir   string
	env   environment
	limit <-chan time.Time
	halt  <-chan struct{}
	// do, if it is set, runs the step instead of args.
	do func(files fileCommands, halt <-chan struct{}) (int, error)
}

// fileCommands are the files by which a script talks back: GITHUB_OUTPUT and so on, by variable.
type fileCommands map[string]string

var fileVariables = map[string]string{
	"GITHUB_OUTPUT": "set_output_", "GITHUB_ENV": "set_env_", "GITHUB_PATH": "add_path_",
	"GITHUB_STEP_SUMMARY": "step_summary_", "GITHUB_STATE": "save_state_", "GITHUB_ARTIFACTS": "artifacts_", "GITHUB_ARTIFACTS_LIST": "artifacts_list_",
}

func (w *work) commandFiles() (fileCommands, error) {
	files, suffix := fileCommands{}, uuid.NewString()
	for variable, prefix := range fileVariables {
		files[variable] = filepath.Join(w.temp, "_runner_file_commands", prefix+suffix)
		if err := os.WriteFile(files[variable], nil, 0o666); err != nil {
			return files, fmt.Errorf("making the step's command files: %w", err)
		}
	}
	return files, nil
}

// readFiles acts on what a step left in its files, and removes them. The outputs are the step's.
func (w *work) readFiles(s *stepRun, files fileCommands) (map[string]string, error) {
	defer func() {
		for _, file := range files {
			os.Remove(file)
		}
	}()
	outputs := map[string]string{}
	if files["GITHUB_OUTPUT"] == "" {
		return outputs, nil
	}
	list, outErr := readVariables("GITHUB_OUTPUT", files)
	for _, v := range list {
		outputs[v.name] = v.value
	}
	list, envErr := readVariables("GITHUB_ENV", files)
	for _, v := range list {
		w.env[v.name] = v.value
	}
	list, stateErr := readVariables("GITHUB_STATE", files)
	for _, v := range list {
		if s.state == nil {
			s.state = map[string]string{}
		}
		s.state[v.name] = v.value
	}
	text, pathErr := readCommandFile("GITHUB_PATH", files)
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			w.path = append([]string{line}, slices.DeleteFunc(w.path, func(p string) bool { return p == line })...)
		}
	}
	summary, sumErr := readCommandFile("GITHUB_STEP_SUMMARY", files)
	if summary != "" {
		w.logs.summary(s.id, []byte(w.masks.mask(summary)))
	}
	return outputs, errors.Join(outErr, envErr, stateErr, pathErr, sumErr)
}

func readVariables(name string, files fileCommands) ([]variable, error) {
	text, err := readCommandFile(name, files)
	if err != nil {
		return nil, err
	}
	list, err := parseVariables(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return list, nil
}

// readCommandFile reads one file; a step may have removed it, which is no error.
func readCommandFile(variable string, files fileCommands) (string, error) {
	info, err := os.Stat(files[variable])
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", variable, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSummary {
		return "", fmt.Errorf("reading %s: it must be a file of at most %d bytes, this one has %d", variable, maxSummary, info.Size())
	}
	data, err := os.ReadFile(files[variable])
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", variable, err)
	}
	return string(data), nil
}

// script runs a script whose command files are ignored: a hook.
func (w *work) script(s *stepRun, run scriptRun) (int, error) {
	files, err := w.commandFiles()
	if err != nil {
		return -1, err
	}
	code, err := w.scriptWithFiles(s, run, files)
	_, fileErr := w.readFiles(s, files)
	return code, errors.Join(err, fileErr)
}

func (w *work) scriptWithFiles(s *stepRun, run scriptRun, files fileCommands) (int, error) {
	out := &lineWriter{w: w, s: s}
	defer out.flush()
	return w.r.run(w.stop.hard, process{args: run.args, dir: run.dir, env: w.environ(run.env, files), out: out}, run.halt, &w.left)
}

// environ is the environment of a script: the runner's own, the workflow's, and last what GitHub defines, which no
// workflow can change.
func (w *work) environ(env environment, files fileCommands) []string {
	all := map[string]string{}
	for _, e := range w.r.opts.Environ {
		name, value, _ := strings.Cut(e, "=")
		// NET-3: the JIT config is no business of the customer's code.
		if !strings.HasPrefix(name, "ACTIONS_RUNNER_INPUT_") {
			all[name] = value
		}
	}
	maps.Copy(all, env)
	if len(w.path) > 0 {
		all["PATH"] = strings.Join(append(slices.Clone(w.path), all["PATH"]), string(os.PathListSeparator))
	}
	maps.Copy(all, w.githubVariables())
	maps.Copy(all, w.idTokenVariables())
	maps.Copy(all, files)
	out := make([]string, 0, len(all))
	for _, name := range sortedNames(all) {
		if name != "" && !strings.ContainsAny(name+all[name], "\x00") {
			out = append(out, name+"="+all[name])
		}
	}
	return out
}

// exported are the parts of the github context that are environment variables (GitHubContext.cs of actions/runner). Those that name
// files are set for each step.
var exported = []string{
	"action", "action_path", "action_ref", "action_repository", "actor", "actor_id", "api_url", "base_ref", "event_name", "event_path", "graphql_url", "head_ref", "job",
	"ref", "ref_name", "ref_protected", "ref_type", "repository", "repository_id", "repository_owner", "repository_owner_id", "retention_days", "run_attempt", "run_id",
	"run_number", "server_url", "sha", "triggering_actor", "workflow", "workflow_ref", "workflow_sha", "workspace",
}

func (w *work) githubVariables() map[string]string {
	out := map[string]string{
		"CI": "true", "GITHUB_ACTIONS": "true", "RUNNER_NAME": w.r.config.AgentName, "RUNNER_OS": osName(), "RUNNER_ARCH": archName(),
		"RUNNER_TEMP": w.temp, "RUNNER_TOOL_CACHE": filepath.Join(w.r.work, "_tool"), "RUNNER_WORKSPACE": filepath.Dir(w.workspace),
		"RUNNER_ENVIRONMENT": "self-hosted", "RUNNER_TRACKING_ID": "github_" + w.msg.JobID,
	}
	github, _ := w.contexts.Get("github")
	object, _ := github.(*workflow.Object)
	for _, key := range object.Keys() {
		v, _ := object.Get(key)
		switch v.(type) {
		case string, bool:
			if slices.Contains(exported, strings.ToLower(key)) {
				out["GITHUB_"+strings.ToUpper(key)] = workflow.ToString(v)
			}
		}
	}
	return out
}

// idTokenVariables tell a script where it gets tokens that prove what its job is, if the job may have any.
func (w *work) idTokenVariables() map[string]string {
	endpoint, _ := w.msg.Endpoint(workflow.SystemConnection)
	where := endpoint.Data[workflow.DataIDToken]
	if where == "" {
		return nil
	}
	return map[string]string{
		"ACTIONS_ID_TOKEN_REQUEST_URL": where, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": endpoint.Authorization.Parameters["AccessToken"],
	}
}

func sortedNames[M ~map[string]string](m M) []string { return slices.Sorted(maps.Keys(m)) }

// output handles one line that a step printed.
func (w *work) output(s *stepRun, line string) {
	if s.stopCommands != "" {
		if strings.TrimSpace(line) == "::"+s.stopCommands+"::" {
			s.stopCommands = ""
		}
		w.print(s, "%s", line)
		return
	}
	c, ok := parseCommand(line)
	if !ok {
		w.print(s, "%s", line)
		return
	}
	switch c.name {
	case "add-mask":
		w.masks.add(c.text)
		w.print(s, "::add-mask::***")
	case "error", "warning", "notice":
		note := c.annotation(levels[c.name])
		note.Message, note.RawDetails = w.masks.mask(note.Message), w.masks.mask(note.RawDetails)
		s.notes = append(s.notes, note)
		w.print(s, "##[%s]%s", c.name, c.text)
	case "debug", "group", "endgroup":
		w.print(s, "##[%s]%s", c.name, c.text)
	case "stop-commands":
		s.stopCommands = c.text
		w.print(s, "%s", line)
	case "set-output", "save-state", "set-env", "add-path":
		w.print(s, "##[warning]The command '%s' has no effect here; append to the matching GITHUB_ file instead.", c.name)
	default:
		w.print(s, "%s", line)
	}
}
