//go:build !linux

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dieWithParent does nothing here: only Linux can tie a child's life to its parent. What a killed owner leaves is
// ended by the next start in its folder.
func dieWithParent(*syscall.SysProcAttr) {}

// startStamp identifies the process that has this pid now, by its start time.
// The error is os.ErrNotExist when there is no such process.
func startStamp(pid int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, "ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid))
	command.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	if err != nil {
		return "", fmt.Errorf("reading the start of process %d: %w", pid, err)
	}
	state, started, found := strings.Cut(strings.TrimSpace(string(output)), " ")
	if !found || strings.HasPrefix(state, "Z") {
		return "", fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	return strings.TrimSpace(started), nil
}
