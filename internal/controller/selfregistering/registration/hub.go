package registration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// HubOptions configures a Hub.
type HubOptions struct {
	// Secrets to read credentials from. Required.
	Secrets Secrets
	// App is the installation's own GitHub App, which is used where no Secret is named; nil where there is none.
	App *github.Client
	// GitHub is what all clients have in common: the address, the clock, limits, shared metrics. Its credentials are not used, and
	// it must not have a Registerer.
	GitHub github.Options
	// Calls is how many calls may be under way at a time with one set of credentials; 32 when zero.
	Calls int
	// CallTimeout is how long one call of a Registrar takes at most; 30 seconds when zero. A list of many pages may take four
	// times as long.
	CallTimeout time.Duration
	// MaxClients is how many sets of credentials are kept at a time; 256 when zero. The longest unused goes first.
	MaxClients int
	// Idle is how long an unused client is kept; an hour when zero.
	Idle time.Duration
	// Registerer takes the metrics; none are exported when nil.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

func (o HubOptions) withDefaults() (HubOptions, error) {
	if o.Secrets == nil {
		return o, errors.New("registrations need a reader of Secrets")
	}
	if o.GitHub.Registerer != nil {
		return o, errors.New("clients that share metrics register none: set Metrics")
	}
	if o.Calls == 0 {
		o.Calls = 32
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.MaxClients == 0 {
		o.MaxClients = 256
	}
	if o.Idle == 0 {
		o.Idle = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.GitHub.Now == nil {
		o.GitHub.Now = o.Now
	}
	if o.GitHub.Metrics == nil {
		metrics, err := github.NewMetrics(nil)
		if err != nil {
			return o, err
		}
		o.GitHub.Metrics = metrics
	}
	return o, nil
}

// Hub gives out Registrars, and has one client for each set of credentials: what one set does or suffers is no other's business.
// It is safe for concurrent use.
type Hub struct {
	options HubOptions
	app     *account // nil: there is no App

	mu       sync.Mutex
	accounts map[Credentials]*account
}

var _ Registrars = (*Hub)(nil)

// NewHub validates the options and returns a Hub. It sends no request.
func NewHub(options HubOptions) (*Hub, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring registrations: %w", err)
	}
	h := &Hub{options: options, accounts: map[Credentials]*account{}}
	if options.App != nil {
		h.app = newAccount("the GitHub App of this installation", options.App, identity{}, options)
	}
	if options.Registerer != nil {
		if err := options.Registerer.Register(&limitCollector{h}); err != nil {
			return nil, fmt.Errorf("configuring registrations: %w", err)
		}
	}
	return h, nil
}

// For implements Registrars.
func (h *Hub) For(ctx context.Context, credentials Credentials, target Target) (Registrar, error) {
	scope, err := scopeOf(target)
	if err != nil {
		return nil, err
	}
	account, err := h.account(ctx, credentials)
	if err != nil {
		return nil, err
	}
	return account.at(ctx, scope, target)
}

// account is the client for credentials as they are now.
func (h *Hub) account(ctx context.Context, credentials Credentials) (*account, error) {
	if credentials.Secret == "" {
		if h.app == nil {
			return nil, fmt.Errorf("%w: this installation of Bullpen has no GitHub App: set credentials.secretName", ErrCredentials)
		}
		return h.app, nil
	}
	data, version, err := h.options.Secrets.Secret(ctx, credentials.Namespace, credentials.Secret)
	if errors.Is(err, ErrNoSecret) {
		h.drop(credentials)
		return nil, fmt.Errorf("%w: there is no Secret %s in namespace %s", ErrCredentials, credentials.Secret, credentials.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s in namespace %s: %w", credentials.Secret, credentials.Namespace, err)
	}
	return h.current(credentials, data, version)
}

// current is the client that is kept, if it is of that version of the Secret, and a new one otherwise. A Secret that has
// changed elsewhere than in its credentials keeps its client, with all that it knows of limits.
func (h *Hub) current(credentials Credentials, data map[string][]byte, version string) (*account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.options.Now()
	kept, ok := h.accounts[credentials]
	if ok && kept.version == version && version != "" {
		kept.used = now
		return kept, nil
	}
	unusable := func(err error) error {
		delete(h.accounts, credentials)
		return fmt.Errorf("%w: Secret %s in namespace %s: %w", ErrCredentials, credentials.Secret, credentials.Namespace, err)
	}
	who, err := parseIdentity(data)
	if err != nil {
		return nil, unusable(err)
	}
	if ok && kept.identity == who {
		kept.version, kept.used = version, now
		return kept, nil
	}
	client, err := who.client(h.options.GitHub)
	if err != nil {
		return nil, unusable(err)
	}
	name := fmt.Sprintf("what Secret %s in namespace %s holds", credentials.Secret, credentials.Namespace)
	fresh := newAccount(name, client, who, h.options)
	fresh.version, fresh.used = version, now
	h.accounts[credentials] = fresh
	h.tidy(now)
	return fresh, nil
}

func (h *Hub) drop(credentials Credentials) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.accounts, credentials)
}

// tidy drops unused clients, and the longest unused ones if there are too many. Requests in flight continue.
func (h *Hub) tidy(now time.Time) {
	for credentials, one := range h.accounts {
		if now.Sub(one.used) > h.options.Idle {
			delete(h.accounts, credentials)
		}
	}
	for len(h.accounts) > h.options.MaxClients {
		var oldest Credentials
		var since time.Time
		for credentials, one := range h.accounts {
			if since.IsZero() || one.used.Before(since) {
				oldest, since = credentials, one.used
			}
		}
		delete(h.accounts, oldest)
	}
}

// Runs is github.Client's, with the credentials that runners of the target use.
func (h *Hub) Runs(
	ctx context.Context, credentials Credentials, target Target, repository, status string, page int,
) (list []github.Run, next int, err error) {
	at, err := h.repository(ctx, credentials, target, repository)
	if err != nil {
		return nil, 0, err
	}
	err = at.read(ctx, func(ctx context.Context) error {
		list, next, err = at.account.client.Runs(ctx, at.installation, at.scope.String(), status, page)
		return err
	})
	return list, next, err
}

// RunJobs is github.Client's, with the credentials that runners of the target use.
func (h *Hub) RunJobs(
	ctx context.Context, credentials Credentials, target Target, repository string, runID int64, page int,
) (list []github.WorkflowJob, next int, err error) {
	at, err := h.repository(ctx, credentials, target, repository)
	if err != nil {
		return nil, 0, err
	}
	err = at.read(ctx, func(ctx context.Context) error {
		list, next, err = at.account.client.RunJobs(ctx, at.installation, at.scope.String(), runID, page)
		return err
	})
	return list, next, err
}

// repository is the place whose queue is read: the target itself, or one of the repositories that its runners serve.
func (h *Hub) repository(ctx context.Context, credentials Credentials, target Target, repository string) (*place, error) {
	if target.Repository != repository {
		target = Target{Repository: repository}
	}
	scope, err := scopeOf(target)
	if err != nil {
		return nil, err
	}
	account, err := h.account(ctx, credentials)
	if err != nil {
		return nil, err
	}
	return account.at(ctx, scope, target)
}
