//go:build !linux

package postgres

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
)

// runsIn reports whether the process is a server of that data directory, by its command line.
func runsIn(ctx context.Context, pid int, data string) bool {
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "-D "+data)
}
