package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// testRelease and testPrograms are of no build: what assembling does with bytes does not depend on what they are.
func testRelease() release {
	return release{
		Name: "registry.example/bullpen", Version: "v1.2.3", Revision: "0123456789abcdef0123456789abcdef01234567",
		Created: time.Unix(1_700_000_000, 0).UTC(), Platforms: []v1.Platform{amd64, arm64},
	}
}

func testPrograms() programs {
	var all programs
	for _, platform := range append(testRelease().Platforms, mac) {
		p := program{
			Platform: platform, Content: []byte("the binary for " + platform.String()), SHA256: string(bytes.Repeat([]byte("a"), 64)),
			Info: &debug.BuildInfo{
				GoVersion: "go1.26.8", Main: debug.Module{Path: "github.com/bullpen-ci/bullpen", Version: "(devel)"},
				Deps: []*debug.Module{
					{Path: "golang.org/x/sys", Version: "v0.49.0", Sum: "h1:abc="},
					{Path: "example.com/old", Version: "v3.0.0+incompatible"},
				},
			},
		}
		if platform.OS == mac.OS {
			p.Info.Deps = append(p.Info.Deps, &debug.Module{Path: "example.com/of-macs", Version: "v1.0.0"})
			all.Mac = p
			continue
		}
		agent := p
		agent.Content, agent.SHA256 = []byte("the agent for "+platform.String()), string(bytes.Repeat([]byte("b"), 64))
		agent.Info = &debug.BuildInfo{GoVersion: p.Info.GoVersion, Main: p.Info.Main}
		all.Own = append(all.Own, pair{Product: p, Agent: agent})
	}
	return all
}

func testSet(t *testing.T) set {
	t.Helper()
	s, err := assemble(testRelease(), testPrograms())
	require.NoError(t, err)
	return s
}

func TestAssemble_IsAFunctionOfSourcesAlone(t *testing.T) {
	first := testSet(t)
	local := time.Local
	time.Local = time.FixedZone("elsewhere", 9*60*60)
	t.Cleanup(func() { time.Local = local })
	second := testSet(t)
	require.Equal(t, digest(t, first.Index), digest(t, second.Index))
	for i, m := range first.Members {
		require.Equal(t, digest(t, m.Referrer), digest(t, second.Members[i].Referrer))
	}
	// The layer as it was when this test was written: a change of the image's content changes this.
	layers, err := first.Members[0].Image.Layers()
	require.NoError(t, err)
	id, err := layers[1].DiffID()
	require.NoError(t, err)
	require.Equal(t, "sha256:89f2ea0a5ab076c2b3e090de8344d4093be8e04a370c1bd8e054e263d2ff6599", id.String())

	others, err := first.Members[1].Image.Layers()
	require.NoError(t, err)
	require.Equal(t, digest(t, layers[0]), digest(t, others[0]), "a registry keeps what is for Macs once")

	later := testRelease()
	later.Created = later.Created.Add(time.Second)
	third, err := assemble(later, testPrograms())
	require.NoError(t, err)
	require.NotEqual(t, digest(t, first.Index), digest(t, third.Index), "the comparison above can fail")
}

func digest(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	require.NoError(t, err)
	return d.String()
}

func TestAssemble_OneIndexOfOCIImages(t *testing.T) {
	s := testSet(t)
	manifest, err := s.Index.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, types.OCIImageIndex, manifest.MediaType)
	require.Equal(t, "v1.2.3", manifest.Annotations["org.opencontainers.image.version"])
	require.Len(t, manifest.Manifests, 2)
	for i, entry := range manifest.Manifests {
		require.Equal(t, types.OCIManifestSchema1, entry.MediaType)
		require.Equal(t, testRelease().Platforms[i], *entry.Platform)
	}
}

func TestImage_RunsAsNobodyAndNamesItsOrigin(t *testing.T) {
	for i, m := range testSet(t).Members {
		config, err := m.Image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, testRelease().Platforms[i].Architecture, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User, "a number, or no kubelet can check runAsNonRoot")
		require.Equal(t, []string{"/usr/local/bin/bullpen"}, config.Config.Entrypoint)
		require.Empty(t, config.Config.Cmd)
		require.Equal(t, testRelease().Created, config.Created.UTC())
		for label, value := range map[string]string{
			"title": "bullpen", "version": "v1.2.3", "revision": testRelease().Revision, "created": "2023-11-14T22:13:20Z", "licenses": "Apache-2.0",
			"source": "https://github.com/bullpen-ci/bullpen",
		} {
			require.Equal(t, value, config.Config.Labels["org.opencontainers.image."+label])
		}
		manifest, err := m.Image.Manifest()
		require.NoError(t, err)
		require.Equal(t, types.OCIConfigJSON, manifest.Config.MediaType)
		require.Equal(t, types.OCILayer, manifest.Layers[0].MediaType)
	}
}

// entries reads every layer of an image.
func entries(t *testing.T, image v1.Image) (headers []*tar.Header, contents [][]byte) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		raw, err := layer.Uncompressed()
		require.NoError(t, err)
		reader := tar.NewReader(raw)
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			content, err := io.ReadAll(reader)
			require.NoError(t, err)
			headers, contents = append(headers, header), append(contents, content)
		}
		require.NoError(t, raw.Close())
	}
	return headers, contents
}

func TestImage_HoldsTwoProgramsAndNoShell(t *testing.T) {
	for i, m := range testSet(t).Members {
		checkTree(t, m.Image, testPrograms().Own[i], testPrograms().Mac, testRelease().Created)
	}
}

// checkTree compares an image with what may be in one.
func checkTree(t *testing.T, image v1.Image, own pair, forMacs program, created time.Time) {
	t.Helper()
	headers, contents := entries(t, image)
	var names []string
	for i, header := range headers {
		names = append(names, header.Name)
		require.Equal(t, created.Unix(), header.ModTime.Unix(), header.Name)
		require.Zero(t, header.Uid+header.Gid, header.Name)
		require.Empty(t, header.Uname+header.Gname, header.Name)
		require.Zero(t, header.Mode&0o7022, "%s: nobody but root writes, and nothing gives rights", header.Name)
		require.Contains(t, []byte{tar.TypeReg, tar.TypeDir}, header.Typeflag, header.Name)
		if header.Typeflag == tar.TypeReg {
			require.Equal(t, header.Name == binaryPath || header.Name == agentPath, header.Mode&0o111 != 0, "%s: two programs", header.Name)
		}
		switch header.Name {
		case binaryPath:
			require.True(t, bytes.Equal(own.Product.Content, contents[i]))
		case agentPath:
			require.True(t, bytes.Equal(own.Agent.Content, contents[i]))
		case macPath:
			require.True(t, bytes.Equal(forMacs.Content, contents[i]))
		}
	}
	require.Equal(t, []string{macPath, "etc/", "etc/group", "etc/passwd", "usr/", "usr/local/", "usr/local/bin/", binaryPath, agentPath}, names)
}

// limited is a context for commands, with a bound (TEN-9): this module does not depend on test/kit/await.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
