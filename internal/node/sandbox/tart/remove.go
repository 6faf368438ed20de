//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
)

const (
	// deleteTimeout bounds the deletion of a machine in the background.
	deleteTimeout = 5 * time.Minute
	// killDelay is how long a machine's process may be there after `tart stop` before it is killed.
	killDelay = 2 * time.Second
)

// halt ends a machine's process: by `tart stop`, which ends it at once but in order, and by killing it when that has not
// helped. It returns when the process is gone or ctx ends.
func (s *Sandbox) halt(ctx context.Context, r record) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.host.Wait(ctx, r.UID, r.process())
	}()
	defer func() { <-gone }()
	// A machine that was started just now is not to be stopped yet (Tart 4.2), one that Tart does not know of never is (tart#967).
	if err := s.stopVM(ctx, r.VM); err != nil && ctx.Err() == nil {
		s.opts.Log.Warn("stopping a virtual machine failed; killing its process", "vm", r.VM, "error", err)
	}
	s.opts.reached("stopped")
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	for {
		select {
		case <-gone:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.host.Signal(ctx, r.UID, r.process(), sandbox.Kill); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("killing the process of a virtual machine failed, retrying", "vm", r.VM, "error", err)
		}
		timer.Reset(killDelay)
	}
}

// stopVM stops a machine of ours. One that does not run is stopped.
func (s *Sandbox) stopVM(ctx context.Context, vm string) error {
	if !carriesMark(s.owner, vm) {
		return fmt.Errorf("stopping the virtual machine %s: it does not belong to Bullpen", vm) // NODE-7
	}
	err := s.tart.Stop(ctx, vm, s.opts.StopGrace)
	switch tartcli.KindOf(err) {
	case tartcli.KindNotRunning, tartcli.KindNotFound:
		return nil
	}
	return err
}

// deleteVM deletes a machine of ours that does not run. nil means that it does not exist: after any failure Tart is asked.
func (s *Sandbox) deleteVM(ctx context.Context, vm string) error {
	if !carriesMark(s.owner, vm) {
		return fmt.Errorf("deleting the virtual machine %s: it does not belong to Bullpen", vm) // NODE-7
	}
	err := s.tart.Delete(ctx, vm)
	if err == nil || tartcli.KindOf(err) == tartcli.KindNotFound {
		return s.removeRemains(vm)
	}
	if tartcli.KindOf(err) == tartcli.KindRunning {
		err = errors.Join(err, s.stopVM(ctx, vm))
		if again := s.tart.Delete(ctx, vm); again == nil {
			return s.removeRemains(vm)
		}
		return err
	}
	list, listErr := s.tart.List(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	for _, other := range list {
		if !other.Image && other.Name == vm {
			return err
		}
	}
	return s.removeRemains(vm)
}

// removeRemains removes the directory of a machine that Tart no longer lists because some of its files are missing.
func (s *Sandbox) removeRemains(vm string) error {
	if err := os.RemoveAll(s.vmFiles(vm)); err != nil {
		return fmt.Errorf("removing what is left of the virtual machine %s: %w", vm, err)
	}
	return nil
}

func (s *Sandbox) vmFiles(vm string) string {
	return filepath.Join(s.opts.TartHome, "vms", filepath.Base(vm))
}

// Remove implements sandbox.Sandbox. Its order is strict: the process, the machine, the pod's other processes, the record (NODE-2).
func (s *Sandbox) Remove(ctx context.Context, podUID string) error {
	unlock, err := s.pods.lock(ctx, podUID)
	if err != nil {
		return err
	}
	defer unlock()
	gone := filepath.Join(s.goneDir(), filepath.Base(podUID))
	r, err := s.load(podUID)
	if errors.Is(err, sandbox.ErrNotFound) {
		return process.RemoveAll(gone) // an earlier Remove may have come this far
	}
	if err != nil {
		return err
	}
	if r.VM != "" {
		if err := s.removeVM(ctx, r); err != nil {
			return err
		}
	}
	if err := s.host.Remove(ctx, podUID); err != nil {
		return err
	}
	s.opts.reached("processes-removed")
	if err := process.RemoveAll(gone); err != nil {
		return err
	}
	// Renamed at once: a half-deleted directory must not be read as a record.
	if err := os.Rename(s.vmDir(podUID), gone); err != nil {
		return fmt.Errorf("removing the pod's directory: %w", err)
	}
	s.opts.reached("record-removed")
	return process.RemoveAll(gone)
}

// removeVM ends and deletes the pod's machine.
func (s *Sandbox) removeVM(ctx context.Context, r record) error {
	s.mu.Lock()
	m := s.minders[r.UID]
	s.mu.Unlock()
	if m != nil {
		m.abandon()
	}
	if r.Begun {
		s.halt(ctx, r)
		if _, err := s.host.Wait(ctx, r.UID, r.process()); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			return fmt.Errorf("waiting for the virtual machine %s to end: %w", r.VM, err)
		}
	}
	s.slots.change(func(l *ledger) { l.release(r.UID) })
	s.opts.reached("halted")
	if err := s.deleteVM(ctx, r.VM); err != nil {
		return err
	}
	s.opts.reached("deleted")
	return nil
}

// runFailure says why `tart run` has ended before its time.
func (s *Sandbox) runFailure(r record, exit sandbox.Exit) error {
	return s.tart.ExplainRun(r.VM, int(exit.Code), s.host.LogFile(r.UID, r.process()))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// dropBaseOf removes the golden base that a machine was cloned from, which is suspect.
func (s *Sandbox) dropBaseOf(r record) error {
	all, err := s.goldens()
	if err != nil {
		return err
	}
	for _, g := range all {
		if g.Digest != r.Digest {
			continue
		}
		unlock, err := s.images.lock(s.ctx, g.Digest)
		if err != nil {
			return err
		}
		defer unlock()
		return s.dropGolden(g)
	}
	return nil
}

// Used reports whether a state directory is, or was, one of this back end.
func Used(stateDir string) bool {
	_, err := os.Stat(filepath.Join(stateDir, "vms"))
	return err == nil
}

// Cleanup ends and deletes every machine on record of a state directory, and every process, and returns when none is left. Golden bases
// stay. It refuses while a node agent uses the directory (process.ErrInUse).
func Cleanup(ctx context.Context, opts Options) (pods int, err error) {
	unlock, err := process.Lock(opts.StateDir)
	if err != nil {
		return 0, err
	}
	s, err := New(opts)
	if err != nil {
		unlock()
		return 0, err
	}
	defer s.Close()
	refs, err := s.List(ctx)
	for _, ref := range refs {
		err = errors.Join(err, s.removeMachine(ctx, ref.UID))
	}
	unlock()
	if err != nil {
		return 0, err
	}
	_, err = process.Cleanup(ctx, opts.StateDir)
	return len(refs), err
}

// removeMachine removes a pod's machine and keeps its record, which then tells that it was killed.
func (s *Sandbox) removeMachine(ctx context.Context, uid string) error {
	r, err := s.load(uid)
	if err != nil || r.VM == "" {
		return err
	}
	if r.running() {
		if err := s.Signal(ctx, uid, "runner", sandbox.Kill); err != nil {
			return err
		}
		if _, err := s.Wait(ctx, uid, "runner"); err != nil {
			return err
		}
	}
	return s.deleteVM(ctx, r.VM)
}
