package npm

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // git's name of a file's contents, and no secret
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Directory is the node_modules where scripts/prerequisites.sh has installed what a package-lock.json names, under its word for it.
func Directory(t testing.TB, prerequisite string, lock []byte) string {
	t.Helper()
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(lock)), lock...)) //nolint:gosec // as above
	cache := os.Getenv("BULLPEN_CACHE")
	if cache == "" {
		cache = filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache")), "bullpen")
	}
	at := filepath.Join(cache, prerequisite, fmt.Sprintf("%x", sum)[:16], "node_modules")
	if _, err := os.Stat(at); err != nil {
		t.Fatalf("npm packages are not installed: run scripts/prerequisites.sh %s (%v)", prerequisite, err)
	}
	return at
}

//go:embed axe/package-lock.json
var axeLock []byte

// Axe is the program of axe-core, which finds what is wrong with a page for users who do not see it.
func Axe(t testing.TB) string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(Directory(t, "axe", axeLock), "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("reading axe-core: %v", err)
	}
	return string(program)
}
