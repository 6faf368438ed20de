package realnode

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// archiveOf is an archive of files, in this order: path, content, path, content.
func archiveOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}))
		_, err := w.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func dockerArchive(t testing.TB, arch string) []byte {
	return archiveOf(t, "layer.tar", "not JSON", "config.json", `{"architecture":"`+arch+`","os":"linux"}`,
		"manifest.json", `[{"Config":"config.json","RepoTags":["registry.test/a:1","registry.test/a:2"],"Layers":["layer.tar"]}]`)
}

func ociArchive(t testing.TB) []byte {
	return archiveOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`,
		"index.json", `{"manifests":[{"digest":"sha256:aa","annotations":{"io.containerd.image.name":"registry.test/b:1","org.opencontainers.image.ref.name":"1"}}]}`,
		"blobs/sha256/aa", `{"manifests":[{"digest":"sha256:bb","platform":{"os":"linux","architecture":"arm64"}},{"digest":"sha256:cc","platform":{"os":"linux","architecture":"amd64"}},
			{"digest":"sha256:dd","platform":{"os":"unknown","architecture":"unknown"}}]}`,
		"blobs/sha256/bb", `{"config":{"digest":"sha256:ee"}}`, "blobs/sha256/ee", `{"architecture":"arm64","os":"linux"}`)
}

func TestInspectArchive_NamesImagesAndPlatforms(t *testing.T) {
	images, err := InspectArchive(bytes.NewReader(dockerArchive(t, "arm64")))
	require.NoError(t, err)
	require.Equal(t, []ArchivedImage{{Names: []string{"registry.test/a:1", "registry.test/a:2"}, Platforms: []string{"linux/arm64"}}}, images)

	images, err = InspectArchive(bytes.NewReader(ociArchive(t)))
	require.NoError(t, err)
	require.Equal(t, []ArchivedImage{{Names: []string{"registry.test/b:1"}, Platforms: []string{"linux/arm64"}}}, images, "only what the archive has the content of")

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(dockerArchive(t, "amd64"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	images, err = InspectArchive(&packed)
	require.NoError(t, err)
	require.Equal(t, []string{"linux/amd64"}, images[0].Platforms)

	var own bytes.Buffer
	require.NoError(t, Image{Ref: "registry.test/own:1", Files: []File{{Path: "/x", Content: []byte("x")}}}.Write(&own))
	images, err = InspectArchive(&own)
	require.NoError(t, err)
	require.Equal(t, []string{"registry.test/own:1"}, images[0].Names)
}

func TestInspectArchive_RefusesWhatIsNone(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":              []byte("hello"),
		"empty":             nil,
		"another archive":   archiveOf(t, "hello.txt", "hello"),
		"no configuration":  archiveOf(t, "manifest.json", `[{"Config":"gone.json"}]`),
		"damaged":           archiveOf(t, "manifest.json", `[{`),
		"no image":          archiveOf(t, "manifest.json", `[]`),
		"a circle":          archiveOf(t, "index.json", `{"manifests":[{"digest":"sha256:aa"}]}`, "blobs/sha256/aa", `{"manifests":[{"digest":"sha256:aa"}]}`),
		"damaged gzip":      {0x1f, 0x8b, 1, 2},
		"a name without it": archiveOf(t, "index.json", `{"manifests":[{"digest":"sha256:aa"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := InspectArchive(bytes.NewReader(content))
			require.ErrorIs(t, err, ErrNoArchive)
		})
	}
}

func FuzzInspectArchive(f *testing.F) {
	f.Add(dockerArchive(f, "amd64"))
	f.Add(ociArchive(f))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, content []byte) {
		images, err := InspectArchive(bytes.NewReader(content))
		if err != nil {
			require.ErrorIs(t, err, ErrNoArchive)
			return
		}
		require.NotEmpty(t, images)
	})
}

const imageTable = `REF                           TYPE                                                 DIGEST                                                                  SIZE     PLATFORMS   LABELS
bullpen.local/pause:1         application/vnd.docker.distribution.manifest.v2+json sha256:0a2f1e1c1a2b 1.4 MiB  linux/amd64 io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned
sha256:9f1f3c                 application/vnd.docker.distribution.manifest.v2+json sha256:0a2f1e1c1a2b 1.4 MiB  linux/amd64 io.cri-containerd.image=managed
ghcr.io/x/y@sha256:0a2f       application/vnd.oci.image.index.v1+json              sha256:0a2f1e1c1a2b 20.0 MiB linux/amd64,linux/arm64 -
ghcr.io/x/y:2                 application/vnd.oci.image.index.v1+json              sha256:0a2f1e1c1a2b 20.0 MiB linux/amd64,linux/arm64 -
`

func TestParseImages_ListsWhatPodsName(t *testing.T) {
	require.Equal(t, []NodeImage{
		{Name: "bullpen.local/pause:1", Digest: "sha256:0a2f1e1c1a2b", Size: "1.4 MiB", Platforms: "linux/amd64"},
		{Name: "ghcr.io/x/y:2", Digest: "sha256:0a2f1e1c1a2b", Size: "20.0 MiB", Platforms: "linux/amd64,linux/arm64"},
	}, tagged(parseImages(imageTable)))
	require.Empty(t, parseImages(""))
}

func TestDigestNames_AreThoseOfWhatTagsNameNow(t *testing.T) {
	record := func(name, digest string, loaded bool) imageRecord {
		return imageRecord{NodeImage{Name: name, Digest: digest}, loaded}
	}
	missing, stale := digestNames([]imageRecord{
		record("localhost:5000/tool", "sha256:a", false), // a port, and no tag
		record("x.local/y:1", "sha256:b", false), record("x.local/y:2", "sha256:b", false),
		record("x.local/y@sha256:old", "sha256:old", true), // y:1 was another image when it was loaded
		record("ghcr.io/z@sha256:pulled", "sha256:pulled", false),
		record("x.local/w:1", "sha256:c", false), record("x.local/w@sha256:c", "sha256:c", true),
	})
	var names []string
	for _, image := range missing {
		names = append(names, image.byDigest())
	}
	require.Equal(t, []string{"localhost:5000/tool@sha256:a", "x.local/y@sha256:b"}, names)
	require.Equal(t, []string{"x.local/y@sha256:old"}, stale, "a pulled one stays")
	require.True(t, parseImages("x/y@sha256:a type sha256:a 1.0 MiB linux/amd64 a=b,bullpen.dev/loaded=true")[0].loaded)
}

func TestParseResolvers_SkipsWhatIsNoAddress(t *testing.T) {
	require.Equal(t, []string{"127.0.0.53", "fe80::1%eth0", "2001:db8::1"},
		parseResolvers(strings.Join([]string{"# nameserver 8.8.8.8", "nameserver 127.0.0.53", "search a b", "nameserver host", "nameserver", "nameserver fe80::1%eth0", "nameserver  2001:db8::1 # x"}, "\n")))
}

func FuzzParsers(f *testing.F) {
	f.Add(imageTable)
	f.Add("nameserver 127.0.0.1\n")
	f.Fuzz(func(t *testing.T, text string) {
		records := parseImages(text)
		for _, image := range records {
			require.NotEmpty(t, image.Name)
		}
		missing, stale := digestNames(records)
		require.LessOrEqual(t, len(missing)+len(stale), len(records))
		for _, resolver := range parseResolvers(text) {
			require.NotContains(t, resolver, " ")
		}
	})
}
