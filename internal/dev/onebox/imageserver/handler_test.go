package imageserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// node is the content of a node with one image, as containerd keeps it.
func node(t *testing.T) (*Handler, v1.Image) {
	t.Helper()
	dir := t.TempDir()
	image, err := random.Image(1000, 1)
	require.NoError(t, err)
	store := func(digest v1.Hash, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, digest.Hex), content, 0o600))
	}
	manifest, err := image.RawManifest()
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	store(digest, manifest)
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	name, err := image.ConfigName()
	require.NoError(t, err)
	store(name, config)
	layers, err := image.Layers()
	require.NoError(t, err)
	layer, err := layers[0].Digest()
	require.NoError(t, err)
	compressed, err := layers[0].Compressed()
	require.NoError(t, err)
	content, err := io.ReadAll(compressed)
	require.NoError(t, err)
	store(layer, content)
	images := func(context.Context) ([]realnode.NodeImage, error) {
		return []realnode.NodeImage{{Name: "docker.io/library/postgres:17", Digest: digest.String()}}, nil
	}
	return &Handler{Images: images, Content: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, image
}

// asMirror asks as containerd and the controller ask a mirror of Docker Hub.
type asMirror struct{ next http.RoundTripper }

func (m asMirror) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.RawQuery = "ns=docker.io"
	return m.next.RoundTrip(request)
}

// A client of registries that we did not write reads manifest and configuration, by tag and by digest, and no layer.
func TestHandler_ServesWhatAClientOfRegistriesReads(t *testing.T) {
	handler, image := node(t)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	digest, err := image.Digest()
	require.NoError(t, err)
	for _, reference := range []string{":17", "@" + digest.String()} {
		ref, err := name.ParseReference(host + "/library/postgres" + reference)
		require.NoError(t, err)
		read, err := remote.Image(ref, remote.WithTransport(asMirror{http.DefaultTransport}))
		require.NoError(t, err)
		config, err := read.ConfigFile()
		require.NoError(t, err)
		wanted, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, wanted, config)
		head, err := remote.Head(ref, remote.WithTransport(asMirror{http.DefaultTransport}))
		require.NoError(t, err)
		require.Equal(t, digest, head.Digest)
		layers, err := read.Layers()
		require.NoError(t, err)
		_, err = layers[0].Compressed()
		require.ErrorContains(t, err, "the node has no such content")
	}
}

func TestHandler_Refuses(t *testing.T) {
	handler, _ := node(t)
	secret := filepath.Join(filepath.Dir(handler.Content), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(handler.Content, "unfinished"), []byte("{}"), 0o600))
	ask := func(method, path string) *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		return response
	}
	for path, status := range map[string]int{
		"/v2/": 200,
		"/v2/library/postgres/manifests/17?ns=docker.io":                                     200,
		"/v2/library/postgres/manifests/16?ns=docker.io":                                     404,
		"/v2/library/postgres/manifests/17?ns=ghcr.io":                                       404, // another registry's
		"/v2/library/postgres/manifests/17":                                                  404,
		"/v2/library/postgres/manifests/sha256:" + strings.Repeat("a", 64) + "?ns=docker.io": 404,
		"/v2/library/postgres/blobs/sha256:" + strings.Repeat("a", 64):                       404,
		"/v2/library/postgres/blobs/..%2fsecret":                                             404,
		"/v2/library/postgres/manifests/..%2fsecret?ns=docker.io":                            404,
		"/v2/library/postgres/blobs/sha256:..%2fsecret":                                      404,
		"/v2/library/postgres/blobs/unfinished":                                              404, // no content by its digest
		"/v2/library/postgres/tags/list":                                                     404,
		"/":                                                                                  404,
	} {
		require.Equal(t, status, ask(http.MethodGet, path).Code, path)
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPut, "/v2/library/postgres/manifests/17").Code)
	handler.Images = func(context.Context) ([]realnode.NodeImage, error) { return nil, errors.New("it restarts") }
	require.Equal(t, http.StatusServiceUnavailable, ask(http.MethodGet, "/v2/library/postgres/manifests/17?ns=docker.io").Code)
}

func TestManifestType_IsWhatTheManifestSaysOrOCI(t *testing.T) {
	require.Equal(t, string(types.DockerManifestList), manifestType([]byte(`{"mediaType":"application/vnd.docker.distribution.manifest.list.v2+json","manifests":[]}`)))
	require.Equal(t, string(types.OCIImageIndex), manifestType([]byte(`{"manifests":[]}`)))
	require.Equal(t, string(types.OCIManifestSchema1), manifestType([]byte(`{"config":{}}`)))
}
