package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const permissions = "docs/guides/permissions.md"

// processes are commands that no administrator runs with rights of the API.
var processes = []string{"agent", "chart", "controller", "host", "node", "server"}

// The page of permissions has a row for each command, and for each right that the API requires.
func TestPermissions_HaveEachCommandAndRight(t *testing.T) {
	all := pages(t)
	rows := regexp.MustCompile(`(?m)^\| .*$`).FindAllString(all[permissions], -1)
	require.Greater(t, len(rows), 30)

	reference, _, _ := strings.Cut(all["docs/reference/cli/README.md"], "## Development")
	commands := regexp.MustCompile(`(?m)^\| \[bullpen ([a-z-]+)\]`).FindAllStringSubmatch(reference, -1)
	require.Greater(t, len(commands), 20)
	for _, found := range commands {
		name := regexp.MustCompile("`" + regexp.QuoteMeta(found[1]) + "[` ]")
		if slices.Contains(processes, found[1]) {
			continue
		}
		require.True(t, slices.ContainsFunc(rows, name.MatchString), "%s has no row for bullpen %s", permissions, found[1])
	}

	rights := regexp.MustCompile(`(?m)\| ([a-z]+) ([a-z]+) \| [^|]+ \|$`).FindAllStringSubmatch(all["docs/reference/api.md"], -1)
	require.Greater(t, len(rights), 15)
	for _, right := range rights {
		verb := regexp.MustCompile(`\b` + right[1] + "\\b[^|]*`" + right[2] + "`")
		require.True(t, slices.ContainsFunc(rows, verb.MatchString), "%s has no row with the right to %s %s", permissions, right[1], right[2])
	}
}
