package standin

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// docsRoot is where error answers point, as GitHub's do.
const docsRoot = "https://docs.github.com"

// Server is the stand-in: an http.Handler whose webhooks and deadlines are driven by Run. Safe for concurrent use.
type Server struct {
	opts   Options
	log    *slog.Logger
	mux    *http.ServeMux
	keys   *keyPool
	blobs  *blobStore
	live   *liveLogs
	hooks  *hookSender
	faults *faultBook
	issuer issuerKey

	appKeys atomic.Pointer[jwt.VerificationKeySet] // any of which may sign as the App
	rights  atomic.Pointer[appRights]

	restRoutes []string  // their patterns, since New
	began      time.Time // when New made it

	mu            sync.Mutex // guards everything below
	ids           map[string]int64
	idBase        int64
	accounts      map[string]*account // by lower-case login
	installations map[int64]*account
	installOrder  []*account
	runners       map[int64]*runner
	clients       map[string]*runner // by OAuth client id
	runs          map[int64]*run
	runOrder      []*run
	jobs          map[int64]*job
	jobOrder      []*job
	guids         map[string]*job // by the runner protocol's job id
	requests      map[string]*job // by runner request id
	intentions    map[int64]int64 // job → the runner it was probably minted for
	appTokens     map[string]*installationToken
	runnerTokens  map[string]*runnerToken
	people        map[string]*personalToken
	registrations map[string]*registrationToken
	manifests     map[string]*manifestFlow // by the token of the page that a person confirms
	manifestCodes map[string]*manifestFlow // by the code that GitHub redirects with
	ownApps       []*manifestFlow          // Apps that were registered by a manifest, oldest first
	windows       map[string]*window
	calls         map[string]*RouteCalls
	deadlines     deadlineHeap
	deadlineSeq   int64
	jobSeq        int64
	messageSeq    int64
	gone          []RunnerRecord // registrations that were removed, oldest first
	lost          int
	requeued      int
	minted        int
	changed       chan struct{} // closed and replaced when something that a waiter may read has changed
	earlier       chan struct{} // a deadline before all others was added
	dirty         chan struct{} // the state file is out of date
	closing       chan struct{} // closed when Run ends: held polls are answered
}

// New builds a server. It serves at once; webhooks go out and deadlines are kept while Run runs.
func New(opts Options) (*Server, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, log: opts.Logger, began: opts.Now(),
		faults:   &faultBook{pick: opts.Pick},
		keys:     newKeyPool(opts.RunnerKeys, opts.FreshKeys),
		ids:      map[string]int64{},
		idBase:   max(0, opts.Now().Unix()-idEpoch) * 1000,
		accounts: map[string]*account{}, installations: map[int64]*account{},
		runners: map[int64]*runner{}, clients: map[string]*runner{},
		runs: map[int64]*run{}, jobs: map[int64]*job{}, guids: map[string]*job{}, requests: map[string]*job{},
		intentions: map[int64]int64{}, appTokens: map[string]*installationToken{}, runnerTokens: map[string]*runnerToken{},
		people: map[string]*personalToken{}, registrations: map[string]*registrationToken{},
		manifests: map[string]*manifestFlow{}, manifestCodes: map[string]*manifestFlow{},
		windows: map[string]*window{}, calls: map[string]*RouteCalls{},
		changed: make(chan struct{}), earlier: make(chan struct{}, 1), dirty: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	s.SetAppKeys(opts.AppKey)
	s.blobs, s.live = newBlobStore(opts.LogLimit), newLiveLogs(opts.LogLimit)
	s.hooks = newHookSender(s)
	if err := s.restore(); err != nil {
		return nil, err
	}
	for _, in := range opts.Installations {
		s.mu.Lock()
		var err error
		if a := s.accounts[strings.ToLower(in.Account)]; a == nil || a.installed() { // else it was uninstalled before a restart
			_, err = s.installLocked(in)
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	for _, enterprise := range opts.Enterprises {
		if _, err := s.AddEnterprise(enterprise); err != nil {
			return nil, err
		}
	}
	for _, token := range opts.Tokens {
		if _, err := s.AddToken(token); err != nil {
			return nil, err
		}
	}
	s.rights.Store(usualRights())
	s.mux = s.routes()
	return s, nil
}

// Run delivers webhooks and keeps deadlines until ctx ends, then answers held polls and waits for its own goroutines.
// It may be called once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.keys.fill(ctx) })
	s.mu.Lock()
	for _, a := range s.installOrder {
		if !a.announced {
			s.announceLocked(a)
		}
	}
	s.mu.Unlock()
	s.hooks.start(ctx)
	wg.Go(func() { s.keepState(ctx) })
	for {
		var due <-chan time.Time
		if next := s.Tick(); !next.IsZero() {
			due = s.opts.After(next.Sub(s.now()))
		}
		select {
		case <-ctx.Done():
			close(s.closing)
			s.hooks.wait()
			wg.Wait()
			return s.saveState()
		case <-due:
		case <-s.earlier:
		}
	}
}

// ServeHTTP serves the REST API (bare and under /api/v3), the runner protocol and the admin API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Runner clients join URLs by hand; a doubled slash must not become a redirect, which would lose the body.
	clean := r.URL.Path
	for strings.Contains(clean, "//") {
		clean = strings.ReplaceAll(clean, "//", "/")
	}
	clean = strings.TrimPrefix(clean, "/api/v3")
	if clean == "" {
		clean = "/"
	}
	if clean != r.URL.Path {
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = clean, ""
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.appRoutes(mux)
	s.manifestRoutes(mux)
	s.runnerRoutes(mux)
	s.registrationRoutes(mux)
	s.actionsRoutes(mux)
	s.repositoryRoutes(mux)
	s.brokerRoutes(mux)
	s.runServiceRoutes(mux)
	s.resultsRoutes(mux)
	s.idTokenRoutes(mux)
	s.adminRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &apiError{status: http.StatusNotFound, Message: "Not Found", DocumentationURL: docsRoot + "/rest"})
	})
	return mux
}

func (s *Server) now() time.Time { return s.opts.Now() }

// idEpoch keeps ids short, in Unix seconds.
const idEpoch = 1_750_000_000

// nextIDLocked counts one kind of thing that is configured. The start values keep ids of different kinds apart for a
// reader.
func (s *Server) nextIDLocked(kind string, start int64) int64 {
	s.ids[kind] = max(s.ids[kind], start) + 1
	return s.ids[kind]
}

// freshIDLocked numbers runs and jobs. A client that remembers them, as Bullpen remembers finished jobs forever
// (CLAIM-4), must never see an id again, also when the state file was lost or is outdated. So each start of the stand-in
// counts on from its clock, a thousand ids a second.
func (s *Server) freshIDLocked(kind string, start int64) int64 {
	s.ids[kind] = max(s.ids[kind], start+s.idBase) + 1
	return s.ids[kind]
}

func (s *Server) randomBytes(n int) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.opts.Random, b); err != nil {
		panic(fmt.Sprintf("standin: the source of randomness failed: %v", err)) // crypto/rand never does
	}
	return b
}

func (s *Server) guid() string {
	b := s.randomBytes(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (s *Server) token(prefix string) string { return prefix + hex.EncodeToString(s.randomBytes(20)) }

// changedLocked wakes the waiters for a run or a job.
func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.markDirty()
}

// markDirty asks for the state to be written. It needs no lock.
func (s *Server) markDirty() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// AddFault puts a fault in force and returns it with its id.
func (s *Server) AddFault(f Fault) (Fault, error) { return s.faults.add(f) }
