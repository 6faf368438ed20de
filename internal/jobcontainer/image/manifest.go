package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"

	"github.com/opencontainers/go-digest"
)

// The media types of images, by OCI's and by Docker's name.
const (
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	ociConfig      = "application/vnd.oci.image.config.v1+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerConfig1  = "application/vnd.docker.container.image.v1+json"
	dockerSchema1  = "application/vnd.docker.distribution.manifest.v1+json"
	dockerSigned1  = "application/vnd.docker.distribution.manifest.v1+prettyjws"
)

// descriptor points to content by its digest (OCI image-spec, content descriptors).
type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls"`
	Platform  *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
	} `json:"platform"`
}

// manifest is what a registry has for a name: an index, which has manifests, or a manifest, which has a config and layers.
type manifest struct {
	index  []descriptor
	config *descriptor
	layers []descriptor
}

// notImage is why content is no image that a container can run.
type notImage struct{ why string }

func (e *notImage) Error() string { return e.why }

// parseManifest reads a manifest or an index. contentType is the registry's, which may be empty or wrong. Errors are *notImage.
func parseManifest(body []byte, contentType string) (manifest, error) {
	var document struct {
		MediaType string          `json:"mediaType"`
		Manifests []descriptor    `json:"manifests"`
		Config    *descriptor     `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		FSLayers  json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return manifest{}, &notImage{"its manifest is not valid JSON"}
	}
	contentType, _, _ = mime.ParseMediaType(contentType)
	if contentType == dockerSchema1 || contentType == dockerSigned1 || document.FSLayers != nil {
		return manifest{}, &notImage{"its manifest has version 1 of Docker's format, which container runtimes no longer read. Push it again with a current tool"}
	}
	isIndex, isManifest := document.Manifests != nil, document.Config != nil || document.Layers != nil
	switch {
	case isIndex && isManifest: // which one is read would depend on the reader (CVE-2021-41190)
		return manifest{}, &notImage{"its manifest is an index as well"}
	case isIndex && !agree(document.MediaType, contentType, ociIndex, dockerIndex),
		isManifest && !agree(document.MediaType, contentType, ociManifest, dockerManifest):
		return manifest{}, &notImage{"its manifest has a media type of another kind"}
	case isIndex:
		return manifest{index: document.Manifests}, nil
	case document.Config == nil:
		return manifest{}, &notImage{"its manifest has no config"}
	}
	if err := document.Config.check(); err != nil {
		return manifest{}, err
	}
	if t := document.Config.MediaType; t != ociConfig && t != dockerConfig1 {
		return manifest{}, &notImage{"it is an artifact of the type " + printable(t)}
	}
	layers, err := parseLayers(document.Layers)
	if err != nil {
		return manifest{}, err
	}
	return manifest{config: document.Config, layers: layers}, nil
}

// parseLayers refuses layers with URLs, as base images of Windows have them: containerd asks those before the registry, from the node, and no
// policy of a pool decides on them.
func parseLayers(body json.RawMessage) ([]descriptor, error) {
	if body == nil {
		return nil, nil
	}
	var layers []descriptor
	if err := json.Unmarshal(body, &layers); err != nil {
		return nil, &notImage{"its layers are not valid"}
	}
	for _, layer := range layers {
		if err := digest.Digest(layer.Digest).Validate(); err != nil {
			return nil, &notImage{"its manifest has a digest that is not valid"}
		}
		if len(layer.URLs) > 0 {
			return nil, &notImage{"a layer of it is outside of its registry. Push it again with all of its layers"}
		}
	}
	return layers, nil
}

// agree reports whether the media type in the document, and that of the response if it is one of images, are among the allowed.
func agree(inDocument, ofResponse string, allowed ...string) bool {
	if inDocument != "" && !slices.Contains(allowed, inDocument) {
		return false
	}
	known := []string{ociIndex, ociManifest, dockerIndex, dockerManifest}
	return !slices.Contains(known, ofResponse) || slices.Contains(allowed, ofResponse)
}

func (d descriptor) check() error {
	if err := digest.Digest(d.Digest).Validate(); err != nil {
		return &notImage{"its manifest has a digest that is not valid"}
	}
	if d.Size < 0 || d.Size > maxBody {
		return &notImage{fmt.Sprintf("its manifest or its config is larger than %d bytes", maxBody)}
	}
	return nil
}

// variants are the platforms of an index that a container can run on, sorted, without those of attestations.
func (m manifest) variants() []string {
	const most = 12
	var found []string
	for _, d := range m.index {
		if d.Platform == nil || d.Platform.OS == "unknown" || !d.isManifest() {
			continue
		}
		text := printable(d.platform().String())
		if !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	if len(found) > most {
		found = append(found[:most], "…")
	}
	return found
}

func (d descriptor) isManifest() bool {
	return d.MediaType == ociManifest || d.MediaType == dockerManifest
}

func (d descriptor) platform() Platform {
	return Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}.normalized()
}

// errNoVariant says that an index has nothing for the platform; manifest.variants says what it has.
var errNoVariant = errors.New("no variant for the platform")

// choose is the manifest of an index that a node of the platform runs: the best variant, the first of equals. One without a
// platform is chosen if no other suits; its config then says whether it does.
func (m manifest) choose(wanted Platform) (descriptor, error) {
	var chosen *descriptor
	best := 0
	for i, d := range m.index {
		if !d.isManifest() {
			continue
		}
		suits := 1
		if d.Platform != nil {
			suits = 2 * d.platform().suits(wanted)
		}
		if suits > best {
			chosen, best = &m.index[i], suits
		}
	}
	if chosen == nil {
		return descriptor{}, errNoVariant
	}
	return *chosen, chosen.check()
}
