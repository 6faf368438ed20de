package registrytest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stage is what a request to a registry is for.
type Stage string

// The stages, in the order in which a client comes to them.
const (
	Version Stage = "version" // GET /v2/
	Tag     Stage = "tag"     // the manifest or index of a tag
	Digest  Stage = "digest"  // a manifest by its digest
	Blob    Stage = "blob"    // a config
	Other   Stage = "other"   // what a test made up, such as where a redirect leads
)

func stageOf(r *http.Request) Stage {
	path := r.URL.Path
	switch {
	case path == "/v2/":
		return Version
	case strings.Contains(path, "/manifests/sha256:"):
		return Digest
	case strings.Contains(path, "/manifests/"):
		return Tag
	case strings.Contains(path, "/blobs/"):
		return Blob
	}
	return Other
}

// Front passes requests to a registry, and records them.
type Front struct {
	// Host is host:port.
	Host string

	mu       sync.Mutex
	requests []string
	replaced map[Stage]http.HandlerFunc
	next     http.Handler
}

// StartFront runs a front of a registry until the test ends.
func StartFront(t testing.TB, registry *Registry) *Front {
	t.Helper()
	target, err := url.Parse("http://" + registry.Host)
	require.NoError(t, err)
	f := &Front{replaced: map[Stage]http.HandlerFunc{}}
	f.next = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.Host = strings.TrimPrefix(server.URL, "http://")
	return f
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stage := stageOf(r)
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+string(stage))
	replaced := f.replaced[stage]
	f.mu.Unlock()
	if replaced != nil {
		replaced(w, r)
		return
	}
	f.Pass(w, r)
}

// Pass gives a request to the registry.
func (f *Front) Pass(w http.ResponseWriter, r *http.Request) { f.next.ServeHTTP(w, r) }

// Replace lets a handler respond to the requests of a stage; nil: the registry again. A handler that waits must end with its
// request's context.
func (f *Front) Replace(stage Stage, handler http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replaced[stage] = handler
}

// Requests are the requests so far, such as "GET tag", without those of the version.
func (f *Front) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r string) bool { return strings.HasSuffix(r, " "+string(Version)) })
}

// Forget empties Requests.
func (f *Front) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = nil
}
