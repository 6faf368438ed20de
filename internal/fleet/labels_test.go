package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunnerTakes(t *testing.T) {
	own := []string{"GPU", "large", "self-hosted"}
	for _, c := range []struct {
		asked []string
		want  bool
	}{
		{[]string{"gpu"}, true},
		{[]string{"self-hosted", "Linux", "X64", " gpu ", "LARGE"}, true},
		{[]string{"gpu", "small"}, false},
		{[]string{"ubuntu-latest"}, false},
		{[]string{"self-hosted"}, true},
		{[]string{"self-hosted", "macOS"}, false},
		{[]string{"self-hosted", "windows", "gpu"}, false},
		{nil, false},
	} {
		require.Equal(t, c.want, RunnerTakes(own, c.asked, false), "%v", c.asked)
	}
	require.True(t, RunnerTakes([]string{"windows"}, []string{"Windows", "self-hosted"}, false))
	require.False(t, RunnerTakes([]string{"gpu"}, []string{"gpu", "self-hosted"}, true), "its configuration excludes that")
	require.True(t, RunnerTakes([]string{"gpu", "self-hosted"}, []string{"gpu", "self-hosted"}, true))
}
