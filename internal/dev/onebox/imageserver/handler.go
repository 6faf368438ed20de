package imageserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// maxDocument bounds a manifest or a configuration, in bytes. Registries accept no larger manifests.
const maxDocument = 4 << 20

// Handler serves the images of one node. It is safe for concurrent use.
type Handler struct {
	// Images lists what the node has, for each request.
	Images func(context.Context) ([]realnode.NodeImage, error)
	// Content is the directory of the node's container runtime with contents by SHA-256.
	Content string
	Log     *slog.Logger
}

// Media types of OCI's image specification.
const (
	indexType     = "application/vnd.oci.image.index.v1+json"
	manifestOfOCI = "application/vnd.oci.image.manifest.v1+json"
)

var (
	manifestPath = regexp.MustCompile(`^/v2/(.+)/manifests/([^/]+)$`)
	blobPath     = regexp.MustCompile(`^/v2/.+/blobs/([^/]+)$`)
	sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// ServeHTTP responds to GET and HEAD. The parameter ns is the registry of the image's name.
func (h *Handler) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		refuse(to, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only")
		return
	}
	if request.URL.Path == "/v2/" {
		to.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		return
	}
	if match := manifestPath.FindStringSubmatch(request.URL.Path); match != nil {
		h.manifest(to, request, match[1], match[2])
		return
	}
	if match := blobPath.FindStringSubmatch(request.URL.Path); match != nil {
		h.document(to, request, match[1], "application/octet-stream", "BLOB_UNKNOWN")
		return
	}
	refuse(to, http.StatusNotFound, "UNSUPPORTED", "this registry serves manifests and configurations")
}

func (h *Handler) manifest(to http.ResponseWriter, request *http.Request, repository, reference string) {
	if sha256Digest.MatchString(reference) {
		h.document(to, request, reference, "", "MANIFEST_UNKNOWN")
		return
	}
	images, err := h.Images(request.Context())
	if err != nil {
		h.Log.WarnContext(request.Context(), "listing the node's images", "error", err)
		refuse(to, http.StatusServiceUnavailable, "UNAVAILABLE", "the node is restarting. Retry later")
		return
	}
	wanted := request.URL.Query().Get("ns") + "/" + repository + ":" + reference
	for _, image := range images {
		if image.Name == wanted {
			h.document(to, request, image.Digest, "", "MANIFEST_UNKNOWN")
			return
		}
	}
	refuse(to, http.StatusNotFound, "MANIFEST_UNKNOWN", "the node has no such image")
}

// document serves a JSON object that the node has. Without a media type it is that of the manifest.
func (h *Handler) document(to http.ResponseWriter, request *http.Request, digest, mediaType, missing string) {
	content, err := h.read(digest)
	if errors.Is(err, fs.ErrNotExist) {
		refuse(to, http.StatusNotFound, missing, "the node has no such content")
		return
	}
	if err != nil {
		h.Log.WarnContext(request.Context(), "reading the node's images", "error", err)
		refuse(to, http.StatusInternalServerError, "UNKNOWN", "the content cannot be read")
		return
	}
	if mediaType == "" {
		mediaType = manifestType(content)
	}
	to.Header().Set("Content-Type", mediaType)
	to.Header().Set("Docker-Content-Digest", digest)
	to.Header().Set("Content-Length", strconv.Itoa(len(content)))
	if request.Method == http.MethodHead {
		return
	}
	_, _ = to.Write(content) // the client may be gone
}

// read returns a document of the node, of whichever image: one that the node has under another name is refused by the kubelet. Layers are not served.
func (h *Handler) read(digest string) ([]byte, error) {
	if !sha256Digest.MatchString(digest) {
		return nil, fs.ErrNotExist
	}
	file, err := os.Open(filepath.Join(h.Content, strings.TrimPrefix(digest, "sha256:")))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxDocument || !json.Valid(content) {
		return nil, fs.ErrNotExist
	}
	return content, nil
}

// manifestType is what a manifest says that it is. Those that do not say it are of OCI.
func manifestType(content []byte) string {
	var manifest struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	_ = json.Unmarshal(content, &manifest) // what is no manifest is refused by its reader
	switch {
	case manifest.MediaType != "":
		return manifest.MediaType
	case manifest.Manifests != nil:
		return indexType
	default:
		return manifestOfOCI
	}
}

// refuse writes an error as registries do.
func refuse(to http.ResponseWriter, status int, code, message string) {
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(status)
	_ = json.NewEncoder(to).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}}) // the client may be gone
}
