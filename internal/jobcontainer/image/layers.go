package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

const (
	maxLayers       = 128 // Docker's limit is 127
	layersAtOnce    = 4   // as many as the connections to one host
	requestsOfLayer = 3   // a redirect to a storage is usual
)

// layerError is why the content of a layer does not come, although the registry has the manifest.
type layerError struct{ err error }

func (e *layerError) Error() string { return "a layer: " + e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// missing reports whether the registry, or the storage that it redirects to, does not have the layer.
func (e *layerError) missing() bool {
	var status *transport.Error
	return errors.As(e.err, &status) && (status.StatusCode == http.StatusNotFound || status.StatusCode == http.StatusGone)
}

// probeLayers asks for the first byte of each layer: a registry may have the manifest, and hang or fail when it is asked for layers, which often
// are in another storage. The kubelet would learn it in a pull, which blocks its pod until it times out, and by default the node's other pulls.
//
// It costs a request of a byte and usually a redirect for each layer, four at once, on connections that are kept, in the image's turn and time:
// on loopback 3 ms a layer, with a registry 50 ms away some 300 ms for ten layers, once per image and hour (Options.DigestAge). Docker
// Hub counts manifests alone as pulls. What a registry that lies does after the first byte, or to another client, only the kubelet learns.
//
// A mirror is not asked. An administrator chose it, it may fetch a whole layer before it sends a byte, and that of one machine has no layers.
func (s *session) probeLayers(ctx context.Context, layers []descriptor) error {
	if s.exchange.mirror != nil {
		return nil
	}
	digests := s.exchange.expectLayers(layers)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(layersAtOnce)
	for _, digest := range digests {
		group.Go(func() error {
			_, err := safely(ctx, func(ctx context.Context) (cached, error) { return cached{}, s.firstByte(ctx, digest) })
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return &layerError{err}
	}
	return nil
}

func (s *session) firstByte(ctx context.Context, digest string) error {
	layer, err := s.puller.Layer(ctx, s.repo.Digest(digest))
	if err != nil {
		return err
	}
	body, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer body.Close()
	// At the end of the response the error is that of the digest, because the rest of the layer is missing.
	if n, err := body.Read(make([]byte, 1)); n == 0 && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// expectLayers makes room for the requests of layers, and returns the digest of each, once.
func (e *exchange) expectLayers(layers []descriptor) (digests []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.layers = map[string]bool{}
	for _, layer := range layers {
		if !e.layers[layer.Digest] && len(digests) < maxLayers {
			e.layers[layer.Digest] = true
			digests = append(digests, layer.Digest)
		}
	}
	e.allowed += requestsOfLayer * len(digests)
	return digests
}

// isLayer reports whether a request is for a layer, or follows a redirect of one.
func (e *exchange) isLayer(request *http.Request) bool {
	_, digest, blob := strings.Cut(origin(request).URL.Path, "/blobs/")
	e.mu.Lock()
	defer e.mu.Unlock()
	return blob && e.layers[digest]
}

// origin is the request whose redirects led to this one. http.Client sets Response in those that follow.
func origin(request *http.Request) *http.Request {
	for request.Response != nil && request.Response.Request != nil {
		request = request.Response.Request
	}
	return request
}

// redirects is how many redirects led to a request.
func redirects(request *http.Request) int {
	n := 0
	for ; request.Response != nil && request.Response.Request != nil; request = request.Response.Request {
		n++
	}
	return n
}

// ranged is the request for the first byte of a layer. Registries without ranges send all of it, of which no more is read.
func ranged(request *http.Request) *http.Request {
	request = request.Clone(request.Context())
	request.Header.Set("Range", "bytes=0-0")
	return request
}

// unranged makes a response to a ranged request the one that the client expects. It knows no ranges.
func unranged(response *http.Response) {
	if response.StatusCode == http.StatusPartialContent {
		response.StatusCode, response.Status = http.StatusOK, "200 OK"
	}
}

// explainLayer is the sentence for a layer that does not come, where that of the image's other content would mislead.
func explainLayer(e *layerError, reason Reason, image string, name imagename.Name, pull string, within fmt.Stringer) *Error {
	switch {
	case e.missing():
		return failure(NotFound, image, name, pull+"registry '%[2]s' does not have all of its layers. Push the image again.")
	case reason == TimedOut:
		return failure(reason, image, name, pull+"registry '%[2]s' has its manifest, but did not send its layers within %[3]s. Run the job again later.", within)
	}
	return nil
}
