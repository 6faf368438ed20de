package realnode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

// socketsOf is the directory of a state directory's sockets. Its name is that of the cgroup, too.
func socketsOf(stateDir string) string {
	sum := sha256.Sum256([]byte(stateDir))
	return "/run/bullpen-" + hex.EncodeToString(sum[:6])
}

func nodesDir(stateDir string) string { return filepath.Join(stateDir, "nodes") }

// RemoveRemains removes what a killed run left of its nodes in a state directory: cgroups, the network, sockets and files. Its processes have
// ended with it. The control plane's data and images stay. There need not be any.
func RemoveRemains(ctx context.Context, stateDir string) error {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return fmt.Errorf("resolving the state directory: %w", err)
	}
	sockets := socketsOf(stateDir)
	err = errors.Join(removeCgroup(ctx, "/"+filepath.Base(sockets)), netns.Remove(networkFile(stateDir)), os.RemoveAll(nodesDir(stateDir)), os.RemoveAll(sockets))
	if err != nil {
		return fmt.Errorf("removing what a killed run left of its node: %w", err)
	}
	return nil
}

// Remains lists what is left of a state directory's nodes on the machine, for people: mounts, cgroups, files and processes. Network links are
// within namespaces, which end with their processes and mounts.
func Remains(stateDir string) ([]string, error) {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return nil, fmt.Errorf("resolving the state directory: %w", err)
	}
	var left []string
	sockets := socketsOf(stateDir)
	for _, path := range []string{sockets, nodesDir(stateDir), networkFile(stateDir)} {
		if _, err := os.Lstat(path); err == nil {
			left = append(left, path)
		}
	}
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		path := filepath.Join(root, filepath.Base(sockets))
		if _, err := os.Lstat(path); err == nil {
			left = append(left, "cgroup "+path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], stateDir+"/") {
			left = append(left, "mount "+fields[4])
		}
	}
	processes, err := inNamespaces(stateDir)
	return append(left, processes...), err
}

// inNamespaces are the processes that have a mount of the state directory, where this process has none.
func inNamespaces(stateDir string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes of a node: %w", err)
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("looking for processes of a node: %w", err)
	}
	var left []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		proc := filepath.Join("/proc", entry.Name())
		if namespace, err := os.Readlink(proc + "/ns/mnt"); err != nil || namespace == own {
			continue // it has ended, or shares our mounts
		}
		mounts, err := os.ReadFile(proc + "/mountinfo")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // it ends
		}
		if bytes.Contains(mounts, []byte(stateDir+"/nodes/")) {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
	}
	slices.Sort(left)
	return left, nil
}
