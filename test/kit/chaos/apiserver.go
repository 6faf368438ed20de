package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
)

// KillAPIServer kills the API server with SIGKILL, keeps it down for so long, and returns when it is healthy again. etcd
// stays; every watch and every request under way breaks.
func KillAPIServer(ctx context.Context, plane *controlplane.ControlPlane, away time.Duration) error {
	pid := plane.Pids()[controlplane.APIServer]
	if pid == 0 {
		return fmt.Errorf("killing the API server: it does not run")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the API server: %w", err)
	}
	if err := until(ctx, func() bool { return plane.Pids()[controlplane.APIServer] != pid }); err != nil {
		return fmt.Errorf("waiting for the end of the API server: %w", err)
	}
	timer := time.NewTimer(away)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return plane.StartComponent(ctx, controlplane.APIServer)
}

// until polls something outside of this process, until it is so or ctx ends.
func until(ctx context.Context, so func() bool) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
