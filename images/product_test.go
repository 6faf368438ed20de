package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

// product is Bullpen itself, for this machine's architecture and for Macs, compiled once for all tests.
var product = sync.OnceValues(func() (programs, error) {
	r := testRelease()
	r.Platforms = []v1.Platform{hostPlatform()}
	return buildAll(context.Background(), "..", r)
})

func hostPlatform() v1.Platform {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

func productImage(t *testing.T) (pair, member) {
	t.Helper()
	built, err := product()
	require.NoError(t, err)
	s, err := assemble(testRelease(), built)
	require.NoError(t, err)
	return built.Own[0], s.Members[0]
}

// Packages that were compiled before come from Go's cache, which knows no directories with -trimpath; a smaller program shows that
// compiling from nothing gives the same (TestCompile_IsTheSameInEveryFolderAndForEverybody).
func TestProduct_IsTheSameInEveryFolder(t *testing.T) {
	if os.Getenv("BULLPEN_TEST_DEEP") == "" {
		t.Skip("runs in make test-deep; the smaller instance is TestCompile_IsTheSameInEveryFolderAndForEverybody")
	}
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
	require.Equal(t, built.Product.SHA256, again.Own[0].Product.SHA256)
	require.Equal(t, built.Agent.SHA256, again.Own[0].Agent.SHA256)
	s, err := assemble(testRelease(), again)
	require.NoError(t, err)
	require.Equal(t, digest(t, image.Image), digest(t, s.Members[0].Image))
	require.Equal(t, digest(t, image.Referrer), digest(t, s.Members[0].Referrer))
}

func TestProduct_ItsSBOMNamesEveryModule(t *testing.T) {
	built, image := productImage(t)
	checkSchema(t, image.SBOM)
	bom := decode(t, image.SBOM)
	all, err := product()
	require.NoError(t, err)
	modules := map[string]bool{}
	for _, module := range slices.Concat(built.Product.Info.Deps, built.Agent.Info.Deps, all.Mac.Info.Deps) {
		modules[module.Path] = true
	}
	require.Len(t, *bom.Components, len(modules)+3, "the modules, Go's own library, the agent, and the binary for Macs")
	found := packages(bom)
	for _, module := range built.Product.Info.Deps {
		require.Contains(t, found, purl(module.Path, module.Version))
		require.NotContains(t, module.Path, "actionlint", "development parts do not ship")
	}
	require.Greater(t, len(found), 30)
}

// bullpen-migrate, which an administrator runs once, is not in an image. Names of functions are in a binary without symbols, too.
func TestProduct_HasNoPartOfTheMigration(t *testing.T) {
	all, err := product()
	require.NoError(t, err)
	built := []program{all.Mac}
	for _, pair := range all.Own {
		built = append(built, pair.Product)
	}
	for _, built := range built {
		require.True(t, bytes.Contains(built.Content, []byte("bullpen/internal/server/dispatch")), "this looks for names that no binary has")
		require.False(t, bytes.Contains(built.Content, []byte("internal/cli/arcmigration")), "test/architecture says what cmd/bullpen may not depend on")
	}
}

// Macs with Apple silicon start only signed programs, and the image has no signer.
func TestProduct_HasABinaryForMacs(t *testing.T) {
	all, err := product()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mac")
	require.NoError(t, os.WriteFile(file, all.Mac.Content, 0o600))
	require.NoError(t, checkMac(file, mac))
	require.Error(t, checkStatic(file, hostPlatform()))
	own := filepath.Join(t.TempDir(), "own")
	require.NoError(t, os.WriteFile(own, all.Own[0].Product.Content, 0o600))
	require.Error(t, checkMac(own, mac), "a program for another system is refused")
	headers, contents := entries(t, func() v1.Image { _, m := productImage(t); return m.Image }())
	require.Equal(t, macPath, headers[0].Name)
	require.Equal(t, all.Mac.Content, contents[0])
	t.Logf("for Macs: %d bytes; of the image's own platform: %d", len(all.Mac.Content), len(all.Own[0].Product.Content))
}
