package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// site serves one file, and remembers the requests.
type site struct {
	*httptest.Server
	content []byte
	etag    string

	mu sync.Mutex
	// next handles one request each, before the file is served as it should be.
	next  []http.HandlerFunc
	asked []http.Header
}

func serve(t *testing.T, next ...http.HandlerFunc) *site {
	t.Helper()
	s := &site{content: bytes.Repeat([]byte("0123456789abcdef"), 64<<10), etag: `"v1"`, next: next}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Header.Clone())
	var special http.HandlerFunc
	if len(s.next) > 0 {
		special, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	if special != nil {
		special(w, r)
		return
	}
	s.good(w, r)
}

func (s *site) good(w http.ResponseWriter, r *http.Request) {
	if s.etag != "" {
		w.Header().Set("ETag", s.etag)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content))
}

// truncated promises the whole file, sends n bytes of it, and then does what the end says.
func (s *site) truncated(n int, end func(r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.etag != "" {
			w.Header().Set("ETag", s.etag)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(s.content)))
		w.Write(s.content[:n])
		w.(http.Flusher).Flush()
		end(r)
	}
}

func drop(*http.Request) { panic(http.ErrAbortHandler) }

func hang(r *http.Request) { <-r.Context().Done() }

func (s *site) sum() Checksum { return sha256.Sum256(s.content) }

func client() *Client {
	return &Client{HTTP: NewHTTP(nil), Stall: time.Minute, Meter: &Meter{Out: &bytes.Buffer{}}}
}

func (s *site) fetch(t *testing.T, c *Client, path string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return c.File(ctx, s.URL+"/file", path, 0o755, s.sum())
}

func (s *site) requireFetched(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(s.content, data))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "neither the part nor its origin is left")
}

func requirePart(t *testing.T, path string, size int) {
	t.Helper()
	require.NoFileExists(t, path)
	info, err := os.Stat(path + ".part")
	require.NoError(t, err)
	require.EqualValues(t, size, info.Size())
}

func TestFile_IsPublishedWithItsMode(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	require.NoError(t, s.fetch(t, client(), path))
	s.requireFetched(t, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	require.Empty(t, s.asked[0].Get("Accept-Encoding"), "a checksum is of the file as it is stored")
}

func TestFile_ResumesABrokenTransferAtOnce(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	s.next = []http.HandlerFunc{s.truncated(100_000, drop)}
	require.NoError(t, s.fetch(t, client(), path))
	s.requireFetched(t, path)
	require.Len(t, s.asked, 2)
	require.Equal(t, "bytes=100000-", s.asked[1].Get("Range"))
	require.Equal(t, `"v1"`, s.asked[1].Get("If-Range"))
}

func TestFile_GivesUpOnTransfersThatBringNothing(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	nothing := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 100000-1048575/1048576")
		w.Header().Set("Content-Length", "948576")
		w.WriteHeader(http.StatusPartialContent)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	s.next = []http.HandlerFunc{s.truncated(100_000, drop), nothing, nothing, nothing}
	err := s.fetch(t, client(), path)
	require.ErrorAs(t, err, &interrupted{})
	require.Len(t, s.asked, 2)
	requirePart(t, path, 100_000)
}

func TestFile_KeepsThePartOfAStalledTransferForTheNextCall(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	s.next = []http.HandlerFunc{s.truncated(100_000, hang)}
	c := client()
	c.Stall = 200 * time.Millisecond
	require.ErrorIs(t, s.fetch(t, c, path), ErrStalled)
	requirePart(t, path, 100_000)

	require.NoError(t, s.fetch(t, client(), path))
	s.requireFetched(t, path)
	require.Equal(t, "bytes=100000-", s.asked[1].Get("Range"))
}

func TestFile_ASlowTransferIsNotAStalledOne(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	s.next = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(s.content)))
		every := time.NewTicker(400 * time.Millisecond)
		defer every.Stop()
		for rest := s.content; len(rest) > 0; rest = rest[len(s.content)/8:] {
			w.Write(rest[:len(s.content)/8])
			w.(http.Flusher).Flush()
			select {
			case <-every.C:
			case <-r.Context().Done():
				return
			}
		}
	}}
	c := client()
	c.Stall = 2500 * time.Millisecond // less than the whole takes
	require.NoError(t, s.fetch(t, c, path))
	s.requireFetched(t, path)
	require.Len(t, s.asked, 1)
}

func TestFile_StallsWithoutAResponseToo(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { hang(r) })
	c := client()
	c.Stall = 50 * time.Millisecond
	require.ErrorIs(t, s.fetch(t, c, filepath.Join(t.TempDir(), "file")), ErrStalled)
}

func TestFile_ACanceledTransferEndsAtOnceAndLeavesThePart(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.next = []http.HandlerFunc{s.truncated(100_000, hang)}
	c := client()
	c.Stall = 10 * time.Minute
	read := cancelAfter{at: 100_000, cancel: cancel, next: http.DefaultTransport}
	c.HTTP = NewHTTP(&read)
	require.ErrorIs(t, c.File(ctx, s.URL+"/file", path, 0o755, s.sum()), context.Canceled)
	requirePart(t, path, 100_000)
}

// cancelAfter cancels once a body was read up to a size.
type cancelAfter struct {
	at     int
	cancel func()
	next   http.RoundTripper
}

func (c *cancelAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil {
		response.Body = &cancelingBody{response.Body, c}
	}
	return response, err
}

type cancelingBody struct {
	body interface {
		Read([]byte) (int, error)
		Close() error
	}
	c *cancelAfter
}

func (b *cancelingBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.c.at -= n; b.c.at <= 0 {
		b.c.cancel()
	}
	return n, err
}

func (b *cancelingBody) Close() error { return b.body.Close() }

func TestFile_StartsOverWhenThePartDoesNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		prepare  func(t *testing.T, s *site, path string)
		requests int
		ranged   bool // the first request asks for a range
	}{
		"the file has changed": {func(t *testing.T, s *site, path string) {
			writePart(t, path, s.URL, `"v0"`, make([]byte, 1000))
		}, 1, true},
		"the part is of another URL": {func(t *testing.T, _ *site, path string) {
			writePart(t, path, "http://elsewhere.invalid", `"v1"`, make([]byte, 1000))
		}, 1, false},
		"the part's origin is unknown": {func(t *testing.T, _ *site, path string) {
			require.NoError(t, os.WriteFile(path+".part", make([]byte, 1000), 0o600))
		}, 1, false},
		"the response had no validator": {func(t *testing.T, s *site, path string) {
			writePart(t, path, s.URL, "", make([]byte, 1000))
		}, 1, false},
		"the server sends another range": {func(t *testing.T, s *site, path string) {
			writePart(t, path, s.URL, `"v1"`, s.content[:1000])
			s.next = []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Range", "bytes 500-1048575/1048576")
				w.WriteHeader(http.StatusPartialContent)
			}}
		}, 2, true},
		"the part is longer than the file": {func(t *testing.T, s *site, path string) {
			writePart(t, path, s.URL, `"v1"`, make([]byte, len(s.content)+1))
		}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, path := serve(t), filepath.Join(t.TempDir(), "file")
			test.prepare(t, s, path)
			require.NoError(t, s.fetch(t, client(), path))
			s.requireFetched(t, path)
			require.Len(t, s.asked, test.requests)
			require.Equal(t, test.ranged, s.asked[0].Get("Range") != "")
		})
	}
}

func writePart(t *testing.T, path, site, validator string, content []byte) {
	t.Helper()
	p := part{path: path + ".part"}
	require.NoError(t, p.begin(origin{URL: site + "/file", Validator: validator}))
	require.NoError(t, os.WriteFile(p.path, content, 0o600))
}

func TestFile_VerifiesAPartThatWasComplete(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	writePart(t, path, s.URL, `"v1"`, s.content)
	require.NoError(t, s.fetch(t, client(), path))
	s.requireFetched(t, path)
	require.Len(t, s.asked, 1)
}

func TestFile_RemovesWhatHasAWrongChecksum(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	err := client().File(t.Context(), s.URL+"/file", path, 0o755, Checksum{1})
	require.ErrorIs(t, err, ErrChecksum)
	require.ErrorContains(t, err, s.sum().String())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestFile_ReportsTheStatus(t *testing.T) {
	s := serve(t, http.NotFound)
	err := s.fetch(t, client(), filepath.Join(t.TempDir(), "file"))
	require.Equal(t, StatusError{Code: 404}, err)
	require.Len(t, s.asked, 1)
}

func TestValidator_IsNeverAWeakTag(t *testing.T) {
	require.Equal(t, `"a"`, validatorOf(http.Header{"Etag": {`"a"`}, "Last-Modified": {"then"}}))
	require.Equal(t, "then", validatorOf(http.Header{"Etag": {`W/"a"`}, "Last-Modified": {"then"}}))
	require.Empty(t, validatorOf(http.Header{"Etag": {`W/"a"`}}))
}

func TestRedirects_NeverLeaveHTTPS(t *testing.T) {
	plain := serve(t)
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL+"/file", http.StatusFound))
	defer secure.Close()
	c := client()
	c.HTTP = NewHTTP(secure.Client().Transport)
	path := filepath.Join(t.TempDir(), "file")
	require.ErrorIs(t, c.File(t.Context(), secure.URL, path, 0o755, plain.sum()), ErrDowngrade)
	_, err := c.Text(t.Context(), secure.URL)
	require.ErrorIs(t, err, ErrDowngrade)
	require.Empty(t, plain.asked)

	hop := httptest.NewServer(http.RedirectHandler(plain.URL+"/file", http.StatusFound))
	defer hop.Close()
	require.NoError(t, c.File(t.Context(), hop.URL, path, 0o755, plain.sum()))
	plain.requireFetched(t, path)
}

func TestRedirected_PartsAreResumed(t *testing.T) {
	s, path := serve(t), filepath.Join(t.TempDir(), "file")
	hop := httptest.NewServer(http.RedirectHandler(s.URL+"/signed", http.StatusFound))
	defer hop.Close()
	s.next = []http.HandlerFunc{s.truncated(100_000, drop)}
	require.NoError(t, client().File(t.Context(), hop.URL+"/file", path, 0o755, s.sum()))
	s.requireFetched(t, path)
	require.Equal(t, "bytes=100000-", s.asked[1].Get("Range"))
}

func TestText_IsBoundedByItsContext(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { hang(r) })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, context.DeadlineExceeded)
	defer cancel()
	_, err := client().Text(ctx, s.URL)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The environment's proxies are read once in a process, so a process of its own uses one.
func TestProxy_OfTheEnvironment(t *testing.T) {
	const child = "BULLPEN_TEST_PROXY_CHILD"
	if os.Getenv(child) != "" {
		data, err := client().Text(t.Context(), "http://mirror.invalid/file")
		require.NoError(t, err)
		require.Equal(t, "by proxy", string(data))
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "mirror.invalid" {
			w.Write([]byte("by proxy"))
		}
	}))
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProxy_OfTheEnvironment$")
	command.Env = append(os.Environ(), child+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}

func TestErrors_HaveNoPassword(t *testing.T) {
	require.Equal(t, "https://me:xxxxx@mirror.example/file", Redacted("https://me:secret@mirror.example/file"))
	gone := serve(t)
	gone.Close()
	address, err := url.Parse(gone.URL)
	require.NoError(t, err)
	address.User = url.UserPassword("me", "secret")
	_, err = client().Text(t.Context(), address.String())
	require.Error(t, err)
	require.False(t, strings.Contains(err.Error(), "secret"), err)
}
