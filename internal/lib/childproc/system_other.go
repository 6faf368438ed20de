//go:build unix && !linux

package childproc

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

// dieWithParent does nothing: only Linux can tie a child's life to its parent's.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// startStamp distinguishes the process that has this PID now from earlier and later ones, by its start. The error is
// fs.ErrNotExist when there is none, or only a zombie.
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
		return "", fmt.Errorf("inspecting process %d: %w", pid, err)
	}
	state, started, found := strings.Cut(strings.TrimSpace(string(output)), " ")
	if !found || strings.HasPrefix(state, "Z") {
		return "", fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	return strings.TrimSpace(started), nil
}
