package descriptions

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bullpen-ci/bullpen/test/kit/npm"
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
	return npm.Directory(t, "descriptions", lock)
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
