package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// writeRecord keeps children.json: the processes that run for this state directory.
func (c *ControlPlane) writeRecord() error {
	c.mu.Lock()
	list := []childproc.Process{}
	for _, component := range Components() {
		if running := c.children[component]; running != nil {
			list = append(list, running.Process(string(component)))
		}
	}
	c.mu.Unlock()
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of processes: %w", err)
	}
	if err := writeFile(c.recordPath(), append(data, '\n')); err != nil {
		return fmt.Errorf("recording the processes: %w", err)
	}
	return nil
}

// killRecorded kills what an earlier owner of the directory left running, and waits until it is gone. A recorded PID
// that now belongs to another process is left alone. The caller holds the directory's lock, so no owner lives.
func killRecorded(ctx context.Context, path string, log *slog.Logger) error {
	recorded, err := childproc.ReadRecord(path)
	if err != nil {
		return fmt.Errorf("reading what ran here before from %s: %w; end those processes by hand, then remove that file", path, err)
	}
	left := childproc.Running(recorded)
	for _, old := range left {
		log.Warn("ending a process that an earlier run left behind", "component", old.Name, "pid", old.PID)
		old.Signal(syscall.SIGKILL)
	}
	left, err = childproc.AwaitGone(ctx, left, 20*time.Second)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s, process %d, which an earlier run left behind, does not end: end it by hand", left[0].Name, left[0].PID)
	}
	return err
}

// lockState makes this process the directory's only owner.
func lockState(dir string) (*os.File, error) {
	lock, err := childproc.Lock(filepath.Join(dir, "lock"))
	var held *childproc.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: process %d runs a control plane in %s; stop it first or use another directory", ErrInUse, held.PID, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	return lock, nil
}
