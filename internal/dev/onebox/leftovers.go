package onebox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
)

// clearLeftovers stops what a killed owner of the directory left running, runner pods included, and returns how many it stopped. The caller
// holds the directory's lock.
func clearLeftovers(ctx context.Context, l Layout, binary string) (int, error) {
	recorded, err := readRecord(l.recordFile())
	if err != nil {
		return 0, err
	}
	ended, err := endRecorded(ctx, recorded)
	if err != nil {
		return 0, err
	}
	// Only now: nothing is left that starts more of them.
	pods, err := endPods(ctx, l, binary)
	if err != nil {
		return 0, err
	}
	if err := clearNode(ctx, l); err != nil {
		return 0, err
	}
	if err := os.Remove(l.recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("clearing the record of processes: %w", err)
	}
	return len(ended) + pods, nil
}

// endPods ends the processes and virtual machines of all runner pods, and says how many pods had any.
func endPods(ctx context.Context, l Layout, binary string) (int, error) {
	running, err := runningPods(ctx, l.Node())
	if err != nil {
		return 0, err
	}
	if _, err := process.Cleanup(ctx, l.Node()); err != nil {
		return 0, fmt.Errorf("stopping the runner pods' processes: %w", err)
	}
	machines, err := endMachines(ctx, l, binary)
	return running + machines, err
}

// runningPods counts the pods of which something runs.
func runningPods(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	sandbox, err := process.New(process.Options{StateDir: dir})
	if err != nil {
		return 0, err
	}
	pods, err := sandbox.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing the runner pods: %w", err)
	}
	running := 0
	for _, ref := range pods {
		state, err := sandbox.Inspect(ctx, ref.UID)
		if err != nil {
			return 0, fmt.Errorf("reading pod %s: %w", ref.Name, err)
		}
		for _, container := range state.Containers {
			if container.Exit == nil {
				running++
				break
			}
		}
	}
	return running, nil
}
