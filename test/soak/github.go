package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// Times of the stand-in, which are minutes at GitHub: everything that waits for one of them is over sooner here.
const (
	offlineAfter  = 6 * time.Second
	acquireWithin = 10 * time.Second
)

// gitHub is the stand-in in this process, behind a listener that writes down what was minted and removed, and every secret
// that it gave out.
type gitHub struct {
	server *standin.Server
	url    string
	dir    string // evidence

	http  *http.Server
	stop  context.CancelFunc
	tasks sync.WaitGroup
	down  atomic.Bool

	removesBusy atomic.Int32 // faults that are in force by which it removes runners that have a job
}

func accountName(n int) string { return fmt.Sprintf("org-%d", n) }
func installation(n int) int64 { return int64(100 + n) }

func (s *System) startGitHub(webhooks, hookSecret string) (*gitHub, error) {
	listener, err := new(net.ListenConfig).Listen(s.ctx, "tcp", s.keptAddress("github"))
	if err != nil {
		return nil, fmt.Errorf("listening for the stand-in: %w", err)
	}
	public, err := s.appKey()
	if err != nil {
		return nil, err
	}
	g := &gitHub{url: "http://" + listener.Addr().String(), dir: s.evidenceDir()}
	options := standin.Options{
		URL: g.url, AppID: 1, AppKey: public, WebhookURL: webhooks, WebhookSecret: hookSecret,
		WebhookTimeout: 5 * time.Second, ShuffleAssignment: true, ShuffleWebhooks: true, StateFile: filepath.Join(s.dir, "github.json"),
		OfflineAfter: offlineAfter, AcquireWithin: acquireWithin, LostAfter: s.opts.LostAfter,
		Registration: standin.RateLimit{Limit: 1_000_000}, Core: standin.RateLimit{Limit: 1_000_000},
	}
	for n := range schedule.Accounts {
		options.Installations = append(options.Installations, standin.Installation{
			ID: installation(n + 1), Account: accountName(n + 1), Repositories: []string{"app"},
		})
	}
	if g.server, err = standin.New(options); err != nil {
		return nil, err
	}
	g.server.RemoveFault(0) // of an interrupted round
	var ctx context.Context
	ctx, g.stop = context.WithCancel(s.ctx)
	g.http = &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second}
	g.tasks.Go(func() { _ = g.server.Run(ctx) }) // it returns only when ctx ends
	g.tasks.Go(func() { _ = g.http.Serve(listener) })
	return g, nil
}

func (g *gitHub) close() {
	_ = g.http.Close()
	g.stop()
	g.tasks.Wait()
}

// ServeHTTP implements http.Handler.
func (g *gitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.down.Load() {
		panic(http.ErrAbortHandler) // the connection is cut
	}
	mint, token := strings.HasSuffix(r.URL.Path, "/generate-jitconfig"), strings.HasSuffix(r.URL.Path, "/access_tokens")
	removal := r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/actions/runners/")
	if !mint && !token && !removal {
		g.server.ServeHTTP(w, r)
		return
	}
	seen := &tee{ResponseWriter: w, status: http.StatusOK}
	// Noted also when the answer is cut: it has taken effect.
	defer func() { g.note(r, seen, mint, token) }()
	g.server.ServeHTTP(seen, r)
}

type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap lets the stand-in reach the connection.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *tee) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *tee) Write(data []byte) (int, error) {
	t.body.Write(data)
	return t.ResponseWriter.Write(data)
}

func (g *gitHub) note(r *http.Request, seen *tee, mint, token bool) {
	call := check.GitHubCall{At: time.Now().UTC(), Method: r.Method, Path: r.URL.Path, Status: seen.status}
	var answered struct {
		Runner struct {
			Name string `json:"name"`
		} `json:"runner"`
		JIT   string `json:"encoded_jit_config"`
		Token string `json:"token"`
	}
	if mint || token {
		_ = json.Unmarshal(seen.body.Bytes(), &answered) // an error's answer has none of it
	}
	call.Runner = answered.Runner.Name
	_ = appendLines(filepath.Join(g.dir, check.FileCalls), []check.GitHubCall{call})
	for kind, secret := range map[string]string{"JIT configuration": answered.JIT, "installation token": answered.Token} {
		if secret != "" {
			_ = appendLines(filepath.Join(g.dir, check.FileSecrets), []check.Secret{{Kind: kind, Text: secret}})
		}
	}
}

var appending sync.Mutex

// appendLines appends values to a file that is its owner's alone, each as a line of JSON.
func appendLines[T any](path string, values []T) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, v := range values {
		if err := encoder.Encode(v); err != nil {
			return fmt.Errorf("encoding a line of %s: %w", path, err)
		}
	}
	appending.Lock()
	defer appending.Unlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer file.Close()
	if _, err := file.Write(text.Bytes()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
