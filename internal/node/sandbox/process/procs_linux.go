package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant that loses its own, so that a container's daemons
// cannot slip away from its shim.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killRest kills every child of this process. The children of those come next, once they are ours.
func killRest(int) {
	self := os.Getpid()
	for _, pid := range pids() {
		if parentOf(pid) == self {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// killMarked kills every process whose environment carries the variable, and says how many there were. Only
// what this sandbox started has it, so ids that were recycled are in no danger.
func killMarked(variable string) int {
	killed := 0
	for _, pid := range pids() {
		env, err := os.ReadFile(procFile(pid, "environ"))
		if err != nil || pid == os.Getpid() {
			continue // not ours to read, or gone
		}
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if carries(string(entry), variable) {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed++
				}
				break
			}
		}
	}
	return killed
}

func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var ids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, pid)
		}
	}
	return ids
}

// parentOf reads the parent's id: the second field after the command name, which itself may hold anything but ends at the last
// parenthesis.
func parentOf(pid int) int {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}
