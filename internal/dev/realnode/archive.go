package realnode

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// ArchivedImage is an image of an archive that `docker save` or a tool of OCI wrote.
type ArchivedImage struct {
	// Names are repositories with tags. OCI archives may have none.
	Names []string
	// Platforms are what the image is for: linux/amd64.
	Platforms []string
}

// ErrNoArchive reports that a file is no archive of images.
var ErrNoArchive = errors.New("not an archive of container images")

// Limits of what is read of an archive. Its layers are skipped.
const (
	maxDocument  = 4 << 20 // bytes of one JSON document
	maxDocuments = 1000
)

// InspectArchive reads which images an archive has. It may be compressed with gzip. The error is ErrNoArchive when it is none.
func InspectArchive(archive io.Reader) ([]ArchivedImage, error) {
	documents, err := readDocuments(archive)
	if err != nil {
		return nil, err
	}
	var images []ArchivedImage
	switch {
	case documents["manifest.json"] != nil:
		images, err = dockerImages(documents)
	case documents["index.json"] != nil:
		images, err = ociImages(documents)
	default:
		return nil, fmt.Errorf("%w: it has neither manifest.json nor index.json", ErrNoArchive)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%w: it has no image", ErrNoArchive)
	}
	return images, nil
}

// readDocuments returns the JSON documents of an archive, by path. Blobs of OCI have no extension: what begins like JSON is one.
func readDocuments(archive io.Reader) (map[string][]byte, error) {
	buffered := bufio.NewReader(archive)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
		}
		defer func() { _ = unpacked.Close() }() // its checksum was compared by then
		buffered = bufio.NewReader(unpacked)
	}
	documents := map[string][]byte{}
	in := tar.NewReader(buffered)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
		}
		if header.Typeflag != tar.TypeReg || header.Size > maxDocument || len(documents) >= maxDocuments {
			continue
		}
		content := bufio.NewReader(in)
		if first, err := content.Peek(1); err != nil || first[0] != '{' && first[0] != '[' {
			continue
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
		}
		documents[path.Clean(header.Name)] = text
	}
}

// platform is how a document names what an image is for.
type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

func (p platform) String() string { return p.OS + "/" + p.Architecture }

func decode(documents map[string][]byte, name string, into any) error {
	text, found := documents[path.Clean(name)]
	if !found {
		return fmt.Errorf("it lacks %s", name)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

func dockerImages(documents map[string][]byte) ([]ArchivedImage, error) {
	var manifest []struct {
		Config   string
		RepoTags []string
	}
	if err := decode(documents, "manifest.json", &manifest); err != nil {
		return nil, err
	}
	var images []ArchivedImage
	for _, entry := range manifest {
		var config platform
		if err := decode(documents, entry.Config, &config); err != nil {
			return nil, err
		}
		images = append(images, ArchivedImage{Names: entry.RepoTags, Platforms: []string{config.String()}})
	}
	return images, nil
}

// descriptor is OCI's reference to a document.
type descriptor struct {
	Digest      string            `json:"digest"`
	Platform    *platform         `json:"platform"`
	Annotations map[string]string `json:"annotations"`
}

func (d descriptor) path() string {
	return path.Join("blobs", strings.Replace(d.Digest, ":", "/", 1))
}

func ociImages(documents map[string][]byte) ([]ArchivedImage, error) {
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := decode(documents, "index.json", &index); err != nil {
		return nil, err
	}
	var images []ArchivedImage
	for _, d := range index.Manifests {
		image := ArchivedImage{}
		for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
			if name := d.Annotations[key]; name != "" {
				image.Names = append(image.Names, name)
				break
			}
		}
		var err error
		if image.Platforms, err = platformsOf(documents, d, maxNesting); err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

// maxNesting bounds indexes within indexes.
const maxNesting = 4

// platformsOf follows a reference to an image's configuration, which is the authority on what the image is for.
func platformsOf(documents map[string][]byte, d descriptor, nesting int) ([]string, error) {
	if nesting == 0 {
		return nil, errors.New("its indexes are nested too deeply")
	}
	var document struct {
		Config    *descriptor  `json:"config"`
		Manifests []descriptor `json:"manifests"`
	}
	if err := decode(documents, d.path(), &document); err != nil {
		if d.Platform != nil { // an archive of one platform of several lists the others, too
			return nil, nil
		}
		return nil, err
	}
	if document.Config != nil {
		var config platform
		if err := decode(documents, document.Config.path(), &config); err != nil {
			return nil, err
		}
		return []string{config.String()}, nil
	}
	var all []string
	for _, inner := range document.Manifests {
		if inner.Platform != nil && inner.Platform.OS == "unknown" { // an attestation
			continue
		}
		more, err := platformsOf(documents, inner, nesting-1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
