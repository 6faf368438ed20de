package registration

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/github"
)

var testKey = sync.OnceValue(func() []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
})

// clock is set by tests.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// shelf is Secrets in memory.
type shelf struct {
	mu      sync.Mutex
	data    map[string]map[string][]byte
	version int
	broken  error
}

func newShelf() *shelf { return &shelf{data: map[string]map[string][]byte{}} }

func (s *shelf) put(name string, pairs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.data[name] = map[string][]byte{"version": fmt.Append(nil, s.version)}
	for i := 0; i+1 < len(pairs); i += 2 {
		s.data[name][pairs[i]] = []byte(pairs[i+1])
	}
}

func (s *shelf) Secret(_ context.Context, namespace, name string) (map[string][]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, "", s.broken
	}
	data, ok := s.data[name]
	if !ok || namespace != "ci" {
		return nil, "", fmt.Errorf("reading: %w", ErrNoSecret)
	}
	return data, string(data["version"]), nil
}

// forge answers like GitHub, and records its requests.
type forge struct {
	*httptest.Server
	tokens atomic.Int64 // installation tokens that were handed out
	mu     sync.Mutex
	answer map[string]http.HandlerFunc // by method and address; 404 otherwise
	asked  []string
	as     []string // Authorization of each
}

func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{answer: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v3")
		f.mu.Lock()
		answer, ok := f.answer[what]
		token := strings.HasSuffix(what, "/access_tokens")
		if !token || ok {
			f.asked, f.as = append(f.asked, what), append(f.as, r.Header.Get("Authorization"))
		}
		f.mu.Unlock()
		switch {
		case ok:
			answer(w, r)
		case token:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"token":"installed-%d","expires_at":"2999-01-02T03:04:05Z"}`, f.tokens.Add(1))
		default:
			status(404, `{"message":"Not Found"}`)(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *forge) on(what string, answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[what] = answer
}

// calls are those since the last time.
func (f *forge) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.asked
	f.asked, f.as = nil, nil
	return out
}

func (f *forge) lastAs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.as[len(f.as)-1]
}

func status(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

const noRunners = `{"total_count":0,"runners":[]}`

type world struct {
	*forge
	shelf *shelf
	clock *clock
	hub   *Hub
}

func newWorld(t *testing.T, change func(*HubOptions)) *world {
	t.Helper()
	w := &world{forge: newForge(t), shelf: newShelf(), clock: newClock()}
	app, err := github.New(github.Options{BaseURL: w.URL + "/api/v3", AppID: 7, PrivateKey: testKey(), Now: w.clock.read})
	require.NoError(t, err)
	options := HubOptions{Secrets: w.shelf, App: app, GitHub: github.Options{BaseURL: w.URL + "/api/v3"}, Now: w.clock.read}
	if change != nil {
		change(&options)
	}
	w.hub, err = NewHub(options)
	require.NoError(t, err)
	w.shelf.put("pat", "token", "ghp_hunter2")
	return w
}

func (w *world) registrar(t *testing.T, secret string, target Target) Registrar {
	t.Helper()
	registrar, err := w.hub.For(t.Context(), Credentials{"ci", secret}, target)
	require.NoError(t, err)
	return registrar
}

var acme = Target{Organization: "acme"}
