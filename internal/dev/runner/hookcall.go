package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// envContainerHooks names the program that runs containers in the runner's place.
const envContainerHooks = "ACTIONS_RUNNER_CONTAINER_HOOKS"

// hookExtensions are those that GitHub's worker takes.
var hookExtensions = []string{".js", ".sh", ".ps1"}

// variable is a variable of the runner's own environment.
func (w *work) variable(name string) string {
	value := ""
	for _, e := range w.r.opts.Environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// hooksEnabled reports whether containers are the hook's: its path is set, and the service allows it.
func (w *work) hooksEnabled() bool {
	return w.variable(envContainerHooks) != "" && strings.EqualFold(w.msg.Variables[workflow.VarContainerHooks].Value, "true")
}

// hookError is a hook that failed. The user sees only the text of GitHub's worker; why is in the debug log.
type hookError struct{ cause error }

func (e *hookError) Error() string {
	return "Executing the custom container implementation failed. Please contact your self hosted runner administrator."
}

func (e *hookError) Unwrap() error { return e.cause }

// errInterrupted is a hook that was ended with its step.
var errInterrupted = errors.New("The operation was canceled.")

// callHook runs the hook for a command and returns its answer, nil if it gave none. The hook runs until halt is closed. The files are
// those of the step it runs in, nil if there is none.
func (w *work) callHook(s *stepRun, command hookCommand, args any, files fileCommands, halt <-chan struct{}) (*hookResponse, error) {
	response, err := w.runHook(s, command, args, files, halt)
	if err != nil {
		w.print(s, "##[debug]%v", err)
		return nil, &hookError{err}
	}
	return response, nil
}

func (w *work) runHook(s *stepRun, command hookCommand, args any, files fileCommands, halt <-chan struct{}) (*hookResponse, error) {
	hook := w.variable(envContainerHooks)
	shell, err := hookShell(hook)
	if err != nil {
		return nil, err
	}
	answer := filepath.Join(w.temp, "_runner_hook_responses", uuid.NewString()+".json")
	input, err := json.Marshal(hookInput{Command: command.name, ResponseFile: answer, Args: args, State: w.hookState})
	if err != nil {
		return nil, fmt.Errorf("writing the hook's input: %w", err)
	}
	w.print(s, "##[group]Run '%s'", hook)
	w.print(s, "shell: %s -e {0}", shell)
	w.print(s, "##[endgroup]")
	if err := os.MkdirAll(filepath.Dir(answer), 0o777); err != nil {
		return nil, fmt.Errorf("making the directory of answers: %w", err)
	}
	if err := os.WriteFile(answer, nil, 0o666); err != nil {
		return nil, fmt.Errorf("making the file of the answer: %w", err)
	}
	out := &lineWriter{w: w, s: s}
	// It is the hook alone that is signaled, as GitHub's worker does; what it started is killed with it in the end.
	code, err := w.r.run(w.stop.hard, process{
		args: []string{shell, "-e", hook}, dir: w.workspace, env: w.hookEnviron(files), out: out, input: append(input, '\n'), alone: true,
	}, halt, &w.left)
	out.flush()
	switch {
	case err != nil:
		return nil, err
	case closed(halt) || w.stop.ended():
		return nil, errInterrupted
	case code != 0:
		w.fail(s, fmt.Errorf("Process completed with exit code %d.", code))
		return nil, fmt.Errorf("The hook script at '%s' running command '%s' did not execute successfully", hook, command.title)
	}
	return w.readAnswer(answer, hook, command, args)
}

// readAnswer reads and deletes the file of the answer.
func (w *work) readAnswer(file, hook string, command hookCommand, args any) (*hookResponse, error) {
	prepare, _ := args.(prepareArgs)
	required := prepare.Container != nil
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && required:
		return nil, fmt.Errorf("Response file is required but not found for the hook script at '%s' running command '%s'", hook, command.title)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	response, err := parseResponse(data)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file); err != nil {
		return nil, fmt.Errorf("deleting the answer: %w", err)
	}
	switch {
	case response == nil && required:
		return nil, fmt.Errorf("Response file could not be read at '%s' running command '%s'", hook, command.title)
	case response != nil && required && response.IsAlpine == nil:
		return nil, errors.New("The property 'isAlpine' is required but was not found in the response file.")
	}
	return response, nil
}

// hookShell is the shell for a hook. GitHub's worker runs .js with its own Node.js, which this runner has not.
func hookShell(hook string) (string, error) {
	if _, err := os.Stat(hook); err != nil {
		return "", fmt.Errorf("File not found at '%s'. Set %s to the path of an existing file.", hook, envContainerHooks)
	}
	extension := filepath.Ext(hook)
	switch {
	case !slices.Contains(hookExtensions, extension):
		return "", fmt.Errorf("Invalid file extension at '%s'. %s must be a path to a file with one of the following extensions: %s", hook, envContainerHooks, strings.Join(hookExtensions, ", "))
	case extension != ".sh":
		return "", fmt.Errorf("the development runner runs hooks with the extension .sh only, not '%s'", hook)
	}
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither bash nor sh is installed for the hook")
}

// saveState keeps the state of an answer for later calls, unless it has none.
func (w *work) saveState(r *hookResponse) {
	if r != nil && r.State != nil {
		w.hookState = r.State
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hookEnviron is the environment of a hook: the runner's own, and what GitHub defines. The variables of the workflow are in its input alone.
func (w *work) hookEnviron(files fileCommands) []string { return w.environ(nil, files) }
