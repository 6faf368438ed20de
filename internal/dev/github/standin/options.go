package standin

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Installation is an account that has the App installed.
type Installation struct {
	// ID is the installation's id; 0 has one assigned.
	ID int64 `json:"id"`
	// Account is the login of an organization or a user.
	Account string `json:"account"`
	// Type is "Organization" (default) or "User".
	Type string `json:"type"`
	// Repositories are the account's repositories the App may see, without the owner: "app".
	Repositories []string `json:"repositories"`
	// RunnerGroups are the organization's, beside Default. Their ids count from 2.
	RunnerGroups []string `json:"runner_groups,omitempty"`
	// GroupAccess says which repositories the groups serve, by their names; "Default" is one of them.
	GroupAccess map[string]GroupAccess `json:"runner_group_access,omitempty"`
	// PublicRepositories are those of Repositories that are public; the others are private.
	PublicRepositories []string `json:"public_repositories,omitempty"`
	// Suspended is only read: see Server.Suspend.
	Suspended bool `json:"suspended,omitempty"`
}

// RateLimit is one bucket of the REST API.
type RateLimit struct {
	// Limit is how many calls one installation may make per Window; 0 takes the default, a negative one means none.
	Limit int
	// Window is the length of a window; 0 takes the default.
	Window time.Duration
}

// Options configures a Server. The zero value of a field takes the default that its comment names.
type Options struct {
	// URL is the base address under which clients and runners reach the server, without a path. Required.
	URL string
	// AppID is the GitHub App's id. Required.
	AppID int64
	// AppSlug names the App. Default "bullpen-dev".
	AppSlug string
	// AppKey verifies App JWTs. Required.
	AppKey *rsa.PublicKey
	// Installations exist from the start; their "installation created" webhooks go out when Run begins.
	Installations []Installation
	// Enterprises and Tokens exist from the start, too.
	Enterprises []Enterprise
	Tokens      []PersonalToken
	// AdminToken, if set, guards the admin API.
	AdminToken string

	// Secrets are those of every repository, by their names in upper case. They are kept in no state file.
	Secrets map[string]string

	// WebhookURL and WebhookSecret say where webhooks go. With no URL they are listed as failed deliveries.
	WebhookURL    string
	WebhookSecret string
	// WebhookTimeout is the deadline of one delivery. Default 10 s, as on github.com.
	WebhookTimeout time.Duration
	// WebhookConcurrency is how many deliveries run at once. Default 16.
	WebhookConcurrency int
	// ShuffleWebhooks gives up the order of one job's webhooks, which GitHub does not promise either.
	ShuffleWebhooks bool
	// MaxDeliveries is how many deliveries are remembered. Default 50,000.
	MaxDeliveries int
	// HTTPClient delivers webhooks. Default: a client of its own that follows no redirects.
	HTTPClient *http.Client

	// Core and Registration are the REST buckets. Defaults 5,000 and 10,000 calls an hour for each installation.
	Core         RateLimit
	Registration RateLimit
	// SecondaryPoints is the secondary limit, in points per minute for each installation and route (a GET costs 1,
	// anything else 5). Default 0: none; github.com has 900.
	SecondaryPoints int
	// TokenLifetime is how long an installation or runner token lives. Default 1 h.
	TokenLifetime time.Duration

	// PollHold is how long an idle poll is held. Default 50 s.
	PollHold time.Duration
	// AcquireWithin is how long an assigned runner may take to acquire its job before it is queued again. Default 60 s.
	AcquireWithin time.Duration
	// LostAfter is how long a running job may go without a renewal before it fails and counts as lost. Default 10 min.
	LostAfter time.Duration
	// OfflineAfter is how long a runner counts as online after its last poll ended. Default 60 s.
	OfflineAfter time.Duration
	// QueueLimit is the longest a job may be queued. Default 24 h.
	QueueLimit time.Duration
	// EphemeralCleanup is when an ephemeral runner that is offline, or never came, is removed. Default 24 h.
	EphemeralCleanup time.Duration
	// StaticCleanup is the same for those that take job after job. Default 14 days.
	StaticCleanup time.Duration
	// SessionAfterJob is how long the session of an ephemeral runner outlives its one job, unless the runner deletes it. Default 30 s.
	SessionAfterJob time.Duration
	// CancelGrace is how long a runner may take to end a cancelled job. Default 5 min.
	CancelGrace time.Duration

	// RunnerKeys is how many RSA keys are made ahead. Default 4.
	RunnerKeys int
	// FreshKeys gives every registration a key of its own; otherwise the RunnerKeys keys are reused in turn, because
	// making one costs a tenth of a second of processor time.
	FreshKeys bool
	// LogLimit is the largest log kept of one step or job, in bytes. Default 4 MiB. The rest is dropped, and said so.
	LogLimit int

	// StateFile keeps the state across restarts, as JSON, rewritten about a second after a change (later when there is much to write) and
	// when Run ends. Logs beyond 64 MiB in total, and all but the latest 500 deliveries, are not kept. Default: none.
	StateFile string

	// Assign, if set, chooses among the runners that could take a job; it returns an index into candidates.
	Assign func(job JobView, candidates []RunnerView) int
	// ShuffleAssignment chooses a runner by Pick instead of the one that has been idle longest.
	ShuffleAssignment bool

	// Now is the clock. Default time.Now.
	Now func() time.Time
	// After is the clock's timer. Default time.After.
	After func(time.Duration) <-chan time.Time
	// Random feeds tokens and GUIDs. Default crypto/rand.
	Random io.Reader
	// Pick returns a number in [0, n). Default math/rand.
	Pick func(n int) int
	// Logger gets one line for each event that matters to an administrator. Default: discarded.
	Logger *slog.Logger
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) setDefaults() {
	orDefault(&o.AppSlug, "bullpen-dev")
	orDefault(&o.WebhookTimeout, 10*time.Second)
	orDefault(&o.WebhookConcurrency, 16)
	orDefault(&o.MaxDeliveries, 50_000)
	orDefault(&o.Core.Limit, 5_000)
	orDefault(&o.Core.Window, time.Hour)
	orDefault(&o.Registration.Limit, 10_000)
	orDefault(&o.Registration.Window, time.Hour)
	orDefault(&o.TokenLifetime, time.Hour)
	orDefault(&o.PollHold, 50*time.Second)
	orDefault(&o.AcquireWithin, time.Minute)
	orDefault(&o.LostAfter, 10*time.Minute)
	orDefault(&o.OfflineAfter, time.Minute)
	orDefault(&o.QueueLimit, 24*time.Hour)
	orDefault(&o.EphemeralCleanup, 24*time.Hour)
	orDefault(&o.StaticCleanup, 14*24*time.Hour)
	orDefault(&o.SessionAfterJob, 30*time.Second)
	orDefault(&o.CancelGrace, 5*time.Minute)
	orDefault(&o.RunnerKeys, 4)
	orDefault(&o.LogLimit, 4<<20)
	if o.HTTPClient == nil {
		o.HTTPClient = newHookClient(o.WebhookConcurrency)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Pick == nil {
		o.Pick = mathrand.IntN
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return fmt.Errorf("the stand-in's URL %q is not usable: give the http(s) address that runners will call, such as http://127.0.0.1:8090", o.URL)
	}
	if strings.Trim(base.Path, "/") != "" {
		return fmt.Errorf("the stand-in's URL %q has a path: it must be served at the root of its address", o.URL)
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.AppID <= 0 {
		return errors.New("the App id must be a positive number: it is what the App JWT names as its issuer")
	}
	if o.AppKey == nil {
		return errors.New("the App's key is missing: App JWTs cannot be checked without its public part")
	}
	return validateWebhookURL(o.WebhookURL)
}

func validateWebhookURL(target string) error {
	if target == "" {
		return nil
	}
	hook, err := url.Parse(target)
	if err != nil || hook.Host == "" || (hook.Scheme != "http" && hook.Scheme != "https") {
		return fmt.Errorf("the webhook URL %q is not usable: give an http(s) address such as http://127.0.0.1:8080/webhooks/github", target)
	}
	return nil
}
