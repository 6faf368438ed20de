package onebox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// seenProcess is a process of the machine as far as it can be seen.
type seenProcess struct {
	pid  int
	args []string
	env  []string // empty where the system does not show it
}

// remaining are the processes that belong to the state directory: programs of ours that name it in their arguments, and
// all that carry the mark of its runner pods. A user's process that reads a log in the directory is none of ours.
func remaining(l Layout, binary string) ([]childproc.Process, error) {
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		binary = self
	}
	marks := []string{tart.SharesVariable + "=" + l.TartHome()} // what runs in a guest
	ours := append(assets.Names(), filepath.Base(binary), agentName, "postgres")
	for _, dir := range []string{l.Node(), l.MacNode()} {
		owner, _ := os.ReadFile(filepath.Join(dir, "owner")) // there is none before the first pod
		if text := strings.TrimSpace(string(owner)); text != "" {
			marks = append(marks, "BULLPEN_SANDBOX="+text)
		}
	}
	all, err := seeProcesses()
	if err != nil {
		return nil, err
	}
	var left []childproc.Process
	for _, p := range all {
		if p.pid != os.Getpid() && belongs(p, l.Dir, marks, ours) && !isAncestor(p.pid) {
			left = append(left, childproc.Process{Name: cut(strings.Join(p.args, " "), 80), PID: p.pid})
		}
	}
	return left, nil
}

func belongs(p seenProcess, dir string, marks, ours []string) bool {
	if len(p.args) == 0 {
		return false
	}
	for _, mark := range marks {
		if slices.ContainsFunc(p.env, func(entry string) bool { return entry == mark || strings.HasPrefix(entry, mark+"/") }) {
			return true
		}
	}
	return slices.Contains(ours, filepath.Base(p.args[0])) &&
		slices.ContainsFunc(p.args[1:], func(arg string) bool { return strings.Contains(arg, dir) })
}

// isAncestor reports whether the process is the one that started us: `bullpen demo --state-dir …` run by another bullpen
// is no remainder.
func isAncestor(pid int) bool { return pid == os.Getppid() }
