package github

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Bounds of what a client keeps of answers, of all installations together.
const (
	etagBytes  = 32 << 20
	etagLength = 256 << 10 // of one answer
)

// etags asks GitHub whether what one installation read before has changed: if not, the answer costs nothing of the rate limit,
// and is as true as a new one.
type etags struct {
	next         http.RoundTripper
	installation int64
	store        *etagStore
}

// etagStore keeps the answers that were used last. An installation is answered from its own alone. Safe for concurrent use.
type etagStore struct {
	mu    sync.Mutex
	bytes int
	byKey map[etagKey]*list.Element // of *kept
	order *list.List                // front: used last
}

type etagKey struct {
	installation int64
	url          string
}

type kept struct {
	etagKey
	tag    string
	header http.Header
	body   []byte
}

// keptOverhead is what an entry takes beside its texts: maps, slices, the place in the order.
const keptOverhead = 512

// size in bytes, roughly. Requests about one runner have a URL of their own each and hardly a body, so that what comes
// with the body counts too.
func (k *kept) size() int {
	n := keptOverhead + 2*len(k.url) + len(k.tag) + len(k.body)
	for name, values := range k.header {
		n += len(name)
		for _, value := range values {
			n += len(value)
		}
	}
	return n
}

type freeKey struct{}

// WithFree has free called for every "not modified" answer to a request with that context, before the answer is returned.
// Such a call counts towards no primary rate limit
// (docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api). It must be safe for concurrent use.
func WithFree(ctx context.Context, free func()) context.Context {
	return context.WithValue(ctx, freeKey{}, free)
}

// notFree is for further requests: a caller that counts one request counts no other.
func notFree(ctx context.Context) context.Context { return context.WithValue(ctx, freeKey{}, nil) }

func newETagStore() *etagStore {
	return &etagStore{byKey: map[etagKey]*list.Element{}, order: list.New()}
}

// RoundTrip implements http.RoundTripper. It concerns GETs alone, and not those whose caller has an ETag of its own.
func (e *etags) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.Header.Get("If-None-Match") != "" {
		return e.next.RoundTrip(req)
	}
	key := etagKey{e.installation, req.URL.String()}
	known := e.store.get(key)
	if known != nil {
		req = req.Clone(req.Context())
		req.Header.Set("If-None-Match", known.tag)
	}
	resp, err := e.next.RoundTrip(req)
	switch {
	case err != nil:
		return resp, err
	case resp.StatusCode == http.StatusNotModified && known != nil:
		_ = resp.Body.Close()
		// The redirection that led here was not free.
		if free, ok := req.Context().Value(freeKey{}).(func()); ok && req.Response == nil {
			free()
		}
		return known.again(resp), nil
	case resp.StatusCode == http.StatusOK && resp.Header.Get("ETag") != "":
		return resp, e.store.keep(key, resp)
	}
	return resp, nil
}

// again is the answer as it was, with what this one says of limits.
func (k *kept) again(resp *http.Response) *http.Response {
	header := k.header.Clone()
	for name, values := range resp.Header {
		if strings.HasPrefix(name, "X-Ratelimit-") || name == "Date" {
			header[name] = values
		}
	}
	same := *resp
	same.Status, same.StatusCode, same.Header = "200 OK", http.StatusOK, header
	same.Body, same.ContentLength = io.NopCloser(bytes.NewReader(k.body)), int64(len(k.body))
	return &same
}

// keep reads the answer, unless it is too long, and puts it back.
func (e *etagStore) keep(key etagKey, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, etagLength+1))
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	if len(body) > etagLength {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
		return nil
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	e.put(&kept{etagKey: key, tag: resp.Header.Get("ETag"), header: lasting(resp.Header), body: body})
	return nil
}

// lasting is what an answer says of its body and of the pages beside it. The rest, two kilobytes of it, is about that one call.
func lasting(header http.Header) http.Header {
	kept := http.Header{}
	for _, name := range []string{"Content-Type", "Etag", "Link"} {
		if values := header.Values(name); len(values) > 0 {
			kept[name] = slices.Clone(values) // all values of an answer are parts of one array
		}
	}
	return kept
}

func (e *etagStore) get(key etagKey) *kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	element, ok := e.byKey[key]
	if !ok {
		return nil
	}
	e.order.MoveToFront(element)
	return element.Value.(*kept) //nolint:forcetypeassert // only put fills the list
}

func (e *etagStore) put(k *kept) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old, ok := e.byKey[k.etagKey]; ok {
		e.drop(old)
	}
	e.byKey[k.etagKey] = e.order.PushFront(k)
	for e.bytes += k.size(); e.bytes > etagBytes; {
		e.drop(e.order.Back())
	}
}

func (e *etagStore) drop(element *list.Element) {
	k := e.order.Remove(element).(*kept) //nolint:forcetypeassert // only put fills the list
	delete(e.byKey, k.etagKey)
	e.bytes -= k.size()
}
