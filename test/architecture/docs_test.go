package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The documentation's tested versions are those of the tests.
func TestVersions_AreThoseOfTheTests(t *testing.T) {
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		return string(content)
	}
	find := func(name, pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(name))
		require.NotNil(t, found, "%s has no %s", name, pattern)
		return found[1]
	}
	const page = "docs/reference/versions.md"
	require.Equal(t, "1."+find("devcluster/go.mod", `k8s\.io/kubernetes v1\.(\d+)\.`), find(page, `(?m)^\| Kubernetes \| (\S+) \|`))
	require.Equal(t, find("scripts/prerequisites.sh", `\$found" -ge (\d+)`), find(page, `(?m)^\| PostgreSQL \| \d+ \| (\d+) and newer \|`))
	require.Equal(t, find("go.mod", `(?m)^go (\d+\.\d+)\.`), find(page, `(?m)^\| Go, to build \| (\S+) `))
}

// A page that says which test holds a defence names one that exists.
func TestDocs_NameTestsThatExist(t *testing.T) {
	const root = "../.."
	exist := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "dist") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllSubmatch(content, -1) {
			exist[string(found[1])] = true
		}
		return err
	}))
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, dir := range []string{"adr", "guides", "internals", "reference"} {
		more, err := filepath.Glob(filepath.Join(root, "docs", dir, "*.md"))
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	named := 0
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")) {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`").FindAllSubmatch(content, -1) {
			named++
			require.True(t, exist[string(found[1])], "%s names %s, which is no test", page, found[1])
		}
	}
	require.Greater(t, named, 40, "no page was read")
}
