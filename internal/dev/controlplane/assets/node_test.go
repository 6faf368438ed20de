package assets

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// nodeSources are the devcluster's with the node's module in it.
func nodeSources(t *testing.T) string {
	t.Helper()
	dir := sources(t)
	write(t, dir, "node/go.mod", "module github.com/bullpen-ci/bullpen/devcluster/node\n")
	write(t, dir, "node/init/main.go", "package main\n")
	return dir
}

// partCompiler stands in for `go build` of a node's programs, and notes which it was asked for.
func partCompiler(asked *sync.Map, script string) func(context.Context, string, part, string) *exec.Cmd {
	return func(ctx context.Context, _ string, p part, output string) *exec.Cmd {
		count, _ := asked.LoadOrStore(p.name, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		return exec.CommandContext(ctx, "sh", "-c", script, "compiler", output)
	}
}

func asked(counts *sync.Map) map[string]int {
	all := map[string]int{}
	counts.Range(func(name, count any) bool {
		all[name.(string)] = int(count.(*atomic.Int32).Load())
		return true
	})
	return all
}

func TestKey_TheNodesSourcesAreNotTheControlPlanes(t *testing.T) {
	dir := nodeSources(t)
	plane, err := Key(dir)
	require.NoError(t, err)
	node, err := sourcesKey(dir, nodeRecipe, "")
	require.NoError(t, err)

	write(t, dir, "node/init/main.go", "package main // changed\n")
	again, err := Key(dir)
	require.NoError(t, err)
	require.Equal(t, plane, again)
	changed, err := sourcesKey(dir, nodeRecipe, "")
	require.NoError(t, err)
	require.NotEqual(t, node, changed)

	write(t, dir, "main.go", "package main // changed\n")
	again, err = Key(dir)
	require.NoError(t, err)
	require.NotEqual(t, plane, again)
	both, err := sourcesKey(dir, nodeRecipe, "")
	require.NoError(t, err)
	require.NotEqual(t, changed, both, "the kubelet is compiled from the control plane's module")
}

func TestBuildNode_CompilesOnceHoweverManyAsk(t *testing.T) {
	var counts sync.Map
	o := BuildOptions{Options: Options{SourceDir: nodeSources(t), Getenv: environment(t, nil)}, part: partCompiler(&counts, compiles)}
	t.Setenv("PATH", "/usr/bin:/bin") // a machine without a node's programs
	_, err := FindNode(o.Options)
	require.ErrorIs(t, err, ErrNodeMissing)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			dir, err := BuildNode(t.Context(), o)
			if err != nil || len(lacking(dir, NodeNames())) > 0 {
				t.Errorf("%s: %v", dir, err)
			}
		})
	}
	await.Return(t, all.Wait, "all builds return")
	want := map[string]int{}
	for _, p := range parts() {
		want[p.name] = 1
	}
	require.Equal(t, want, asked(&counts))
	dir, err := FindNode(o.Options)
	require.NoError(t, err)
	target, err := os.Readlink(filepath.Join(dir, "kube-proxy"))
	require.NoError(t, err)
	require.Equal(t, "kubelet", target)
}

func TestBuildNode_SaysEachPartAndItsSize(t *testing.T) {
	var log strings.Builder
	var counts sync.Map
	script := `head -c 3145728 /dev/zero > "$1" && chmod +x "$1"`
	o := BuildOptions{Options: Options{SourceDir: nodeSources(t), Getenv: environment(t, nil)}, part: partCompiler(&counts, script), Log: &log}
	t.Setenv("PATH", "/usr/bin:/bin")
	_, err := BuildNode(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, log.String(), "node: 3 of 9, kubelet and kube-proxy.\n")
	require.Contains(t, log.String(), "node: kubelet has 3 MiB, after ")
	require.Contains(t, log.String(), "node: done after ")
}

func TestBuildNode_LeavesNothingBehindWhenAPartFails(t *testing.T) {
	var counts sync.Map
	getenv := environment(t, nil)
	o := BuildOptions{Options: Options{SourceDir: nodeSources(t), Getenv: getenv},
		part: partCompiler(&counts, `case "$1" in */runc) exit 3;; *) `+compiles+`;; esac`)}
	t.Setenv("PATH", "/usr/bin:/bin")
	_, err := BuildNode(t.Context(), o)
	require.ErrorContains(t, err, "compiling runc")
	require.ErrorContains(t, err, "scripts/prerequisites.sh node")
	entries, err := os.ReadDir(filepath.Join(getenv(EnvCache), "node"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, ".lock", entries[0].Name())
}

// nodeOnPath makes a PATH on which every program says the given version.
func nodeOnPath(t *testing.T, but map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	says := map[string]string{
		"kubelet": "Kubernetes v1.99.7", "kube-proxy": "Kubernetes v1.99.7", "containerd": "containerd github.com/containerd/containerd/v2 v2.4.2 0",
		"containerd-shim-runc-v2": "containerd-shim-runc-v2: containerd v2.4.2", "ctr": "ctr github.com/containerd/containerd/v2 v2.4.2", "runc": "runc version 1.5.2",
		"coredns": "CoreDNS-1.14.7", "kube-router": "Running kube-router version v2.1.0",
	}
	for name, line := range but {
		says[name] = line
	}
	for name, line := range says {
		if line != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+line+"'\n"), 0o755))
		}
	}
	return dir + ":/usr/bin:/bin"
}

func TestBuildNode_UsesACompleteSetOnPath(t *testing.T) {
	compiled := make([]string, 0, len(parts()))
	for _, p := range parts() {
		compiled = append(compiled, p.name)
	}
	for name, c := range map[string]struct {
		but  map[string]string
		want []string
	}{
		"complete":                     {want: []string{"node-init", "pause"}},
		"another version of kubelet":   {but: map[string]string{"kubelet": "Kubernetes v1.98.0"}, want: compiled},
		"runc without user namespaces": {but: map[string]string{"runc": "runc version 1.1.5+ds1"}, want: compiled},
		"no CoreDNS":                   {but: map[string]string{"coredns": ""}, want: compiled},
	} {
		t.Run(name, func(t *testing.T) {
			var counts sync.Map
			o := BuildOptions{Options: Options{SourceDir: nodeSources(t), Getenv: environment(t, nil)}, part: partCompiler(&counts, compiles)}
			path := nodeOnPath(t, c.but)
			t.Setenv("PATH", path)
			dir, err := BuildNode(t.Context(), o)
			require.NoError(t, err)
			require.ElementsMatch(t, c.want, keys(asked(&counts)))
			target, err := os.Readlink(filepath.Join(dir, "kube-proxy"))
			require.NoError(t, err)
			require.Equal(t, name == "complete", strings.HasPrefix(target, strings.Split(path, ":")[0]))
		})
	}
}

func keys(m map[string]int) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestFindNode_RefusesADirectoryThatIsNotComplete(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubelet"), nil, 0o755))
	for _, find := range []func(Options) (string, error){FindNode, func(o Options) (string, error) { return BuildNode(t.Context(), BuildOptions{Options: o}) }} {
		_, err := find(Options{Getenv: environment(t, map[string]string{EnvNode: dir})})
		require.ErrorIs(t, err, ErrNodeMissing)
		require.ErrorContains(t, err, "lacks node-init, pause, kube-proxy, containerd")
	}
}
