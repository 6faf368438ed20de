package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

// product is Bullpen itself, for this machine's architecture, compiled once for all tests.
var product = sync.OnceValues(func() (program, error) {
	r := testRelease()
	r.Platforms = []v1.Platform{hostPlatform()}
	programs, err := buildAll(context.Background(), "..", r)
	if err != nil {
		return program{}, err
	}
	return programs[0], nil
})

func hostPlatform() v1.Platform {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

func productImage(t *testing.T) (program, member) {
	t.Helper()
	built, err := product()
	require.NoError(t, err)
	s, err := assemble(testRelease(), []program{built})
	require.NoError(t, err)
	return built, s.Members[0]
}

// What was compiled before is taken from Go's cache, which knows no folders with -trimpath; that compiling from nothing
// gives the same is shown with a smaller program (TestCompile_IsTheSameInEveryFolderAndForEverybody).
func TestProduct_IsTheSameInEveryFolder(t *testing.T) {
	built, image := productImage(t)
	elsewhere := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
	}
	for _, name := range []string{"api", "charts", "cmd", "examples", "internal"} {
		require.NoError(t, os.CopyFS(filepath.Join(elsewhere, name), os.DirFS(filepath.Join("..", name))))
	}
	r := testRelease()
	r.Platforms = []v1.Platform{hostPlatform()}
	again, err := buildAll(t.Context(), elsewhere, r)
	require.NoError(t, err)
	require.Equal(t, built.SHA256, again[0].SHA256)
	s, err := assemble(testRelease(), again)
	require.NoError(t, err)
	require.Equal(t, digest(t, image.Image), digest(t, s.Members[0].Image))
	require.Equal(t, digest(t, image.Referrer), digest(t, s.Members[0].Referrer))
}

func TestProduct_ItsSBOMNamesEveryModule(t *testing.T) {
	built, image := productImage(t)
	checkSchema(t, image.SBOM)
	bom := decode(t, image.SBOM)
	require.Len(t, *bom.Components, len(built.Info.Deps)+1, "the modules, and Go's own library")
	found := packages(bom)
	for _, module := range built.Info.Deps {
		require.Contains(t, found, purl(module.Path, module.Version))
		require.NotContains(t, module.Path, "actionlint", "development parts do not ship")
	}
	require.Greater(t, len(found), 30)
}
