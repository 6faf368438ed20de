package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/test/kit/chaos"
)

// diskSize is what the database has to itself: more than it ever needs in a soak, backup included.
const diskSize = 1 << 30

// disk is a file system in memory for the database's directory. Its content moves there and back, so that the directory can be inspected,
// and a stopped soak be resumed.
type disk struct {
	chaos.Disk
	kept string // where the content is while nothing is mounted
}

// mountDisk gives a directory a file system of its own. It takes root.
func mountDisk(ctx context.Context, dir string) (*disk, error) {
	d := &disk{Disk: chaos.Disk{Dir: dir}, kept: dir + ".kept"}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the database's directory: %w", err)
	}
	mounted, err := isMounted(dir)
	if err != nil {
		return nil, err
	}
	if mounted { // by a soak that was killed
		return d, d.Drain()
	}
	if err := move(ctx, dir, d.kept); err != nil {
		return nil, err
	}
	if _, err := chaos.NewDisk(dir, diskSize); err != nil {
		return nil, errors.Join(err, move(ctx, d.kept, dir))
	}
	return d, move(ctx, d.kept, dir)
}

// unmount gives the content back to the directory.
func (d *disk) unmount(ctx context.Context) error {
	if err := d.Drain(); err != nil {
		return err
	}
	if err := move(ctx, d.Dir, d.kept); err != nil {
		return err
	}
	return errors.Join(d.Close(), move(ctx, d.kept, d.Dir))
}

// full leaves no room for a while.
func (d *disk) full(ctx context.Context, length time.Duration) error {
	err := d.Fill(0)
	pause(ctx, length)
	return errors.Join(err, d.Drain())
}

// move moves what a directory holds into another, with its owners and rights.
func move(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", from, err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", to, err)
	}
	for _, entry := range entries {
		old := filepath.Join(from, entry.Name())
		if output, err := exec.CommandContext(ctx, "cp", "-a", old, to).CombinedOutput(); err != nil {
			return fmt.Errorf("moving %s: %w: %s", old, err, output)
		}
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("moving %s: %w", old, err)
		}
	}
	if filepath.Ext(from) == ".kept" {
		return os.Remove(from)
	}
	return nil
}

func isMounted(dir string) (bool, error) {
	var own, above syscall.Stat_t
	if err := errors.Join(syscall.Stat(dir, &own), syscall.Stat(filepath.Dir(dir), &above)); err != nil {
		return false, fmt.Errorf("reading %s: %w", dir, err)
	}
	return own.Dev != above.Dev, nil
}
