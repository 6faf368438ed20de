package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// record is one line of children.json: a process that runs for this state folder.
type record struct {
	Component Component `json:"component"`
	Pid       int       `json:"pid"`
	Started   string    `json:"started"`
}

func (c *ControlPlane) writeRecord() error {
	c.mu.Lock()
	list := []record{}
	for _, component := range Components() {
		if running := c.children[component]; running != nil {
			list = append(list, record{Component: component, Pid: running.pid, Started: running.started})
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

// killRecorded kills what an earlier owner of the folder left running, and waits until it is gone. A recorded pid
// that now belongs to another process is left alone. The caller holds the folder's lock, so no owner lives.
func killRecorded(ctx context.Context, path string, log *slog.Logger) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var list []record
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return fmt.Errorf("reading what ran here before from %s: %w; end those processes by hand, then remove that file", path, err)
	}
	for _, old := range list {
		if !alive(old) {
			continue
		}
		log.Warn("ending a process that an earlier run left behind", "component", string(old.Component), "pid", old.Pid)
		signalGroup(old.Pid, syscall.SIGKILL)
		if err := waitGone(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

func alive(old record) bool {
	if old.Pid <= 1 {
		return false // the "group" of process 1 is every process there is
	}
	stamp, err := startStamp(old.Pid)
	return err == nil && stamp == old.Started
}

func waitGone(ctx context.Context, old record) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for alive(old) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of %s, process %d, which an earlier run left behind: %w", old.Component, old.Pid, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// lockState makes this process the folder's only owner. The kernel gives the lock back when the process dies.
func lockState(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the state folder's lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 32)) // only for the message
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: process %s runs a control plane in %s; stop it first or use another folder",
				ErrInUse, strings.TrimSpace(string(holder)), dir)
		}
		return nil, fmt.Errorf("locking the state folder: %w", err)
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("writing the state folder's lock: %w", err)
	}
	return file, nil
}
