package githubapp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
)

// DefaultSecret is the chart's github.secret.name.
const DefaultSecret = "bullpen-github"

const (
	// LongestWait is for how long GitHub takes a registration by manifest.
	LongestWait = time.Hour
	// lastAnswer bounds how long the browser may take to read the last page.
	lastAnswer = 5 * time.Second
	// storing bounds how long the credentials may take to be stored.
	storing = time.Minute
)

// Options of Run.
type Options struct {
	App App
	// API is GitHub's, as github.APIAddress returns it. Transport leads there; nil: by the environment's proxy.
	API       string
	Transport http.RoundTripper
	Store     Store
	// Listen is the loopback address for the browser; a free port of 127.0.0.1 when empty.
	Listen string
	// Wait bounds how long the user may take; LongestWait when zero.
	Wait time.Duration
	// RequestTimeout is of one request to GitHub; 30 s when zero.
	RequestTimeout time.Duration
	// Open shows a URL in the user's browser; nil: it is printed only.
	Open func(ctx context.Context, url string) error
	// Out gets instructions; discarded when nil.
	Out io.Writer
	// After is a timer; time.After when nil. Random cannot be guessed; crypto/rand when nil. Now is the clock; time.Now when nil.
	After  func(time.Duration) <-chan time.Time
	Random io.Reader
	Now    func() time.Time

	out *sync.Mutex // of Out
}

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.App, err = o.App.withDefaults(); err != nil {
		return o, err
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if host, _, err := net.SplitHostPort(o.Listen); err != nil || !net.ParseIP(host).IsLoopback() {
		return o, fmt.Errorf("--listen must be a loopback address and a port, such as 127.0.0.1:8765, got %q: GitHub's code arrives there unencrypted", o.Listen)
	}
	if unencrypted(o.API) {
		return o, fmt.Errorf("--github-url: %s is not encrypted, and would send the App's private key: use https", o.API)
	}
	if o.Wait == 0 {
		o.Wait = LongestWait
	}
	if o.Wait < 0 || o.Wait > LongestWait {
		return o, fmt.Errorf("--timeout must be greater than 0 and at most %s, after which GitHub ends the registration; got %s", LongestWait, o.Wait)
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.out = &sync.Mutex{}
	return o, nil
}

// unencrypted reports whether an API answers without encryption, other than on this machine.
func unencrypted(api string) bool {
	at, err := url.Parse(api)
	return err != nil || at.Scheme != "https" && !local(at.Hostname())
}

// say writes instructions, also from handlers of requests.
func (o Options) say(format string, args ...any) {
	o.out.Lock()
	defer o.out.Unlock()
	fmt.Fprintf(o.Out, format, args...)
}

// Run registers the App and stores its credentials. It returns when the user has confirmed the App at GitHub, when the wait is over
// (ErrTimeout) or ctx ends (ErrCanceled). A *SaveError says that there is an App, and that its credentials are lost.
func Run(ctx context.Context, o Options) (result Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Result{}, err
	}
	if err := o.Store.Check(ctx); err != nil {
		return Result{}, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return Result{}, fmt.Errorf("listening for the browser: %w. Choose another port with --listen", err)
	}
	c, err := newCallback(o, listener.Addr().String())
	if err != nil {
		return Result{}, errors.Join(err, listener.Close())
	}
	server := httpserver.New(c.handler())
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- server.Serve(listener) })
	defer func() {
		c.finish(result, err)
		stop(ctx, server)
		serving.Wait()
	}()
	o.invite(ctx, c.startURL())
	select {
	case code := <-c.codes:
		return o.complete(ctx, code)
	case <-o.After(o.Wait):
		return Result{}, ErrTimeout
	case <-ctx.Done():
		return Result{}, ErrCanceled
	case failed := <-served:
		return Result{}, fmt.Errorf("serving the browser: %w", failed)
	}
}

// stop lets the browser read its last page.
func stop(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswer)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // a browser that does not read has had its time
	}
}

// invite tells the user where to go.
func (o Options) invite(ctx context.Context, at string) {
	o.say("Open this URL in a browser that is logged in to %s:\n\n  %s\n\nGitHub asks you to confirm the App there. If it says that the name is taken, choose another on that page.\nThe credentials are then stored in %s.\nWaiting for %s (Ctrl-C cancels).\n",
		github.WebAddress(o.API), at, o.Store, o.Wait)
	if o.Open == nil {
		return
	}
	if err := o.Open(ctx, at); err != nil {
		o.say("No browser could be started: %v. Open the URL yourself.\n", err)
	}
}

// complete exchanges the code and stores what comes back. GitHub shows the private key once, so from here on Ctrl-C interrupts nothing.
func (o Options) complete(ctx context.Context, code string) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	app, err := o.exchange(ctx, code)
	if err != nil {
		return Result{}, err
	}
	result := o.result(app)
	ctx, cancel := context.WithTimeout(ctx, storing)
	defer cancel()
	if err := o.Store.Save(ctx, app); err != nil {
		return Result{}, &SaveError{Name: app.Name, ID: app.ID, SettingsURL: result.SettingsURL, Err: err}
	}
	return result, nil
}

// exchange tries a second time when it is not known whether GitHub has answered: the code may still be unused.
func (o Options) exchange(ctx context.Context, code string) (github.CreatedApp, error) {
	by := github.Conversion{API: o.API, Transport: o.Transport, Timeout: o.RequestTimeout, Now: o.Now}
	app, err := github.ConvertManifest(ctx, by, code)
	if errors.Is(err, fleet.ErrUncertain) {
		first := err
		if app, err = github.ConvertManifest(ctx, by, code); err != nil {
			err = fmt.Errorf("%w; at the second attempt: %w", first, err)
		}
	}
	if err != nil {
		return app, fmt.Errorf("%w. If the App is listed at %s, delete it, and run the command again", err, settingsOf(o))
	}
	return app, nil
}

// settingsOf is the list of the owner's Apps.
func settingsOf(o Options) string {
	site := github.WebAddress(o.API)
	if o.App.Organization == "" {
		return site + "/settings/apps"
	}
	return site + "/organizations/" + o.App.Organization + "/settings/apps"
}

func yamlOf(values any) (string, error) {
	encoded, err := yaml.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encoding the values: %w", err)
	}
	return string(encoded), nil
}
