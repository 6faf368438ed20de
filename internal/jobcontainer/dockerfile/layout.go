package dockerfile

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// image is one that was built, as an OCI layout in a directory.
type image struct {
	digest string
	layers []string // files, tar, the lowest first
	config jobcontainer.ImageConfig
}

// What is read of an image (OCI image-spec 1.1). Types of a library would bring a hundred packages into each runner's pod.
type (
	index      struct{ Manifests []descriptor }
	descriptor struct{ MediaType, Digest string }
	manifest   struct {
		Config descriptor
		Layers []descriptor
	}
	configuration struct {
		OS, Architecture string
		Config           struct {
			Entrypoint, Cmd, Env         []string
			User, WorkingDir, StopSignal string
			Volumes                      map[string]struct{}
		}
	}
)

const (
	typeIndex = "application/vnd.oci.image.index.v1+json"
	typeLayer = "application/vnd.oci.image.layer.v1.tar"
	// maxJSON bounds the documents of an image, in bytes.
	maxJSON = 4 << 20
)

// readLayout reads an image of one platform.
func readLayout(dir string) (image, error) {
	var all index
	if err := readJSON(filepath.Join(dir, "index.json"), &all); err != nil {
		return image{}, err
	}
	for range 2 { // the layout's own index has an image, or the image's index
		if len(all.Manifests) == 0 {
			return image{}, errors.New("the image has no manifest")
		}
		first := all.Manifests[0]
		blob, err := blobFile(dir, first)
		if err != nil {
			return image{}, err
		}
		if first.MediaType != typeIndex {
			return readManifest(dir, blob, first.Digest)
		}
		all = index{}
		if err := readJSON(blob, &all); err != nil {
			return image{}, err
		}
	}
	return image{}, errors.New("the image has an index of indexes")
}

func readManifest(dir, file, digest string) (image, error) {
	var m manifest
	if err := readJSON(file, &m); err != nil {
		return image{}, err
	}
	built := image{digest: digest}
	for _, layer := range m.Layers {
		if layer.MediaType != typeLayer {
			return image{}, fmt.Errorf("the image has a layer of type %q", layer.MediaType)
		}
		blob, err := blobFile(dir, layer)
		if err != nil {
			return image{}, err
		}
		built.layers = append(built.layers, blob)
	}
	blob, err := blobFile(dir, m.Config)
	if err != nil {
		return image{}, err
	}
	var c configuration
	if err := readJSON(blob, &c); err != nil {
		return image{}, err
	}
	built.config = jobcontainer.ImageConfig{
		OS: c.OS, Architecture: c.Architecture, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Env: c.Config.Env, User: c.Config.User,
		WorkingDir: c.Config.WorkingDir, StopSignal: c.Config.StopSignal, Volumes: slices.Sorted(maps.Keys(c.Config.Volumes)),
	}
	return built, nil
}

// blobFile is where a layout has something by its digest.
func blobFile(dir string, d descriptor) (string, error) {
	digest, found := strings.CutPrefix(d.Digest, "sha256:")
	if sum, err := hex.DecodeString(digest); !found || err != nil || len(sum) != 32 {
		return "", fmt.Errorf("the image has an invalid digest: %q", d.Digest)
	}
	return filepath.Join(dir, "blobs", "sha256", digest), nil
}

func readJSON(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the image: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := json.NewDecoder(io.LimitReader(file, maxJSON)).Decode(into); err != nil {
		return fmt.Errorf("reading %s of the image: %w", filepath.Base(path), err)
	}
	return nil
}
