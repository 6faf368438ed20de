package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// maxSocketPath is what fits into sockaddr_un everywhere (macOS: 104 with the terminating zero).
const maxSocketPath = 103

const socketName = ".s.PGSQL.5432"

// plainPath: PostgreSQL takes a comma-separated list of directories, so anything unusual goes to the short directory.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// socketDir is where the server listens: beside its data, or in a short directory under /tmp, always the same for one
// data directory, when that path is too long for a socket.
func socketDir(dir string) string {
	beside := filepath.Join(dir, "run")
	if len(filepath.Join(beside, socketName)) <= maxSocketPath && plainPath.MatchString(beside) {
		return beside
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join("/tmp", "bullpen-pg-"+hex.EncodeToString(sum[:8]))
}

// prepareSocketDir creates the directory, and refuses one that another user made first under the shared /tmp.
func prepareSocketDir(dir string, who account) error {
	if info, err := os.Lstat(dir); err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || ok && int(stat.Uid) != who.uid && int(stat.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to another user: remove it, PostgreSQL's socket has to live there", dir)
		}
	}
	return who.own(dir)
}
