package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	binaryPath = "usr/local/bin/bullpen"

	// agentPath is runnerpod.DefaultAgentCommand: the init container of runner pods starts it from there.
	agentPath = "usr/local/bin/bullpen-agent"

	// macPath is the default of the controller's flag --mac-binary, too.
	macPath = "bullpen-darwin-arm64"

	// user and group have no name elsewhere. They are numbers, so that runAsNonRoot can be checked by a kubelet.
	user = "65532"

	mediaSBOM  = "application/vnd.cyclonedx+json"
	mediaEmpty = "application/vnd.oci.empty.v1+json"
	emptyJSON  = "{}"

	sources     = "https://github.com/bullpen-ci/bullpen"
	description = "Ephemeral GitHub Actions runners that are never killed while they run a job"
)

// file is an entry of one of the image's layers. All belong to root and are writable by root alone.
type file struct {
	Name    string
	Mode    int64
	Content []byte // nil: a directory
}

// tree is everything in the image. The names of the two users are for programs and people that ask for them.
func tree(binary, agent []byte) []file {
	return []file{
		{Name: "etc/", Mode: 0o755},
		{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nbullpen:x:" + user + ":\n")},
		{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/:/nonexistent\nbullpen:x:" + user + ":" + user + ":bullpen:/:/nonexistent\n")},
		{Name: "usr/", Mode: 0o755},
		{Name: "usr/local/", Mode: 0o755},
		{Name: "usr/local/bin/", Mode: 0o755},
		{Name: binaryPath, Mode: 0o755, Content: binary},
		{Name: agentPath, Mode: 0o755, Content: agent},
	}
}

// macTree is the layer with what is brought to Macs: the same for every platform, so that a registry keeps it once. It is no program of
// the image's own, and so not executable.
func macTree(binary []byte) []file {
	return []file{{Name: macPath, Mode: 0o644, Content: binary}}
}

// pack writes a layer. Only what is named here is in a header: no time but the build's, no names of users.
func pack(files []file, created time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.Name, Mode: f.Mode, ModTime: created, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Size: int64(len(f.Content))}
		if f.Content == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// labels say where an image is from, as its config's labels and as its manifests' annotations.
func (r release) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "bullpen",
		"org.opencontainers.image.description":   description,
		"org.opencontainers.image.version":       r.Version,
		"org.opencontainers.image.created":       r.Created.Format(time.RFC3339),
		"org.opencontainers.image.source":        sources,
		"org.opencontainers.image.documentation": sources + "/blob/main/docs/reference/images.md",
		"org.opencontainers.image.licenses":      "Apache-2.0",
	}
	if r.Revision != "" {
		labels["org.opencontainers.image.revision"] = r.Revision
	}
	return labels
}

func newLayer(files []file, created time.Time) (v1.Layer, error) {
	content, err := pack(files, created)
	if err != nil {
		return nil, err
	}
	// The best compression would take four times as long, and save one part in a hundred.
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("packing a layer: %w", err)
	}
	return layer, nil
}

// newImage makes the image of one platform.
func newImage(r release, own pair, forMacs program) (v1.Image, error) {
	p := own.Product
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		Created: v1.Time{Time: r.Created}, OS: p.Platform.OS, Architecture: p.Platform.Architecture, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user + ":" + user,
			Entrypoint: []string{"/" + binaryPath},
			Env:        []string{"PATH=/usr/local/bin"},
			WorkingDir: "/",
			Labels:     r.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	for _, files := range [][]file{macTree(forMacs.Content), tree(p.Content, own.Agent.Content)} {
		packed, err := newLayer(files, r.Created)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   packed,
			History: v1.History{Created: v1.Time{Time: r.Created}, CreatedBy: "make images"},
		})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// member is one platform's part of a release.
type member struct {
	Platform v1.Platform
	Image    v1.Image
	SBOM     []byte
	Referrer v1.Image // an artifact that holds the SBOM, and whose subject is the image
}

// set is everything that one build makes.
type set struct {
	Index   v1.ImageIndex
	Members []member
}

// assemble makes images, SBOMs and the index out of programs. It is pure.
func assemble(r release, all programs) (set, error) {
	s := set{Index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	for _, own := range all.Own {
		p := own.Product
		m := member{Platform: p.Platform}
		var err error
		if m.Image, err = newImage(r, own, all.Mac); err != nil {
			return s, fmt.Errorf("making the image for %s: %w", p.Platform.String(), err)
		}
		if m.SBOM, err = newSBOM(r, own, all.Mac); err != nil {
			return s, fmt.Errorf("listing what is in the image for %s: %w", p.Platform.String(), err)
		}
		if m.Referrer, err = attach(m.Image, m.SBOM, r.Created); err != nil {
			return s, fmt.Errorf("attaching the list of what is in the image for %s: %w", p.Platform.String(), err)
		}
		s.Members = append(s.Members, m)
		s.Index = mutate.AppendManifests(s.Index, mutate.IndexAddendum{Add: m.Image, Descriptor: v1.Descriptor{Platform: &m.Platform}})
	}
	s.Index = mutate.Annotations(s.Index, r.labels()).(v1.ImageIndex)
	return s, nil
}

// artifact is a manifest that is no image: a config that is empty, and one blob.
type artifact struct {
	manifest []byte
	blob     v1.Layer
}

func (a artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a artifact) RawConfigFile() ([]byte, error)      { return []byte(emptyJSON), nil }
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if h == emptyDescriptor().Digest {
		return static.NewLayer([]byte(emptyJSON), mediaEmpty), nil
	}
	return a.blob, nil
}

func emptyDescriptor() v1.Descriptor {
	digest, size, _ := v1.SHA256(bytes.NewReader([]byte(emptyJSON))) // reading from memory does not fail
	return v1.Descriptor{MediaType: mediaEmpty, Digest: digest, Size: size}
}

// attach makes the referrer of an image, by which registries answer what they hold about it.
func attach(image v1.Image, sbom []byte, created time.Time) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(sbom))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  mediaSBOM,
		Config:        emptyDescriptor(),
		Layers: []v1.Descriptor{{MediaType: mediaSBOM, Digest: digest, Size: size,
			Annotations: map[string]string{"org.opencontainers.image.title": "bullpen.cdx.json"}}},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{"org.opencontainers.image.created": created.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest: manifest, blob: static.NewLayer(sbom, mediaSBOM)})
}
