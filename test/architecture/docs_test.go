package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the documentation says is tested is what the tests run on.
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
