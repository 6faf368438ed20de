//go:build unix && !linux && !darwin

package process

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// adoptOrphans has no counterpart here: a daemon that leaves its container's process group is not followed.
func adoptOrphans() {}

// killRest kills the process group of the container's main process. A group's id is not reused while the group has members.
func killRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killMarked kills every process whose environment carries the variable, and says how many there were. ps shows the
// environment of the same user's processes only, which is all that this sandbox starts.
func killMarked(variable string) int {
	out, err := exec.CommandContext(context.Background(), "ps", "-axEww", "-o", "pid=,command=").Output()
	if err != nil {
		return 0
	}
	killed := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		for _, f := range fields[1:] {
			if carries(f, variable) {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed++
				}
				break
			}
		}
	}
	return killed
}
