//go:build unix && !linux

package onebox

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// seeProcesses asks ps, which puts a process's environment behind its arguments.
func seeProcesses() ([]seenProcess, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, "ps", "-axEww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for processes that remain: %w", err)
	}
	var all []seenProcess
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if pid, err := strconv.Atoi(words[0]); err == nil {
			all = append(all, seenProcess{pid: pid, args: words[1:], env: words[2:]})
		}
	}
	return all, nil
}
