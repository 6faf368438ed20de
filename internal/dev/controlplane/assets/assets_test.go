package assets

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// environment is a Getenv over a map, with a cache directory of its own so that no test sees the machine's. Unless the map says
// otherwise, nothing is downloaded.
func environment(t *testing.T, values map[string]string) func(string) string {
	t.Helper()
	cache := t.TempDir()
	return func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return map[string]string{EnvCache: cache, EnvAssets: Off}[name]
	}
}

func complete(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range Names() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	return dir
}

// sources is a devcluster module of two files.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module github.com/bullpen-ci/bullpen/devcluster\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.99.1\n\tk8s.io/kubernetes v1.99.7\n)\n")
	write(t, dir, "main.go", "package main\n")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// compiler stands in for `go build`: it writes an executable, and counts how often it is started.
func compiler(count *atomic.Int32, script string) func(context.Context, string, string) *exec.Cmd {
	return func(ctx context.Context, _, output string) *exec.Cmd {
		count.Add(1)
		command := exec.CommandContext(ctx, "sh", "-c", script, "compiler", output)
		return command
	}
}

const compiles = `echo compiling >&2; printf '#!/bin/sh\n' > "$1" && chmod +x "$1"`

func TestFind_TakesTheFirstOfGivenEnvironmentAndCache(t *testing.T) {
	given, own, kubebuilder := complete(t), complete(t), complete(t)
	all := map[string]string{EnvAssets: own, EnvKubebuilder: kubebuilder}

	found, err := Find(Options{Dir: given, Getenv: environment(t, all)})
	require.NoError(t, err)
	require.Equal(t, given, found)

	found, err = Find(Options{Getenv: environment(t, all)})
	require.NoError(t, err)
	require.Equal(t, own, found)

	delete(all, EnvAssets)
	found, err = Find(Options{Getenv: environment(t, all)})
	require.NoError(t, err)
	require.Equal(t, kubebuilder, found)
}

func TestFind_RefusesAGivenDirectoryThatIsNotComplete(t *testing.T) {
	partial := complete(t)
	require.NoError(t, os.Remove(filepath.Join(partial, "kube-scheduler")))
	require.NoError(t, os.Chmod(filepath.Join(partial, "kubectl"), 0o644))

	for _, o := range []Options{
		{Dir: partial, Getenv: environment(t, nil)},
		{Getenv: environment(t, map[string]string{EnvAssets: partial, EnvKubebuilder: complete(t)})},
	} {
		_, err := Find(o)
		require.ErrorIs(t, err, ErrMissing)
		require.ErrorContains(t, err, "lacks kube-scheduler, kubectl")
	}
}

func TestFind_SkipsAKubebuilderDirectoryWithoutAScheduler(t *testing.T) {
	partial := complete(t)
	require.NoError(t, os.Remove(filepath.Join(partial, "kube-scheduler")))
	_, err := Find(Options{SourceDir: sources(t), Getenv: environment(t, map[string]string{EnvKubebuilder: partial})})
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "make devcluster")
}

func TestFind_SearchesUpwardsFromTheWorkingDirectory(t *testing.T) {
	root := t.TempDir()
	write(t, root, "devcluster/go.mod", "module github.com/bullpen-ci/bullpen/devcluster\n")
	below := filepath.Join(root, "internal", "deep")
	require.NoError(t, os.MkdirAll(below, 0o755))
	t.Chdir(below)
	env := environment(t, nil)
	var built atomic.Int32

	made, err := Build(t.Context(), BuildOptions{Options: Options{Getenv: env}, Command: compiler(&built, compiles)})
	require.NoError(t, err)
	found, err := Find(Options{Getenv: env})
	require.NoError(t, err)
	require.Equal(t, made, found)
}

func TestFind_WithAStampedKeyNeedsNoSources(t *testing.T) {
	env := environment(t, nil)
	source := sources(t)
	var built atomic.Int32
	made, err := Build(t.Context(), BuildOptions{Options: Options{Getenv: env, SourceDir: source}, Command: compiler(&built, compiles)})
	require.NoError(t, err)
	t.Chdir(t.TempDir())

	_, err = Find(Options{Getenv: env})
	require.ErrorIs(t, err, ErrMissing)

	stamp(t, source)
	found, err := Find(Options{Getenv: env})
	require.NoError(t, err)
	require.Equal(t, made, found)
}

// stamp does what the linker does with LinkerFlags.
func stamp(t *testing.T, source string) {
	t.Helper()
	flags, err := LinkerFlags(source)
	require.NoError(t, err)
	const pkg = "-X github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets."
	require.Regexp(t, "^"+pkg+"sourceKey=[0-9a-f]{16} "+pkg+"releaseKey=kubernetes-v1.99.7-etcd-v3.99.1-[a-z0-9-]+ "+pkg+"nodeKey=[0-9a-f]{16}$", flags)
	words := strings.Fields(strings.NewReplacer(pkg+"sourceKey=", "", pkg+"releaseKey=", "", pkg+"nodeKey=", "").Replace(flags))
	require.Len(t, words, 3)
	sourceKey, releaseKey, nodeKey = words[0], words[1], words[2]
	t.Cleanup(func() { sourceKey, releaseKey, nodeKey = "", "", "" })
}

func TestKey_FollowsWhatIsCompiled(t *testing.T) {
	dir := sources(t)
	key := func() string {
		k, err := Key(dir)
		require.NoError(t, err)
		return k
	}
	before := key()
	write(t, dir, "main_test.go", "package main\n")
	write(t, dir, "README.md", "read me\n")
	require.Equal(t, before, key(), "neither a test nor a text is compiled")

	seen := map[string]string{"before": before}
	for _, change := range []struct{ file, content string }{
		{"main.go", "package main\n\nfunc main() {}\n"}, {"go.sum", "sum\n"}, {"sub/sub.go", "package sub\n"}, {"sub/sub.go", "package sub // 2\n"},
	} {
		write(t, dir, change.file, change.content)
		now := key()
		for name, old := range seen {
			require.NotEqual(t, old, now, "%s after %s", change.file, name)
		}
		seen[change.file+change.content] = now
	}

	_, err := Key(t.TempDir())
	require.ErrorContains(t, err, "holds no devcluster sources")
}

func TestBuild_CompilesOnceHoweverManyAsk(t *testing.T) {
	o := Options{SourceDir: sources(t), Getenv: environment(t, nil)}
	var built atomic.Int32
	var all sync.WaitGroup
	dirs := make([]string, 4)
	errs := make([]error, 4)
	for i := range dirs {
		all.Go(func() {
			dirs[i], errs[i] = Build(t.Context(), BuildOptions{Options: o, Command: compiler(&built, compiles)})
		})
	}
	await.Return(t, all.Wait, "all builds return")

	require.NoError(t, errors.Join(errs...))
	for _, dir := range dirs {
		require.Equal(t, dirs[0], dir)
	}
	require.True(t, Complete(dirs[0]))
	require.EqualValues(t, 1, built.Load())
}

func TestBuild_SaysThatItBuildsAndThatItStillDoes(t *testing.T) {
	var built atomic.Int32
	var said bytes.Buffer
	// The fake compiler runs until the file appears, which is created once the sign of life was seen.
	sign := filepath.Join(t.TempDir(), "go-on")
	log := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("still compiling")) {
			if err := os.WriteFile(sign, nil, 0o600); err != nil {
				return 0, err
			}
		}
		return said.Write(p)
	})
	_, err := Build(t.Context(), BuildOptions{
		Options: Options{SourceDir: sources(t), Getenv: environment(t, nil)}, Log: log, Tick: time.Millisecond,
		Command: compiler(&built, `while [ ! -e `+sign+` ]; do sleep 0.01; done; `+compiles),
	})
	require.NoError(t, err)
	require.Regexp(t, `(?s)happens once.*still compiling.*done after`, said.String())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestBuild_LeavesNothingBehindWhenTheCompilerFails(t *testing.T) {
	env := environment(t, nil)
	o := BuildOptions{Options: Options{SourceDir: sources(t), Getenv: env}}
	var built atomic.Int32

	o.Command = compiler(&built, "exit 3")
	_, err := Build(t.Context(), o)
	require.ErrorContains(t, err, "compiling the development cluster")
	entries, err := os.ReadDir(filepath.Join(env(EnvCache), "devcluster"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the lock")

	o.Command = compiler(&built, compiles)
	dir, err := Build(t.Context(), o)
	require.NoError(t, err)
	require.True(t, Complete(dir))
}

func TestBuild_ReplacesADirectoryThatLostAFile(t *testing.T) {
	o := BuildOptions{Options: Options{SourceDir: sources(t), Getenv: environment(t, nil)}}
	var built atomic.Int32
	o.Command = compiler(&built, compiles)
	dir, err := Build(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "etcd")))

	again, err := Build(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.True(t, Complete(dir))
	require.EqualValues(t, 2, built.Load())
}

func TestBuild_DoesNotBuildBehindADirectoryThatWasNamed(t *testing.T) {
	var built atomic.Int32
	_, err := Build(t.Context(), BuildOptions{
		Options: Options{SourceDir: sources(t), Getenv: environment(t, map[string]string{EnvAssets: t.TempDir()})},
		Command: compiler(&built, compiles),
	})
	require.ErrorIs(t, err, ErrMissing)
	require.Zero(t, built.Load())
}

func TestGoBuild_StampsTheVersionOfKubernetes(t *testing.T) {
	command := goBuild(t.Context(), sources(t), "out")
	require.Contains(t, command.Args[len(command.Args)-4],
		"-X k8s.io/component-base/version.gitVersion=v1.99.7 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=99")
	require.Contains(t, command.Env, "CGO_ENABLED=0")
}
