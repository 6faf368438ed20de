package assets

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func pinnedPrograms() map[string]string {
	programs := map[string]string{}
	for _, name := range Names() {
		programs[name] = string(program(name))
	}
	return programs
}

func TestBuild_UsesProgramsOnPathOfThePinnedVersion(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	tr.goos = "darwin" // nothing is published for it, and nothing needs to be
	dir := onPath(t, pinnedPrograms())
	made, err := tr.build(t)
	require.NoError(t, err)
	require.Zero(t, tr.compiled.Load(), tr.log.String())
	require.Empty(t, p.requests(""))
	require.True(t, Complete(made))
	target, err := os.Readlink(filepath.Join(made, "kubectl"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "kubectl"), target)
	require.Contains(t, tr.log.String(), "using "+target)
}

func TestBuild_DownloadsWhatPathHasInAnotherVersion(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	programs := pinnedPrograms()
	programs["kubectl"] = "#!/bin/sh\necho 'Client Version: v1.99.7+k3s1'\n"
	programs["kube-scheduler"] = "#!/bin/sh\necho 'Kubernetes v1.99.7'; exit 1\n"
	onPath(t, programs)
	dir, err := tr.build(t)
	require.NoError(t, err)
	tr.requireReady(t, dir)
	require.Len(t, p.requests(""), 4, "two programs and their checksums")
	require.Len(t, p.requests(atKubernetes+"kubectl"), 1)
	require.Len(t, p.requests(atKubernetes+"kube-scheduler"), 1)
}

func TestBuild_ReplacesALinkToAProgramThatWasUpgraded(t *testing.T) {
	p := publisherOf(t)
	tr := newTrial(t, p.URL)
	path := onPath(t, pinnedPrograms())
	dir, err := tr.build(t)
	require.NoError(t, err)
	require.Empty(t, p.requests(""))

	require.NoError(t, os.WriteFile(filepath.Join(path, "etcd"), []byte("#!/bin/sh\necho 'etcd Version: 3.99.2'\n"), 0o755))
	again, err := tr.build(t)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	tr.requireReady(t, again)
	require.Len(t, p.requests(""), 2, "etcd and its checksum")
}

func TestPath_AProgramThatHangsDoesNotCount(t *testing.T) {
	onPath(t, map[string]string{"kubectl": "#!/bin/sh\necho 'Client Version: v1.99.7'\nsleep 60\n"}) // and its child holds the pipe
	began := time.Now()
	require.NotContains(t, pinned.onPath(t.Context(), time.Second, t.TempDir()), "kubectl")
	require.Less(t, time.Since(began), 45*time.Second)
}

func TestPath_TheCacheItselfIsNotOnIt(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, pinned.key())
	for name, script := range pinnedPrograms() {
		write(t, dir, name, script)
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	require.Empty(t, pinned.onPath(t.Context(), time.Minute, cache))
}

// The genuine programs print the versions that are expected of those on PATH.
func TestPath_GenuineProgramsPrintTheirVersions(t *testing.T) {
	dir, err := Find(Options{})
	require.NoError(t, err, "run `make devcluster` once")
	r, err := readRelease(filepath.Join("..", "..", "..", "..", "devcluster"), "linux", "amd64")
	require.NoError(t, err)
	for _, name := range Names() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.True(t, r.isPinned(ctx, name, filepath.Join(dir, name)), name)
		cancel()
	}
}
