package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the runner when the supervisor is killed: a runner without one would work on in
// a container that is thought to be dead.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// workerRuns reports whether GitHub's runner has started its worker, which it does for a job only: the sign of a job
// for images whose own hook could not be chained to.
func workerRuns(group int) bool {
	entries, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, entry := range entries {
		stat, err := os.ReadFile(entry)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent group …; the name may hold anything, parentheses included
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open || string(stat[open+1:end]) != "Runner.Worker" {
			continue
		}
		var state string
		var parent, itsGroup int
		if n, _ := fmt.Sscan(string(stat[end+1:]), &state, &parent, &itsGroup); n == 3 && itsGroup == group {
			pid, _ := strconv.Atoi(string(bytes.TrimSpace(stat[:open])))
			return pid != 0
		}
	}
	return false
}
