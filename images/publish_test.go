package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// hashes are the files below a directory, by name.
func hashes(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		relative, err := filepath.Rel(dir, path)
		found[relative] = hex.EncodeToString(sum[:])
		return err
	}))
	return found
}

func TestWrite_IsTheSameInEveryFolder(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(second, "bullpen-v0.9.oci.tar"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(second, "chart.tgz"), nil, 0o600))
	require.NoError(t, write(first, testRelease(), testSet(t)))
	require.NoError(t, write(second, testRelease(), testSet(t)))
	require.FileExists(t, filepath.Join(second, "chart.tgz"), "another's")
	require.NoError(t, os.Remove(filepath.Join(second, "chart.tgz")))
	made := hashes(t, first)
	require.Equal(t, made, hashes(t, second), "and what an older build left is gone")
	require.NoError(t, write(second, testRelease(), testSet(t)))
	require.Equal(t, made, hashes(t, second), "twice into one directory")

	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	for _, file := range []string{"bullpen-v1.2.3.oci.tar", "bullpen-v1.2.3-linux-amd64.cdx.json", "bullpen-v1.2.3-linux-arm64.cdx.json"} {
		require.Contains(t, string(sums), made[file]+"  "+file+"\n")
	}
}

// containerd makes an image of every manifest that an archive's index lists, and unpacks it.
func TestWrite_TheArchiveListsTheImagesAlone(t *testing.T) {
	dist := t.TempDir()
	s := testSet(t)
	require.NoError(t, write(dist, testRelease(), s))
	unpacked := t.TempDir()
	unpack(t, filepath.Join(dist, "bullpen-v1.2.3.oci.tar"), unpacked)
	listed := readLayout(t, unpacked)
	require.Len(t, listed.Manifests, 1)
	require.Equal(t, digest(t, s.Index), listed.Manifests[0].Digest.String())
	require.Equal(t, map[string]string{
		"io.containerd.image.name": "registry.example/bullpen:v1.2.3", "org.opencontainers.image.ref.name": "v1.2.3",
	}, listed.Manifests[0].Annotations)
	require.FileExists(t, filepath.Join(unpacked, "oci-layout"))

	whole := readLayout(t, filepath.Join(dist, "oci"))
	require.Len(t, whole.Manifests, 3)
	require.Equal(t, listed.Manifests[0], whole.Manifests[0])
	for i, m := range s.Members {
		require.Equal(t, digest(t, m.Referrer), whole.Manifests[i+1].Digest.String())
	}
}

func readLayout(t *testing.T, dir string) *v1.IndexManifest {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	images, err := index.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Index(images), "every blob is there, and is what its name says")
	return manifest
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.Equal(t, testRelease().Created.Unix(), header.ModTime.Unix())
		require.Zero(t, header.Uid+header.Gid)
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.Mkdir(path, 0o700))
			continue
		}
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
}

// With the referrers API of the distribution specification, and with the tag that stands in for it.
func TestPublish_ARegistryKnowsWhatIsInEachImage(t *testing.T) {
	for title, api := range map[string]bool{"by the API": true, "by a tag": false} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(api),
				registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
			t.Cleanup(server.Close)
			repository := strings.TrimPrefix(server.URL, "http://") + "/team/bullpen"
			s := testSet(t)
			pinned, err := publish(t.Context(), repository, testRelease(), s)
			require.NoError(t, err)
			require.Equal(t, repository+":v1.2.3@"+digest(t, s.Index), pinned)

			reference, err := name.ParseReference(repository + ":v1.2.3")
			require.NoError(t, err)
			index, err := remote.Index(reference)
			require.NoError(t, err)
			require.Equal(t, digest(t, s.Index), digest(t, index))
			require.NoError(t, validate.Index(index))
			for _, m := range s.Members {
				of := reference.Context().Digest(digest(t, m.Image))
				referrers, err := remote.Referrers(of)
				require.NoError(t, err)
				manifest, err := referrers.IndexManifest()
				require.NoError(t, err)
				require.Len(t, manifest.Manifests, 1)
				if !api { // the registry of this test names the config's type in its answer
					require.Equal(t, "application/vnd.cyclonedx+json", manifest.Manifests[0].ArtifactType)
				}
				require.Equal(t, digest(t, m.Referrer), manifest.Manifests[0].Digest.String())
				require.Equal(t, m.SBOM, pullBlob(t, reference.Context().Digest(digest(t, m.Referrer))))
			}
			again, err := publish(t.Context(), repository, testRelease(), s)
			require.NoError(t, err)
			require.Equal(t, pinned, again)
		})
	}
}

func pullBlob(t *testing.T, reference name.Digest) []byte {
	t.Helper()
	artifact, err := remote.Image(reference)
	require.NoError(t, err)
	manifest, err := artifact.Manifest()
	require.NoError(t, err)
	require.Equal(t, "application/vnd.cyclonedx+json", manifest.ArtifactType)
	require.Len(t, manifest.Layers, 1)
	layer, err := remote.Layer(reference.Context().Digest(manifest.Layers[0].Digest.String()))
	require.NoError(t, err)
	raw, err := layer.Compressed()
	require.NoError(t, err)
	defer raw.Close()
	content, err := io.ReadAll(raw)
	require.NoError(t, err)
	return content
}

func TestPublish_TheTagComesLast(t *testing.T) {
	whole := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPut && bytes.Contains(body, []byte("subject")) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		whole.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/bullpen"
	s := testSet(t)
	_, err := publish(t.Context(), repository, testRelease(), s)
	require.ErrorContains(t, err, "pushing an SBOM to "+repository)
	for reference, there := range map[string]bool{"@" + digest(t, s.Index): true, ":v1.2.3": false} {
		parsed, err := name.ParseReference(repository + reference)
		require.NoError(t, err)
		_, err = remote.Head(parsed)
		require.Equal(t, there, err == nil, reference)
	}
	_, err = publish(t.Context(), "Not A Repository", testRelease(), s)
	require.ErrorContains(t, err, "-push")
}
