package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// hostsFile is one file for all containers of the pod. The kubelet bind-mounts it, so nothing can be renamed over it, and writes it again at
// each start of a container.
const hostsFile = "/etc/hosts"

// addHosts appends the names that the file does not have yet.
func addHosts(path string, wanted []wire.HostEntry) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrPermission) {
		return wire.Failf(wire.FailNotPermitted, "adding host names to %s: only root may do that in this container", path)
	}
	if err != nil {
		return fmt.Errorf("adding host names: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Guards of several containers may add names at once. The lock is for order alone: a job that holds it is not waited for.
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil { //nolint:gosec // a file descriptor
		defer func() { _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }() //nolint:gosec // as above
	}
	content, err := io.ReadAll(io.LimitReader(file, maxHosts+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, withoutPath(err))
	}
	if len(content) > maxHosts {
		return fmt.Errorf("adding host names: %s is larger than %d bytes", path, maxHosts)
	}
	if missing := missingHosts(string(content), wanted); missing != "" {
		if _, err := file.WriteString(missing); err != nil {
			return fmt.Errorf("adding host names to %s: %w", path, withoutPath(err))
		}
	}
	return nil
}

// maxHosts bounds the file, in bytes.
const maxHosts = 1 << 20

// missingHosts returns the lines to append. A name may have several addresses; a
// resolver prefers the first line.
func missingHosts(content string, wanted []wire.HostEntry) string {
	var have []wire.HostEntry
	for line := range strings.Lines(content) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		for i := 1; i < len(fields); i++ {
			have = append(have, wire.HostEntry{Address: fields[0], Name: fields[i]})
		}
	}
	var b strings.Builder
	if content != "" && !strings.HasSuffix(content, "\n") {
		b.WriteByte('\n')
	}
	start := b.Len()
	for _, entry := range wanted {
		if !slices.Contains(have, entry) {
			have = append(have, entry)
			b.WriteString(entry.Address + "\t" + entry.Name + "\n")
		}
	}
	if b.Len() == start {
		return ""
	}
	return b.String()
}
