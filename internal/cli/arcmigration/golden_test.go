package arcmigration_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
	"github.com/bullpen-ci/bullpen/test/kit"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// examples are the files in testdata by their paths below it: our own corpus after public practice, the cases that were reported, and files of
// everything that can be said.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, pattern := range []string{"*.yaml", "corpus/*.yaml", "cases/*.yaml"} {
		names, err := filepath.Glob(filepath.Join("testdata", pattern))
		require.NoError(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			name, err = filepath.Rel("testdata", name)
			require.NoError(t, err)
			found[name] = content
		}
	}
	require.Greater(t, len(found), 50)
	return found
}

func output(t testing.TB, result *arcmigration.Result) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, result.WriteYAML(&text))
	return text.String()
}

// Each example becomes what is written beside it, and the report says what is written there.
func TestConvert_ExamplesBecomeWhatIsWrittenDown(t *testing.T) {
	for name, content := range examples(t) {
		t.Run(name, func(t *testing.T) {
			result := arcmigration.Convert([]arcmigration.Input{{Name: name, Content: content}}, arcmigration.Options{})
			var report bytes.Buffer
			require.NoError(t, result.Print(&report))
			for suffix, text := range map[string]string{".yaml": output(t, result), ".report": report.String()} {
				golden := filepath.Join("testdata", "golden", strings.TrimSuffix(name, ".yaml")+suffix)
				if *update {
					require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
					require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
				}
				want, err := os.ReadFile(golden)
				require.NoError(t, err)
				require.Equal(t, string(want), text, golden)
			}
		})
	}
}
