package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/lib/macvms"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

// account is a user of the host.
type account struct {
	Name     string
	UID, GID int
	Home     string
}

// findAccount asks directory services. The error is a *machost.StepError when there is no such user.
func findAccount(ctx context.Context, h machost.Host, name string) (account, error) {
	said, err := h.Run(ctx, machost.Command{Path: "/usr/bin/dscl", Args: []string{".", "-read", "/Users/" + name, "UniqueID", "PrimaryGroupID", "NFSHomeDirectory"}})
	if err != nil {
		return account{}, err
	}
	if said.ExitCode != 0 {
		return account{}, &machost.StepError{
			Remedy: "Create the account (System Settings, Users & Groups), log in once at the console, and apply again.",
			Err:    fmt.Errorf("there is no user %s on this Mac: dscl: %s", name, firstLine(said)),
		}
	}
	values := map[string]string{}
	for _, line := range strings.Split(string(said.Stdout), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			values[key] = strings.TrimSpace(value)
		}
	}
	uid, err1 := strconv.Atoi(values["UniqueID"])
	gid, err2 := strconv.Atoi(values["PrimaryGroupID"])
	if err1 != nil || err2 != nil || !strings.HasPrefix(values["NFSHomeDirectory"], "/") {
		return account{}, fmt.Errorf("reading user %s: dscl says %q", name, said.Stdout)
	}
	return account{Name: name, UID: uid, GID: gid, Home: values["NFSHomeDirectory"]}, nil
}

// run runs a program that is to succeed.
func run(ctx context.Context, h machost.Host, program string, args ...string) (string, error) {
	return runWith(ctx, h, machost.Command{Path: program, Args: args})
}

func runWith(ctx context.Context, h machost.Host, command machost.Command) (string, error) {
	said, err := h.Run(ctx, command)
	if err != nil {
		return "", err
	}
	if said.ExitCode != 0 {
		return "", &commandError{command.Path, command.Args, said}
	}
	return string(said.Stdout), nil
}

// commandError reports that a program has failed, and what it said.
type commandError struct {
	program string
	args    []string
	said    machost.Result
}

// Error names the program, its arguments, which hold no secret, and the first line that it said.
func (e *commandError) Error() string {
	return fmt.Sprintf("%s exited with code %d: %s", strings.Join(append([]string{e.program}, e.args...), " "), e.said.ExitCode, firstLine(e.said))
}

func firstLine(said machost.Result) string {
	text := strings.TrimSpace(string(said.Stderr))
	if text == "" {
		text = strings.TrimSpace(string(said.Stdout))
	}
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		return "no output"
	}
	return line
}

// Machines counts the virtual machines that run on a host, regardless of who started them: it is for machost.Options.Busy. It counts
// processes, because Tart may call a running machine stopped.
func Machines(ctx context.Context, h machost.Host) (int, error) {
	list, err := processes(ctx, h)
	if err != nil {
		return 0, fmt.Errorf("counting virtual machines: %w", err)
	}
	return macvms.Count(list), nil
}

// maxProcesses is room for thousands of processes with long arguments.
const maxProcesses = 16 << 20

// processes is a line for each process: its program and arguments. A list that is not complete is an error: it may lack a virtual machine.
func processes(ctx context.Context, h machost.Host) (string, error) {
	ps := machost.Command{Path: "/bin/ps", Args: []string{"-axww", "-o", "command="}, Limit: maxProcesses}
	said, err := h.Run(ctx, ps)
	switch {
	case err != nil:
		return "", err
	case said.ExitCode != 0:
		return "", &commandError{ps.Path, ps.Args, said}
	case said.Cut:
		return "", fmt.Errorf("%s printed more than %d MiB: the list of processes is not complete", ps.Path, maxProcesses>>20)
	}
	return string(said.Stdout), nil
}

// shim is how the supervisor of a container of a node agent looks among processes; its argument is the container's directory.
var shim = regexp.MustCompile(`^\S+ node shim (/\S+)/containers/[^/\s]+$`)

// Running counts what the node agent of a state directory runs, in the output of `ps -axww -o command=`: virtual machines, regardless of who started
// them, or its pods that have a container on the host, whichever is more. A pod's machine may start while its other containers run already. Where the
// state directory is not known (empty), it counts pods of all.
func Running(processes, stateDir string) int {
	pods := map[string]bool{}
	for line := range strings.Lines(processes) {
		found := shim.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if found != nil && (stateDir == "" || strings.HasPrefix(found[1], strings.TrimSuffix(stateDir, "/")+"/")) {
			pods[found[1]] = true
		}
	}
	return max(macvms.Count(processes), len(pods))
}

// rootFile is a world-readable file that only root may change.
var rootFile = machost.Attributes{Mode: 0o644}

// fileDiff says how a file differs from its desired state; empty if it does not. It never shows content.
func fileDiff(h machost.Host, path string, want []byte, attributes machost.Attributes) (string, error) {
	info, err := h.Stat(path)
	if isMissing(err) {
		return "write " + path + ": there is none", nil
	}
	if err != nil {
		return "", err
	}
	if info.IsDir || info.Target != "" {
		return "write " + path + ": not a regular file", nil
	}
	if info.Attributes != attributes {
		return fmt.Sprintf("write %s: mode %04o of %d:%d, want %04o of %d:%d", path,
			info.Mode, info.UID, info.GID, attributes.Mode, attributes.UID, attributes.GID), nil
	}
	content, err := h.ReadFile(path)
	if err != nil {
		return "", err
	}
	if string(content) != string(want) {
		return "write " + path + ": its content differs", nil
	}
	return "", nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
