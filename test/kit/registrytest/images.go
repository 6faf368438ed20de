package registrytest

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// Image is an image of a platform (linux/amd64) with a configuration and without layers.
func Image(t testing.TB, platform string, config v1.Config) v1.Image {
	t.Helper()
	parsed, err := v1.ParsePlatform(platform)
	require.NoError(t, err)
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: parsed.OS, Architecture: parsed.Architecture, Variant: parsed.Variant, Config: config, RootFS: v1.RootFS{Type: "layers"},
	})
	require.NoError(t, err)
	image = mutate.MediaType(image, types.OCIManifestSchema1)
	return mutate.ConfigMediaType(image, types.OCIConfigJSON)
}

// Index is an index of images by platform, with an attestation as BuildKit adds one.
func Index(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for platform, image := range images {
		parsed, err := v1.ParsePlatform(platform)
		require.NoError(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: parsed}})
	}
	attestation := Image(t, "unknown/unknown", v1.Config{})
	return mutate.AppendManifests(index, mutate.IndexAddendum{
		Add: attestation, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}},
	})
}
