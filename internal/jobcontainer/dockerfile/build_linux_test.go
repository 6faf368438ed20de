package dockerfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// writeLayout writes an image as a client of BuildKit does, by a library that is not ours.
func writeLayout(t testing.TB, dir string, config v1.Config, kind types.MediaType, layers ...[]byte) v1.Image {
	t.Helper()
	built := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	built = mutate.ConfigMediaType(built, types.OCIConfigJSON)
	for _, content := range layers {
		var err error
		built, err = mutate.AppendLayers(built, static.NewLayer(content, kind))
		require.NoError(t, err)
	}
	file, err := built.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.Config, file.OS, file.Architecture = config, "linux", "amd64"
	built, err = mutate.ConfigFile(built, file)
	require.NoError(t, err)
	path, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(built))
	return built
}

func TestReadLayout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	written := writeLayout(t, dir, v1.Config{
		Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Env: []string{"A=b"}, User: "7:8", WorkingDir: "/w", StopSignal: "SIGINT",
		Volumes: map[string]struct{}{"/b": {}, "/a": {}},
	}, types.OCIUncompressedLayer, archive(t, file{name: "a"}), archive(t, file{name: "b"}))
	digest, err := written.Digest()
	require.NoError(t, err)
	got, err := readLayout(dir)
	require.NoError(t, err)
	require.Equal(t, digest.String(), got.digest)
	require.Equal(t, jobcontainer.ImageConfig{
		OS: "linux", Architecture: "amd64", Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Env: []string{"A=b"}, User: "7:8", WorkingDir: "/w",
		StopSignal: "SIGINT", Volumes: []string{"/a", "/b"},
	}, got.config)
	require.Len(t, got.layers, 2)
	first, err := os.ReadFile(got.layers[0])
	require.NoError(t, err)
	require.Equal(t, archive(t, file{name: "a"}), first)
}

// A build with attestations has an index in the layout's index.
func TestReadLayout_FollowsAnIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	written := writeLayout(t, dir, v1.Config{User: "9"}, types.OCIUncompressedLayer)
	path, err := layout.Write(filepath.Join(dir, "2"), empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendIndex(mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: written})))
	got, err := readLayout(filepath.Join(dir, "2"))
	require.NoError(t, err)
	require.Equal(t, "9", got.config.User)
}

func TestReadLayout_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	index := func(t *testing.T, content any) string {
		dir := t.TempDir()
		text, err := json.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), text, 0o600))
		return dir
	}
	manifest := func(digest string) map[string]any {
		return map[string]any{"manifests": []any{map[string]any{"digest": digest}}}
	}
	for want, dir := range map[string]string{
		"no such file":              t.TempDir(),
		"no manifest":               index(t, map[string]any{}),
		"invalid digest":            index(t, manifest("sha256:../../../../etc/passwd")),
		"invalid digest: \"\"":      index(t, manifest("")),
		"no such file or directory": index(t, manifest("sha256:"+strings.Repeat("0", 64))),
		"cannot unmarshal":          index(t, "text"),
	} {
		_, err := readLayout(dir)
		require.ErrorContains(t, err, want)
	}
	dir := t.TempDir()
	writeLayout(t, dir, v1.Config{}, types.OCILayer, []byte("compressed"))
	_, err := readLayout(dir)
	require.ErrorContains(t, err, `a layer of type "application/vnd.oci.image.layer.v1.tar+gzip"`)
}

// FuzzReadLayout: the frontend that builds is one that a repository may choose.
func FuzzReadLayout(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:x"}]}`), []byte(`{"layers":[{}]}`))
	f.Add([]byte(`{}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, index, manifest []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600))
		file := filepath.Join(dir, "manifest")
		require.NoError(t, os.WriteFile(file, manifest, 0o600))
		_, _ = readLayout(dir)
		got, err := readManifest(dir, file, "")
		for _, layer := range got.layers {
			require.NoError(t, err)
			require.Equal(t, filepath.Join(dir, "blobs", "sha256"), filepath.Dir(layer))
		}
	})
}
