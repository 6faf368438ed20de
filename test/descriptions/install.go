package descriptions

import (
	"bytes"
	"cmp"
	"crypto/sha1" //nolint:gosec // git's name of a file's contents, and no secret
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The packages.
const (
	packageREST     = "@octokit/openapi"
	packageWebhooks = "@octokit/openapi-webhooks"
	packageExamples = "@octokit/webhooks-examples"
)

// directory is where scripts/prerequisites.sh has installed what package-lock.json names.
func directory(t testing.TB) string {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatalf("reading which packages there are: %v", err)
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(lock)), lock...)) //nolint:gosec // as above
	cache := os.Getenv("BULLPEN_CACHE")
	if cache == "" {
		cache = filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache")), "bullpen")
	}
	at := filepath.Join(cache, "descriptions", fmt.Sprintf("%x", sum)[:16], "node_modules")
	if _, err := os.Stat(at); err != nil {
		t.Fatalf("GitHub's descriptions are not installed: run scripts/prerequisites.sh descriptions (%v)", err)
	}
	return at
}

// description reads one JSON document of a package.
func description(t testing.TB, name, document string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(directory(t), name, "generated", document+".json"))
	if err != nil {
		t.Fatalf("reading a description of GitHub's: %v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("reading %s of %s: %v", document, name, err)
	}
	return out
}
