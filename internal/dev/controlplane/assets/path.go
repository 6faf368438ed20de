package assets

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// versionPatience bounds how long the programs on PATH may take to print their versions, all of them together.
const versionPatience = 5 * time.Second

// onPath finds the programs on PATH that are exactly of the pinned version. Links into the cache itself do not count.
func (r release) onPath(ctx context.Context, patience time.Duration, cache string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := map[string]string{}
	for _, name := range Names() {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil || strings.HasPrefix(path, cache+string(filepath.Separator)) {
			continue
		}
		if r.isPinned(ctx, name, path) {
			found[name] = path
		}
	}
	return found
}

// isPinned runs the program to ask for its version.
func (r release) isPinned(ctx context.Context, name, path string) bool {
	args := []string{"--version"}
	if name == "kubectl" { // it has no such flag
		args = []string{"version", "--client"}
	}
	command := exec.CommandContext(ctx, path, args...)
	command.WaitDelay = time.Second // a child of a wrapper script may hold the pipe
	output, err := command.Output()
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line) == r.versionLine(name)
}

// versionLine is the first line that the pinned release of a program prints about its version.
func (r release) versionLine(name string) string {
	switch name {
	case "etcd":
		return "etcd Version: " + strings.TrimPrefix(r.etcd, "v")
	case "kubectl":
		return "Client Version: " + r.kubernetes
	default:
		return "Kubernetes " + r.kubernetes
	}
}

// current reports whether the programs of a cached directory that are links to PATH are still of the pinned version: a
// package manager may have upgraded them.
func (r release) current(ctx context.Context, patience time.Duration, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, name := range Names() {
		path, err := os.Readlink(filepath.Join(dir, name))
		if err == nil && !r.isPinned(ctx, name, path) {
			return false
		}
	}
	return true
}
