package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// The description of an empty chart value names the default of its flag.
func TestValues_NameTheDefaultsOfTheirFlags(t *testing.T) {
	template, err := os.ReadFile(filepath.Join(top, "charts/bullpen/templates/server/deployment.yaml"))
	require.NoError(t, err)
	all := pages(t)
	rows, flags := all["docs/reference/configuration.md"], all["docs/reference/cli/server.md"]

	named := func(value string) string {
		found := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(value) + "` .*Empty: ([^ ]*[^ .])[. ]").FindStringSubmatch(rows)
		require.NotNil(t, found, "%s does not say what an empty value means", value)
		return found[1]
	}
	durations := 0
	for _, passed := range regexp.MustCompile(`"([a-z-]+)" \$v\.([A-Za-z.]+)`).FindAllStringSubmatch(string(template), -1) {
		flag := regexp.MustCompile("(?m)^\\| `--" + passed[1] + "` \\| duration \\| `([^`]+)`").FindStringSubmatch(flags)
		if flag == nil {
			continue
		}
		durations++
		want, err := time.ParseDuration(flag[1])
		require.NoError(t, err)
		got, err := time.ParseDuration(named("server." + passed[2]))
		require.NoError(t, err)
		require.Equal(t, want, got, "server.%s", passed[2])
	}
	require.Greater(t, durations, 10)

	for _, platform := range []fleet.Platform{fleet.Linux, fleet.MacOS} {
		limits, err := fleet.ParseLimits(named("server.defaultLimits."+string(platform)), fleet.Limits{})
		require.NoError(t, err)
		require.Equal(t, fleet.DefaultLimits(platform), limits)
	}
}
