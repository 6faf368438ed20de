package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const cgroupMount = "/sys/fs/cgroup"

// hierarchies are the mounted cgroup hierarchies: one per controller, or the unified one.
func hierarchies() ([]string, error) {
	if theMachine().unified() {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, fmt.Errorf("listing cgroup hierarchies: %w", err)
	}
	var all []string
	for _, e := range entries {
		dir := filepath.Join(cgroupMount, e.Name())
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && e.IsDir() { // links name the same hierarchy again
			all = append(all, dir)
		}
	}
	return all, nil
}

// makeCgroup makes the parent of a node's cgroups in each hierarchy, with all CPUs and memory nodes of its own parent.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		at := root
		for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
			if err := enableControllers(at); err != nil {
				return err
			}
			at = filepath.Join(at, part)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making a cgroup: %w", err)
			}
			if err := inherit(at, "cpuset.cpus", "cpuset.mems"); err != nil {
				return err
			}
		}
	}
	return nil
}

// enableControllers of the unified hierarchy for the children of a cgroup. In the others there is nothing to enable.
func enableControllers(cgroup string) error {
	available, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading cgroup controllers: %w", err)
	}
	var on []string
	for _, name := range strings.Fields(string(available)) {
		on = append(on, "+"+name)
	}
	if len(on) == 0 {
		return nil
	}
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte(strings.Join(on, " ")), 0o644); err != nil {
		return fmt.Errorf("enabling cgroup controllers below %s: %w", cgroup, err)
	}
	return nil
}

// inherit copies settings from the parent, where a fresh cgroup has them empty: no process could enter it.
func inherit(cgroup string, settings ...string) error {
	for _, name := range settings {
		own, err := os.ReadFile(filepath.Join(cgroup, name))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue // not of this controller, or set
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(cgroup), name))
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if len(strings.TrimSpace(string(parent))) == 0 {
			continue // the unified hierarchy: empty means those of the parent
		}
		if err := os.WriteFile(filepath.Join(cgroup, name), parent, 0o644); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup and all below it, in each hierarchy. Their processes have been killed; the kernel may still be at it. It
// removes parents that are empty then, up to the hierarchy's root.
func removeCgroup(ctx context.Context, name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, root := range roots {
		top := filepath.Join(root, name)
		errs = append(errs, removeTree(ctx, top))
		for up := filepath.Dir(top); up != root && strings.HasPrefix(up, root); up = filepath.Dir(up) {
			if os.Remove(up) != nil {
				break // another node is below it
			}
		}
	}
	return errors.Join(errs...)
}

func removeTree(ctx context.Context, top string) error {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := removeOnce(top)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the cgroup %s: %w", top, err)
		case <-retry.C:
		}
	}
}

// removeOnce removes directories from the leaves up; a cgroup's files go with it.
func removeOnce(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeOnce(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
