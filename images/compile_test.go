package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// Both builds start from nothing: each has a cache of its own. The second runs with another user's settings.
func TestCompile_IsTheSameInEveryFolderAndForEverybody(t *testing.T) {
	source := filepath.Join("testdata", "fixture")
	first := build(t, source, amd64, map[string]string{"GOCACHE": t.TempDir()})
	cache := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "a", "rather", "different", "folder")
	require.NoError(t, os.CopyFS(elsewhere, os.DirFS(source)))
	second := build(t, elsewhere, amd64, map[string]string{
		"GOCACHE": cache, "GOFLAGS": "-tags=mine -buildvcs=true", "GOAMD64": "v3", "GOFIPS140": "latest", "CGO_ENABLED": "1",
		"GOOS": "plan9", "GOWORK": "off", "TMPDIR": t.TempDir(), "TZ": "Asia/Tokyo", "LC_ALL": "C",
	})
	require.Equal(t, first.SHA256, second.SHA256)
	for name, value := range map[string]string{"-trimpath": "true", "CGO_ENABLED": "0", "GOAMD64": "v1", "-tags": "production"} {
		require.Equal(t, value, setting(first, name), name)
	}
	require.Empty(t, setting(first, "vcs.revision"), "a binary must not depend on what else is in the repository")

	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		file := filepath.Join(t.TempDir(), "fixture")
		require.NoError(t, os.WriteFile(file, second.Content, 0o700))
		output, err := exec.CommandContext(limited(t), file).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "v1.2.3 example.com/fixture/main.go "+first.Info.GoVersion+"\n", string(output))
	}

	other := build(t, source, arm64, map[string]string{"GOCACHE": cache})
	require.NotEqual(t, first.SHA256, other.SHA256)
}

func build(t *testing.T, source string, platform v1.Platform, environment map[string]string) program {
	t.Helper()
	built, err := tryBuild(t, source, platform, environment)
	require.NoError(t, err)
	return built
}

func tryBuild(t *testing.T, source string, platform v1.Platform, environment map[string]string) (program, error) {
	for name, value := range environment {
		before, set := os.LookupEnv(name)
		require.NoError(t, os.Setenv(name, value)) //nolint:usetesting // undone below: one test builds several times
		defer func() {
			if set {
				_ = os.Setenv(name, before) //nolint:usetesting // as above
			} else {
				_ = os.Unsetenv(name)
			}
		}()
	}
	file := filepath.Join(t.TempDir(), "fixture")
	if err := compile(context.WithoutCancel(t.Context()), source, ".", "v1.2.3", platform, file); err != nil {
		return program{}, err
	}
	return inspect(file, platform)
}

func setting(p program, name string) string {
	for _, s := range p.Info.Settings {
		if s.Key == name {
			return s.Value
		}
	}
	return ""
}

func TestInspect_RefusesWhatCannotRunInTheImage(t *testing.T) {
	own, err := os.Executable()
	require.NoError(t, err)
	platform := v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	if runtime.GOOS == "linux" {
		_, err = inspect("/bin/sh", platform)
		require.ErrorContains(t, err, "dynamically")
		other := arm64
		if runtime.GOARCH == "arm64" {
			other = amd64
		}
		_, err = inspect(own, other)
		require.ErrorContains(t, err, "it is for EM_")
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	_, err = inspect(text, platform)
	require.Error(t, err)
}

func TestCompile_SaysWhatTheCompilerSaid(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/broken\n\ngo "+version(t)+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nothing() }\n"), 0o600))
	_, err := tryBuild(t, dir, amd64, nil)
	require.ErrorContains(t, err, "undefined: nothing")
	_, err = tryBuild(t, t.TempDir(), amd64, nil)
	require.ErrorContains(t, err, "finding the sources")
}

func version(t *testing.T) string {
	t.Helper()
	v, err := goVersion("go.mod")
	require.NoError(t, err)
	return v
}

// The tool compresses with Go's own library, so its toolchain is the product's, and the digests are one toolchain's.
func TestToolchain_IsTheProducts(t *testing.T) {
	for _, other := range []string{"../go.mod", "testdata/fixture/go.mod"} {
		v, err := goVersion(other)
		require.NoError(t, err)
		require.Equal(t, version(t), v, other)
	}
}

// A binary of Go's linker for Macs is signed and needs only macOS; a program for another system is refused.
func TestInspect_AcceptsWhatRunsOnMacs(t *testing.T) {
	built := build(t, filepath.Join("testdata", "fixture"), mac, nil)
	require.NotEmpty(t, built.Content)
	require.Equal(t, "darwin", setting(built, "GOOS"))
	require.Equal(t, "arm64", setting(built, "GOARCH"))
}
