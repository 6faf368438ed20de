package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// writeWithin bounds one write to a stream: a slower client is disconnected, and reconnects.
const writeWithin = 10 * time.Second

// views are the URLs with viewers. Each is read by one goroutine for all its viewers, from the first one's arrival until the last one
// leaves, so the load grows with the number of URLs, and not of viewers.
type views struct {
	console *Console
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	open    map[string]*view
	streams int
}

// view is one address. What it holds is guarded by its views' lock.
type view struct {
	watchers map[*watcher]struct{}
	asked    []string // what is asked for it, by the latest reading
	content  []byte   // an event's data; nil: not read yet
	readAt   time.Time
	sum      [sha256.Size]byte
	cancel   context.CancelFunc
}

// watcher is one stream. It is notified of new content, and reads the latest: a slow one skips what was in between.
type watcher struct {
	who  caller
	news chan struct{}
}

func newViews(c *Console) *views {
	ctx, end := context.WithCancel(context.Background())
	return &views{console: c, ctx: ctx, end: end, open: map[string]*view{}}
}

// stop ends every stream and waits for what reads.
func (s *views) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.end()
	s.running.Wait()
}

var (
	errTooMany = errors.New("too many pages are live: this page is not refreshed")
	errStopped = errors.New("the server is shutting down")
)

// join begins to watch an address; leave must be called when that ends.
func (s *views) join(address string, who caller, p page, r *http.Request) (*watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errStopped
	}
	if s.streams >= s.console.opt.MostStreams {
		return nil, errTooMany
	}
	s.streams++
	w := &watcher{who: who, news: make(chan struct{}, 1)}
	v := s.open[address]
	if v == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		v = &view{watchers: map[*watcher]struct{}{}, cancel: cancel}
		s.open[address] = v
		s.running.Go(func() { s.read(ctx, address, v, p, r) })
	}
	v.watchers[w] = struct{}{}
	if v.content != nil {
		w.news <- struct{}{}
	}
	return w, nil
}

func (s *views) leave(address string, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	v := s.open[address]
	delete(v.watchers, w)
	if len(v.watchers) == 0 {
		v.cancel()
		delete(s.open, address)
	}
}

// latest is what a watcher is to be shown, and what one must be allowed to ask to see it.
func (s *views) latest(address string) (content []byte, asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.open[address]
	return v.content, v.asked
}

// age is how old the data of an address is; false: it was not read yet.
func (s *views) age(address string) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.open[address].readAt
	return time.Since(at), !at.IsZero()
}

// read reads a URL repeatedly, until it has no viewers.
func (s *views) read(ctx context.Context, address string, v *view, p page, r *http.Request) {
	defer v.cancel()
	ticker := time.NewTicker(s.console.opt.Every)
	defer ticker.Stop()
	for {
		s.readOnce(ctx, address, v, p, r)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readOnce reads with the rights of any of the viewers; the others see the result only if they may send the same requests. A viewer whose
// token has expired is skipped, and its stream ends.
func (s *views) readOnce(ctx context.Context, address string, v *view, p page, r *http.Request) {
	for _, who := range s.callers(v) {
		made, asked, err := s.console.make(ctx, p, who, r)
		var refused *refusedError
		if errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
			continue
		}
		if err != nil {
			return // the ledger's failure is logged where it is asked; the page keeps what it shows
		}
		made.Live = address
		html, err := part(p.template, made)
		if err != nil {
			s.console.opt.Log.ErrorContext(ctx, "sending a live page of the console", "page", p.pattern, "error", err)
			return
		}
		s.publish(v, asked, html)
		return
	}
}

func (s *views) callers(v *view) []caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []caller
	for w := range v.watchers {
		all = append(all, w.who)
	}
	return all
}

func (s *views) publish(v *view, asked []string, html []byte) {
	sum := sha256.Sum256(html)
	data, err := json.Marshal(string(html)) // one line, whatever is in it
	if err != nil {
		return // strings can be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.asked, v.readAt = asked, time.Now()
	if v.content != nil && sum == v.sum {
		return
	}
	v.content, v.sum = data, sum
	for w := range v.watchers {
		select {
		case w.news <- struct{}{}:
		default: // it has not looked yet
		}
	}
}

// find says which live page an address is of, and the request for it.
func (c *Console) find(ctx context.Context, address string) (page, *http.Request, bool) {
	at, err := url.Parse(address)
	if err != nil || at.IsAbs() || at.Host != "" || len(address) > 2048 {
		return page{}, nil, false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return page{}, nil, false
	}
	var found *page
	mux := http.NewServeMux()
	for _, p := range c.pages {
		if p.still {
			continue
		}
		mux.HandleFunc("GET "+p.pattern, func(_ http.ResponseWriter, matched *http.Request) { found, r = &p, matched })
	}
	mux.ServeHTTP(&answer{header: http.Header{}}, r)
	if found == nil {
		return page{}, nil, false
	}
	return *found, r, true
}

// stream keeps one page live: an event "page" whenever it looks different, and "end" when there is nothing more to come.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	who, err := c.caller(r)
	if err != nil {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	address := r.URL.Query().Get("view")
	p, view, ok := c.find(context.WithoutCancel(r.Context()), address)
	if !ok {
		http.Error(w, "page not found", http.StatusNotFound)
		return
	}
	watching, err := c.views.join(address, who, p, view)
	if err != nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer c.views.leave(address, watching)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy must not collect what is to be seen at once
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }() // the connection may serve further requests
	if out.send("hello", []byte("null")) != nil {
		return
	}
	c.follow(r.Context(), out, address, watching)
}

// follow sends what is new to one stream until it ends. Before something is shown that others asked for, and every now and then, the
// watcher's own right to it is asked about (NET-5).
func (c *Console) follow(ctx context.Context, out *eventWriter, address string, watching *watcher) {
	again, beat := time.NewTicker(c.opt.Recheck), time.NewTicker(c.opt.Beat)
	defer again.Stop()
	defer beat.Stop()
	pending := false // there is something that was not shown yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.views.ctx.Done():
			return
		case <-beat.C:
			if c.beat(out, address) != nil {
				return
			}
			continue
		case <-watching.news:
			pending = true
		case <-again.C:
		}
		content, asked := c.views.latest(address)
		may, over := c.may(ctx, watching.who, asked)
		if over { // NET-5
			_ = out.send("end", []byte(`"You no longer have access: reload the page."`))
			return
		}
		if pending && may {
			pending = false
			if out.send("page", content) != nil {
				return
			}
		}
		if c.beat(out, address) != nil {
			return
		}
	}
}

// beat reports how old the data of a stream's page is, in milliseconds. A browser that hears nothing, or of old data alone, stops calling the page live;
// and a stream that is cut is noticed on both sides.
func (c *Console) beat(out *eventWriter, address string) error {
	age, read := c.views.age(address)
	if !read {
		age = c.opt.Fresh
	}
	return out.send("fresh", strconv.AppendInt(nil, age.Milliseconds(), 10))
}

// may reports whether the caller may ask for all of this, and whether that is over. Neither, when it could not be asked: then nothing is shown
// until it can be.
func (c *Console) may(ctx context.Context, who caller, asked []string) (may, over bool) {
	if len(asked) == 0 { // nothing was read yet: whether the token still holds
		_, err := c.known(ctx, who)
		var refused *refusedError
		return false, errors.As(err, &refused) && refused.Status == http.StatusUnauthorized
	}
	for _, path := range asked {
		err := ask(ctx, c.opt.Admission, who, reading(path), nil)
		var refused *refusedError
		if errors.As(err, &refused) {
			return false, refused.Status != http.StatusServiceUnavailable
		}
		if err != nil {
			return false, false
		}
	}
	return true, false
}

// eventWriter writes server-sent events, each within a bound.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventWriter) send(event string, data []byte) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	for _, piece := range [][]byte{[]byte("event: " + event + "\ndata: "), data, []byte("\n\n")} {
		if _, err := e.w.Write(piece); err != nil {
			return err
		}
	}
	return e.control.Flush()
}
