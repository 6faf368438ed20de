//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runLaunchctl passes the call on to launchd; asuser it does itself.
func runLaunchctl(ctx context.Context, c *call) error {
	if len(c.Args) > 2 && c.Args[0] == "asuser" {
		return c.asUser(ctx)
	}
	args, err := c.withOwnUID()
	if err != nil {
		return err
	}
	p, err := c.root.ask(ctx, request{Args: args, User: c.user})
	if err != nil {
		return err
	}
	fmt.Fprint(c.Stdout, p.Stdout)
	fmt.Fprint(c.Stderr, p.Stderr)
	return exitCode(p.Exit)
}

// withOwnUID translates the user id of this machine's kernel into the one of the same user on the Mac, for a program that
// asks for its own session: all processes of the model belong to one user of this machine.
func (c *call) withOwnUID() ([]string, error) {
	own := "gui/" + strconv.Itoa(os.Getuid())
	if len(c.Args) != 2 || c.Args[0] != "print" || c.Args[1] != own || c.user == "root" {
		return c.Args, nil
	}
	var m Machine
	if err := c.root.read(machineFile, &m); err != nil {
		return nil, err
	}
	user, _ := m.user(c.user)
	return []string{"print", "gui/" + strconv.Itoa(user.UID)}, nil
}

// asUser runs a command in a user's session, which leaves the user as it is: sudo -u is for that.
func (c *call) asUser(ctx context.Context) error {
	if err := c.needsRoot(1, "Could not switch to audit session: 1: Operation not permitted"); err != nil { // likely
		return err
	}
	program, _ := c.lookUp(c.Args[2])
	if program == "" {
		return failed(127, "launchctl: %s: No such file or directory", c.Args[2])
	}
	cmd := exec.CommandContext(ctx, program, c.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	return passSignals(cmd)
}

// refuse is an error of launchd's as launchctl prints it.
func refuse(doing string, code int) response {
	return response{Stderr: fmt.Sprintf("%s: %d: %s\n", doing, code, launchdErrors[code]), Exit: code}
}

func (d *launchd) answer(q request) response {
	if len(q.Args) == 0 {
		return response{Stderr: "Usage: launchctl <subcommand> ... \n", Exit: 64}
	}
	verb, args := q.Args[0], q.Args[1:]
	switch verb {
	case "print":
		return d.print(args)
	case "list":
		return d.list(args)
	case "print-disabled":
		return d.printDisabled()
	case "managername":
		return response{Stdout: "System\n"}
	case "killall":
		return d.killLoginwindow(q.User)
	}
	if q.User != "root" {
		if verb == "bootstrap" || verb == "bootout" {
			p := refuse(map[string]string{"bootstrap": "Bootstrap failed", "bootout": "Boot-out failed"}[verb], errnoIO)
			p.Stderr += "Try re-running the command as root for richer errors.\n"
			return p
		}
		return refuse("Not privileged to "+verb+" service", errnoNotPermitted)
	}
	switch verb {
	case "bootstrap", "load":
		return d.bootstrap(args)
	case "bootout", "unload":
		return d.bootout(args)
	case "kickstart":
		return d.kickstart(args)
	case "kill":
		return d.kill(args)
	case "enable", "disable":
		return d.enable(args, verb == "disable")
	}
	return response{Stderr: fmt.Sprintf("Unrecognized subcommand: %s\n", verb), Exit: 64}
}

// find reads system/LABEL. Under the lock.
func (d *launchd) find(target string) (*job, bool) {
	label, ok := strings.CutPrefix(target, "system/")
	j := d.jobs[label]
	return j, ok && j != nil
}

func (d *launchd) bootstrap(args []string) response {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-w" || a == "system" })
	if len(args) != 1 {
		return response{Stderr: "Usage: launchctl bootstrap <domain-target> [service-path, service-path2, ...]\n", Exit: 64}
	}
	err := d.load(args[0], true)
	switch {
	case err == nil:
		return response{}
	case errors.Is(err, errBadOwnership):
		return refuse("Bootstrap failed", errnoBadOwnership)
	}
	// One text for a job that is loaded, a file that is not there or makes no sense, and a job that is disabled.
	return refuse("Bootstrap failed", errnoIO)
}

func (d *launchd) bootout(args []string) response {
	if len(args) == 0 {
		return response{Stderr: "Usage: launchctl bootout <domain-target> [service-path1, service-path2, ...] | <service-target>\n", Exit: 64}
	}
	target := args[len(args)-1]
	d.mu.Lock()
	j, known := d.find(target)
	for _, candidate := range d.jobs {
		if candidate.path == target {
			j, known = candidate, true
		}
	}
	if !known {
		d.mu.Unlock()
		return refuse("Boot-out failed", errnoNoProcess)
	}
	j.unloaded = true
	gone := d.stop(j, syscall.SIGTERM)
	d.mu.Unlock()
	<-gone // likely: it may also answer "Operation now in progress" (36) before
	d.mu.Lock()
	if d.jobs[j.Label] == j {
		delete(d.jobs, j.Label)
	}
	d.mu.Unlock()
	return response{}
}

func (d *launchd) kickstart(args []string) response {
	again := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.Contains(a, "k") })
	target := ""
	if len(args) > 0 {
		target = args[len(args)-1]
	}
	if target == "system/"+loginwindowLabel {
		return d.kickstartLoginwindow(again)
	}
	d.mu.Lock()
	j, known := d.find(target)
	if !known {
		d.mu.Unlock()
		return response{Stderr: fmt.Sprintf("Could not find service %q in domain for system\n", strings.TrimPrefix(target, "system/")), Exit: errnoNoService}
	}
	if j.pid > 0 && !again {
		d.mu.Unlock()
		return refuse(fmt.Sprintf("Could not kickstart service %q", j.Label), errnoInProgress) // likely
	}
	gone := d.stop(j, syscall.SIGKILL)
	d.mu.Unlock()
	<-gone
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start(j)
	return response{}
}

func (d *launchd) kill(args []string) response {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(args) != 2 {
		return response{Stderr: "Usage: launchctl kill <signal-name> | <signal-number> <service-target>\n", Exit: 64}
	}
	j, known := d.find(args[1])
	if !known || j.pid <= 0 {
		return refuse("Could not kill service", errnoNoProcess)
	}
	_ = syscall.Kill(j.pid, parseSignal(args[0]))
	return response{}
}

func parseSignal(name string) syscall.Signal {
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "-")); err == nil {
		return syscall.Signal(n)
	}
	known := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}
	return known[strings.TrimPrefix(strings.TrimPrefix(strings.ToUpper(name), "-"), "SIG")]
}

func (d *launchd) enable(args []string, off bool) response {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(args) != 1 || !strings.HasPrefix(args[0], "system/") {
		return response{Stderr: "Usage: launchctl enable <service-target>\n", Exit: 64}
	}
	label := strings.TrimPrefix(args[0], "system/")
	d.disabled[label] = off
	if j := d.jobs[label]; j != nil && !off {
		j.kept = true
	}
	if err := d.root.write(disabledFile, d.disabled); err != nil {
		return response{Stderr: err.Error() + "\n", Exit: 1}
	}
	if !off { // the count begins again (likely)
		_ = update(d.root, registrationsFile, func(all *registrations) error { delete(*all, label); return nil })
	}
	return response{}
}

func (d *launchd) print(args []string) response {
	if len(args) != 1 {
		return response{Stderr: "Usage: launchctl print <domain-target> | <service-target>\n", Exit: 64}
	}
	target := args[0]
	if uid, ok := strings.CutPrefix(target, "gui/"); ok {
		return d.printSession(uid)
	}
	if target == "system/"+loginwindowLabel {
		return d.printLoginwindow()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if target == "system" {
		text := "system = {\n\ttype = system\n\tservices = {\n"
		for _, label := range d.labels() {
			text += fmt.Sprintf("\t\t%8d %6s \t%s\n", max(d.jobs[label].pid, 0), "-", label)
		}
		return response{Stdout: text + "\t}\n}\n"}
	}
	j, known := d.find(target)
	if !known {
		return response{Stderr: fmt.Sprintf("Bad request.\nCould not find service %q in domain for system\n", strings.TrimPrefix(target, "system/")), Exit: errnoNoService}
	}
	return response{Stdout: j.describe(target)}
}

// describe is what `launchctl print` says of a job, as far as programs read it.
func (j *job) describe(target string) string {
	state := "not running"
	active := 0
	switch {
	case j.pid > 0:
		state, active = "running", 1
	case j.timer != nil || j.pid < 0:
		state = "spawn scheduled"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s = {\n\tactive count = %d\n\tpath = %s\n\ttype = LaunchDaemon\n\tstate = %s\n\n", target, active, j.path, state)
	program := j.Program
	if program == "" {
		program = j.ProgramArguments[0]
	}
	fmt.Fprintf(&b, "\tprogram = %s\n\targuments = {\n", program)
	for _, a := range j.ProgramArguments {
		fmt.Fprintf(&b, "\t\t%s\n", a)
	}
	fmt.Fprintf(&b, "\t}\n\n")
	if j.UserName != "" {
		fmt.Fprintf(&b, "\tusername = %s\n", j.UserName)
	}
	if j.StandardErrorPath != "" {
		fmt.Fprintf(&b, "\tstderr path = %s\n", j.StandardErrorPath)
	}
	fmt.Fprintf(&b, "\truns = %d\n", j.runs)
	if j.pid > 0 {
		fmt.Fprintf(&b, "\tpid = %d\n", j.pid)
	}
	switch {
	case !j.exited:
		fmt.Fprintf(&b, "\tlast exit code = (never exited)\n")
	case j.lastExit == 78:
		fmt.Fprintf(&b, "\tlast exit code = 78: EX_CONFIG\n")
	case j.lastExit > 128:
		fmt.Fprintf(&b, "\tlast terminating signal = %s: %d\n", syscall.Signal(j.lastExit-128), j.lastExit-128)
	default:
		fmt.Fprintf(&b, "\tlast exit code = %d\n", j.lastExit)
	}
	if keep, ok := j.KeepAlive.(bool); ok && keep && j.kept {
		fmt.Fprintf(&b, "\n\tproperties = keepalive | runatload | inferred program\n")
	}
	fmt.Fprintf(&b, "\tminimum runtime = %d\n}\n", int(j.throttle()/time.Second))
	return b.String()
}

func (d *launchd) list(args []string) response {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := "PID\tStatus\tLabel\n"
	for _, label := range d.labels() {
		j := d.jobs[label]
		pid := "-"
		if j.pid > 0 {
			pid = strconv.Itoa(j.pid)
		}
		text += fmt.Sprintf("%s\t%d\t%s\n", pid, j.lastExit, label)
		if len(args) == 1 && args[0] == label {
			return response{Stdout: fmt.Sprintf("{\n\t\"LimitLoadToSessionType\" = \"System\";\n\t\"Label\" = %q;\n\t\"LastExitStatus\" = %d;\n\t\"PID\" = %s;\n};\n", label, j.lastExit, pid)}
		}
	}
	if len(args) == 1 {
		return response{Stderr: fmt.Sprintf("Could not find service %q in domain for system\n", args[0]), Exit: errnoNoService}
	}
	return response{Stdout: text}
}

func (d *launchd) printDisabled() response {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := "\n\tdisabled services = {\n"
	for _, label := range slices.Sorted(maps.Keys(d.disabled)) {
		word := "enabled"
		if d.disabled[label] {
			word = "disabled"
		}
		text += fmt.Sprintf("\t\t%q => %s\n", label, word)
	}
	return response{Stdout: text + "\t}\n"}
}
