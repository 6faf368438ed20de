package gobuild

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const sample = "github.com/bullpen-ci/bullpen/scripts/incidents"

func TestBuild_CompilesAProgramOnceForAllPackages(t *testing.T) {
	shared, own := t.TempDir(), t.TempDir()
	t.Setenv(EnvPrograms, shared)
	paths := []string{filepath.Join(own, "a"), filepath.Join(own, "b"), filepath.Join(own, "c")}
	errs := make([]error, len(paths))
	var builds sync.WaitGroup
	for i, path := range paths {
		builds.Go(func() { errs[i] = Build(path, sample) })
	}
	await.ReturnWithin(t, 10*time.Minute, builds.Wait, "all builds return")
	first, err := os.Stat(paths[0])
	require.NoError(t, err)
	for i, path := range paths {
		require.NoError(t, errs[i])
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(first, info), "%s was compiled again", path)
	}

	tagged := filepath.Join(own, "tagged")
	require.NoError(t, Build(tagged, sample, "-tags", "faultpoints"))
	info, err := os.Stat(tagged)
	require.NoError(t, err)
	require.False(t, os.SameFile(first, info), "other flags make another program")

	require.NoError(t, Build(paths[0], sample), "a file that is there already is replaced")
}

func TestBuild_AFailureIsNotKept(t *testing.T) {
	shared := t.TempDir()
	t.Setenv(EnvPrograms, shared)
	for range 2 {
		require.ErrorContains(t, Build(filepath.Join(t.TempDir(), "x"), "github.com/bullpen-ci/bullpen/test/kit/gobuild/nothing"), "building")
	}
	programs, err := filepath.Glob(filepath.Join(shared, "*[^k]"))
	require.NoError(t, err)
	require.Empty(t, programs, "a failed build leaves no program")
}
