package image

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

func TestCache_IsBoundedAndKeepsWhatWasUsedLast(t *testing.T) {
	at := func(n int) key {
		return key{name: imagename.Name{Registry: "r.io", Repository: fmt.Sprint("x", n), Tag: "1"}}
	}
	value := cached{digest: someDigest, config: jobcontainer.ImageConfig{Env: []string{"A=" + strings.Repeat("x", 10_000)}}}
	size := sizeOf(at(1), value)
	require.Greater(t, size, 10_000)
	c := newCache(3 * size)
	for n := 1; n <= 3; n++ {
		c.put(at(n), value)
	}
	_, ok := c.get(at(1))
	require.True(t, ok)
	c.put(at(4), value)
	_, ok = c.get(at(2))
	require.False(t, ok, "the one that was not used for longest is gone")
	for _, n := range []int{1, 3, 4} {
		_, ok = c.get(at(n))
		require.True(t, ok, n)
	}
	for range 100 {
		c.put(at(4), value)
	}
	require.Len(t, c.entries, 3)
	require.Equal(t, 3, c.recent.Len())
	require.LessOrEqual(t, c.bytes, 3*size)

	newCache(10).put(at(1), value) // larger than the cache
}

func TestClone_SharesNothing(t *testing.T) {
	config := jobcontainer.ImageConfig{Env: []string{"A=1"}, Cmd: []string{"x"}, Healthcheck: &jobcontainer.Healthcheck{Test: []string{"NONE"}}}
	copied := clone(config)
	require.Equal(t, config, copied)
	copied.Env[0], copied.Cmd[0], copied.Healthcheck.Test[0], copied.Healthcheck.Retries = "B", "y", "CMD", 3
	require.Equal(t, jobcontainer.ImageConfig{Env: []string{"A=1"}, Cmd: []string{"x"}, Healthcheck: &jobcontainer.Healthcheck{Test: []string{"NONE"}}}, config)
}
