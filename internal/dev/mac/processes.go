//go:build unix

package mac

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// process is one that belongs to the Mac: its executable lies under the root, or launchd is above it.
type process struct {
	pid, parent int
	user        string
	executable  string // where it really lies
	args        []string
}

// processes reads /proc; without it the model has no processes.
func (r Root) processes() []process {
	entries, _ := os.ReadDir("/proc")
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p := process{pid: pid, parent: parentOf(pid)}
		p.executable, _ = os.Readlink(filepath.Join("/proc", e.Name(), "exe")) // none: a process that is ending
		p.executable = strings.TrimSuffix(p.executable, " (deleted)")
		command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if len(command) == 0 {
			continue // a zombie, or the kernel's
		}
		p.args = strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
		p.user = "root"
		if environment, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err == nil {
			for pair := range bytes.SplitSeq(environment, []byte{0}) {
				if name, ok := bytes.CutPrefix(pair, []byte("DEVMAC_USER=")); ok {
					p.user = string(name)
				}
			}
		}
		all[pid] = p
	}
	launchd := 0
	for pid, p := range all {
		if p.executable == r.Path("/usr/libexec/"+internalName) && slices.Contains(p.args, "launchd") {
			launchd = pid
		}
	}
	var found []process
	for _, p := range all {
		if p.pid != os.Getpid() && (r.has(p.executable) || launchd != 0 && below(all, p.pid, launchd)) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found
}

func below(all map[int]process, pid, above int) bool {
	for range 64 { // deeper trees do not occur
		if pid == above {
			return true
		}
		p, known := all[pid]
		if !known {
			return false
		}
		pid = p.parent
	}
	return false
}

// parentOf reads the second field after the command's name, which may hold anything but ends at the last parenthesis.
func parentOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// killChildren kills all that this process has started or adopted, and returns when they are gone. Their orphans become
// ours. On a busy machine a kill takes time, so it waits for each that it has killed, and only for those.
func killChildren() {
	for {
		var killed []int
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil && parentOf(pid) == os.Getpid() && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed = append(killed, pid)
			}
		}
		if len(killed) == 0 {
			return
		}
		for _, pid := range killed {
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &status, 0, nil) // its parent may have been first
		}
	}
}

// isMachine reports whether a process is a virtual machine of the model's Tart.
func (p process) isMachine() bool {
	return filepath.Base(p.executable) == "tart" && len(p.args) > 1 && p.args[1] == "run"
}

// killMachines ends the virtual machines, which belong to the session.
func (r Root) killMachines() {
	for _, p := range machinesAmong(r.processes()) {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
	}
}

// Machines are the process ids of the virtual machines that run.
func (r Root) Machines() []int {
	var pids []int
	for _, p := range machinesAmong(r.processes()) {
		pids = append(pids, p.pid)
	}
	return pids
}

// machinesAmong returns the virtual machines. The child of one is none: until it executes the guest, it has the executable and
// the arguments of its parent.
func machinesAmong(all []process) []process {
	machines := map[int]bool{}
	for _, p := range all {
		machines[p.pid] = p.isMachine()
	}
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !machines[p.pid] || machines[p.parent] })
}

// signalByName signals the processes whose executable has that name; false if there is none.
func (r Root) signalByName(name string, with syscall.Signal) bool {
	found := false
	for _, p := range r.processes() {
		if filepath.Base(p.executable) == name || filepath.Base(p.args[0]) == name {
			found = syscall.Kill(p.pid, with) == nil || found
		}
	}
	return found
}

// listed are the processes that ps shows: the model's own real ones, and those that are only said to be there.
func (r Root) listed() []process {
	list := []process{{pid: 1, parent: 0, user: "root", args: []string{"/sbin/launchd"}}}
	if s, err := r.session(); err == nil {
		if s.Alive {
			list = append(list, process{pid: s.PID, parent: 1, user: s.consoleUser(), args: []string{"/System/Library/CoreServices/loginwindow.app/Contents/MacOS/loginwindow", "console"}})
		}
		if s.User != "" {
			list = append(list, process{pid: s.PID + 1000, parent: 1, user: s.User, args: []string{"/System/Library/CoreServices/Finder.app/Contents/MacOS/Finder"}})
		}
	}
	for _, p := range r.processes() {
		if filepath.Base(p.executable) == internalName {
			continue // the model's own machinery
		}
		for i, a := range p.args {
			p.args[i] = r.Logical(a)
		}
		list = append(list, p)
	}
	return list
}

// runPs knows -o with columns, -p, -x and -a; what it does not know it takes for -ax.
func runPs(_ context.Context, c *call) error {
	columns, headless, only := []string{"pid", "tty", "time", "command"}, false, 0
	for i := 0; i < len(c.Args); i++ {
		a := strings.TrimPrefix(c.Args[i], "-")
		letter, value := "", ""
		if at := strings.IndexAny(a, "op"); at >= 0 {
			letter, value = a[at:at+1], a[at+1:]
			if value == "" && i+1 < len(c.Args) {
				i++
				value = c.Args[i]
			}
		}
		switch letter {
		case "o":
			columns, headless = nil, true
			for _, column := range strings.Split(value, ",") {
				name, title, renamed := strings.Cut(column, "=")
				columns = append(columns, name)
				headless = headless && renamed && title == ""
			}
		case "p":
			only, _ = strconv.Atoi(value)
		}
	}
	if !headless {
		fmt.Fprintln(c.Stdout, strings.ToUpper(strings.Join(columns, " ")))
	}
	found := false
	for _, p := range c.root.listed() {
		if only != 0 && p.pid != only {
			continue
		}
		found = true
		var words []string
		for _, column := range columns {
			words = append(words, p.column(column))
		}
		fmt.Fprintln(c.Stdout, strings.Join(words, " "))
	}
	if only != 0 && !found {
		return exitCode(1)
	}
	return nil
}

func (p process) column(name string) string {
	switch name {
	case "pid":
		return fmt.Sprintf("%5d", p.pid)
	case "ppid":
		return fmt.Sprintf("%5d", p.parent)
	case "user", "ruser":
		return p.user
	case "comm", "ucomm":
		if name == "ucomm" {
			return filepath.Base(p.args[0])
		}
		return p.args[0]
	case "command", "args":
		return strings.Join(p.args, " ")
	case "stat", "state":
		return "Ss"
	case "tty", "tt":
		return "??"
	case "time", "etime":
		return "0:00.01"
	}
	return "-"
}

// runPgrep knows -x, -f, -l, -U and -q.
func runPgrep(_ context.Context, c *call) error {
	flags, pattern := "", ""
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		switch {
		case (a == "-U" || a == "-u") && i+1 < len(c.Args):
			i++
		case strings.HasPrefix(a, "-"):
			flags += a[1:]
		default:
			pattern = a
		}
	}
	if strings.Contains(flags, "x") {
		pattern = "^(?:" + pattern + ")$"
	}
	expression, err := regexp.Compile(pattern)
	if err != nil || pattern == "" {
		return failed(2, "usage: pgrep [-Lafilnoqvx] [-F pidfile] [-G gid] [-P ppid] [-U uid] pattern ...")
	}
	found := false
	for _, p := range c.root.listed() {
		text := filepath.Base(p.args[0])
		if strings.Contains(flags, "f") {
			text = strings.Join(p.args, " ")
		}
		if !expression.MatchString(text) {
			continue
		}
		found = true
		if strings.Contains(flags, "l") {
			fmt.Fprintln(c.Stdout, p.pid, text)
		} else if !strings.Contains(flags, "q") {
			fmt.Fprintln(c.Stdout, p.pid)
		}
	}
	if !found {
		return exitCode(1)
	}
	return nil
}

// killTree ends a process and all below it.
func killTree(pid int) {
	entries, _ := os.ReadDir("/proc")
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it starts no further processes
	for _, e := range entries {
		if child, err := strconv.Atoi(e.Name()); err == nil && parentOf(child) == pid {
			killTree(child)
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
}

// runAttached runs a program that ends with this process: the thread that starts it must live as long.
func runAttached(cmd *exec.Cmd, started chan<- error, ended chan<- struct{}) {
	runtime.LockOSThread()
	cmd.SysProcAttr = childAttributes()
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait() // its exit is in its state
		close(ended)
	}
}
