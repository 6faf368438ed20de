package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	gh "github.com/google/go-github/v88/github"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// DefaultBaseURL is GitHub's own API.
const DefaultBaseURL = "https://api.github.com"

// Options of New.
type Options struct {
	// BaseURL of the API: DefaultBaseURL when empty; https://HOST/api/v3 for GitHub Enterprise Server.
	BaseURL string
	// AppID of the GitHub App.
	AppID int64
	// PrivateKey of the App, PEM. UseKey replaces it.
	PrivateKey []byte
	// Token is a personal access token, instead of an App. Every method that takes an installation then takes OwnToken.
	Token fleet.Secret
	// Transport for all requests; a tuned copy of net/http's default when nil.
	Transport http.RoundTripper
	// Timeout of one request; 10 seconds when zero. A shorter deadline of the caller wins.
	Timeout time.Duration
	// MaxInstallations is how many installations' tokens and limits are kept; 1024 when zero. The least recently
	// used is dropped first.
	MaxInstallations int
	// Points a minute that this replica spends at most in an installation's name; DefaultPoints at GitHub's own API when
	// zero, and no limit at any other; negative: no limit.
	Points int
	// MaxConcurrent requests in an installation's name; 80 when zero: GitHub allows 100. A fifth of them for sweeps.
	MaxConcurrent int
	// Jitter is a number in [0, 1) for back-offs; random when nil.
	Jitter func() float64
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Log gets a line for each token that had to be renewed early; discarded when nil.
	Log *slog.Logger
	// Registerer takes the metrics; none are exported when nil.
	Registerer prometheus.Registerer
	// Metrics that several clients share; the client has its own when nil.
	Metrics *Metrics
}

// OwnToken replaces an installation's id where the client has a token of its own.
const OwnToken int64 = 0

func (o Options) withDefaults() (Options, error) {
	if o.BaseURL == "" {
		o.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" || base.User != nil ||
		base.RawQuery != "" {
		return o, errors.New("the GitHub API address must look like https://api.github.com or https://HOST/api/v3")
	}
	o.BaseURL = strings.TrimRight(o.BaseURL, "/")
	if err := o.checkCredentials(); err != nil {
		return o, err
	}
	if o.Transport == nil {
		o.Transport = newHTTPTransport(nil)
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Points == 0 && o.BaseURL == DefaultBaseURL {
		o.Points = DefaultPoints
	}
	o.Points = max(0, o.Points)
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = 80
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.MaxInstallations == 0 {
		o.MaxInstallations = 1024
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func (o Options) checkCredentials() error {
	token := o.Token.Reveal()
	switch {
	case token == "" && o.AppID <= 0:
		return errors.New("the GitHub App's id is missing: it is on the App's settings page")
	case token != "" && (o.AppID != 0 || len(o.PrivateKey) != 0):
		return errors.New("there are a token and a GitHub App: a client uses one of them")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token is not one that GitHub gives: it holds spaces, line breaks or other characters")
	}
	return nil
}

// Client calls GitHub as an App and as its installations, or with a token of its own. It is safe for concurrent use.
//
// Every method bounds each of its requests by Options.Timeout and fails with an error of fleet: ErrNotFound,
// ErrForbidden, ErrRejected, ErrNameTaken, ErrRunnerBusy, ErrUncertain or *RateLimitedError. None sleeps or repeats a
// request, with one exception: a 401 proves that nothing was done. Then a request is repeated once, with a fresh token
// where it had a cached one, and with another date where GitHub's clock differs from the JWT's.
type Client struct {
	options Options
	signer  *signer       // nil with a token
	clock   *remoteClock  // GitHub's
	own     *installation // the App itself, or the token
	cache   *cache
	etags   *etagStore
	metrics *Metrics

	installations *lookups[string, int64]
	repositories  *lookups[repositoryKey, fleet.Repository]
	groups        *lookups[groupKey, int64]
}

// New checks the options and returns a client. It does not speak to GitHub yet.
func New(options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the GitHub client: %w", err)
	}
	c := &Client{
		options: options, metrics: options.Metrics, etags: newETagStore(), clock: newRemoteClock(options.Now, options.Log),
		installations: newLookups[string, int64](options.Now),
		repositories:  newLookups[repositoryKey, fleet.Repository](options.Now), groups: newLookups[groupKey, int64](options.Now),
	}
	if !c.hasToken() {
		key, err := parseKey(options.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("configuring the GitHub client: %w", err)
		}
		c.signer = newSigner(key, c.clock)
	}
	if c.own, err = c.newInstallation(0); err != nil {
		return nil, fmt.Errorf("configuring the GitHub client: %w", err)
	}
	c.cache = newCache(options.MaxInstallations, c.newInstallation)
	if err = c.measure(); err != nil {
		return nil, fmt.Errorf("configuring the GitHub client: %w", err)
	}
	return c, nil
}

func (c *Client) hasToken() bool { return c.options.Token.Reveal() != "" }

// installation is the connection for one installation (0: the App itself, or a token's owner): its token, its limits. What
// one does, or suffers, is no other's business.
type installation struct {
	id  int64
	api *gh.Client
	*discipline
}

func (c *Client) newInstallation(id int64) (*installation, error) {
	transport, err := c.transportOf(id)
	if err != nil {
		return nil, err
	}
	api, err := c.apiOver(transport)
	if err != nil {
		return nil, err
	}
	return &installation{id: id, api: api, discipline: newDiscipline(c.options)}, nil
}

func (c *Client) transportOf(id int64) (http.RoundTripper, error) {
	if c.hasToken() {
		return &etags{next: &bearer{token: c.options.Token, next: c.options.Transport}, installation: id, store: c.etags}, nil
	}
	// A transport of the App for each: ghinstallation writes into it when it renews a token.
	app, err := c.appTransport(c.signer)
	if err != nil || id == 0 {
		return app, err
	}
	return &etags{next: ghinstallation.NewFromAppsTransport(app, id), installation: id, store: c.etags}, nil
}

// appTransport speaks as the App, with a key of its own or the one in use.
func (c *Client) appTransport(with *signer) (*ghinstallation.AppsTransport, error) {
	answers := &clocked{next: c.options.Transport, clock: c.clock, signer: with, appID: c.options.AppID}
	app, err := ghinstallation.NewAppsTransportWithOptions(answers, c.options.AppID, ghinstallation.WithSigner(with))
	if err != nil {
		return nil, err
	}
	app.BaseURL = c.options.BaseURL
	return app, nil
}

func (c *Client) apiOver(transport http.RoundTripper) (*gh.Client, error) {
	base := c.options.BaseURL + "/"
	return gh.NewClient(
		gh.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: sameHostOnly}),
		gh.WithURLs(&base, nil), gh.WithUserAgent("bullpen"), gh.WithDisableRateLimitCheck(),
	)
}

// sameHostOnly follows redirects of renamed repositories, and no others: the transport adds our token to every
// request, so no request may go to another host, and a POST must not turn into a GET.
func sameHostOnly(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.URL.Host != first.URL.Host || req.URL.Scheme != first.URL.Scheme || req.Method != first.Method ||
		len(via) > 3 {
		return http.ErrUseLastResponse
	}
	return nil
}

// request is one call of go-github. It returns only after it stored what it read.
type request func(ctx context.Context, api *gh.Client) (*gh.Response, error)

// connection is the installation's, or the token's own.
func (c *Client) connection(id int64) (*installation, error) {
	switch {
	case c.hasToken() && id == OwnToken:
		return c.own, nil
	case c.hasToken() || id <= 0:
		return nil, fmt.Errorf("%d is not the id of an installation", id)
	default:
		return c.cache.get(id)
	}
}

// peek is the connection if there is one already.
func (c *Client) peek(id int64) (*installation, bool) {
	if c.hasToken() {
		return c.own, id == OwnToken
	}
	return c.cache.peek(id)
}

// asInstallation sends a request with the installation's token, or the client's own.
func (c *Client) asInstallation(ctx context.Context, id int64, name string, of class, m meanings, do request) error {
	in, err := c.connection(id)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	resp, err := c.once(ctx, in, of, do)
	if err != nil && resp != nil && resp.Response != nil && resp.StatusCode == http.StatusUnauthorized && in != c.own {
		c.options.Log.Info("GitHub refuses a token before its time, renewing it", "installation", id)
		if in, err = c.cache.renew(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		resp, err = c.once(ctx, in, of, do)
	}
	return c.finish(in, name, of, m, resp, err)
}

// asApp sends a request as the App itself.
func (c *Client) asApp(ctx context.Context, name string, do request) error {
	if c.hasToken() {
		return fmt.Errorf("%s: %w: it takes a GitHub App, and there is a token only", name, fleet.ErrRejected)
	}
	resp, err := c.once(ctx, c.own, classRead, do)
	return c.finish(c.own, name, classRead, nil, resp, err)
}

// once sends a request unless it is known that it would be refused, or should not be sent, and remembers what came back.
func (c *Client) once(caller context.Context, in *installation, of class, do request) (resp *gh.Response, err error) {
	ctx, cancel := context.WithTimeout(caller, c.options.Timeout)
	defer cancel()
	left, err := in.enter(ctx, of, c.options.Now)
	if err != nil {
		return nil, err
	}
	defer func() { left(caller, resp, err, c.options.Now(), c.options.Jitter()) }()
	resp, err = do(ctx, in.api)
	if resp != nil && resp.Response != nil {
		in.rates.observe(of, resp.Header, c.options.Now())
	}
	return resp, err
}

func (c *Client) finish(in *installation, name string, of class, m meanings, resp *gh.Response, err error) error {
	if !isLimited(err) {
		err = m.translate(resp, err, of, in.rates, c.options.Now())
	}
	c.metrics.count(name, err)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
