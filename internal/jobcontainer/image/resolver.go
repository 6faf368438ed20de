package image

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// Query asks for an image of a job.
type Query struct {
	// Tenant is whose job it is, such as its account. Concurrency is limited per tenant.
	Tenant string
	// Image is as written in the workflow, without docker://.
	Image string
	// Platform is that of the pod's node.
	Platform Platform
	// Credentials are for the image's registry, or nil. Those of another registry are not used.
	Credentials *jobcontainer.Credentials
	// Policy is that of the job's pool.
	Policy imagename.Policy
}

// Resolved is an image that the registry has for the platform and lets its credentials read.
type Resolved struct {
	// Reference is the image with the digest that its name had, for a container's spec: docker.io/library/postgres@sha256:…. It is
	// that of the index if the image has several platforms, as a pull by tag stores it on nodes.
	Reference string
	// Config is of the variant for the platform.
	Config jobcontainer.ImageConfig
}

// Options of a Resolver. The zero value is usable.
type Options struct {
	// ClusterNetworks are networks of pods, Services and nodes that are not private by their address.
	ClusterNetworks []netip.Prefix
	// RootCAs verify registries; nil: those of the system.
	RootCAs *x509.CertPool
	// Proxy chooses a forward proxy as in http.Transport; nil: none.
	Proxy func(*http.Request) (*url.URL, error)
	// DNS looks up registries; nil: net.DefaultResolver.
	DNS *net.Resolver
	// Mirrors are asked before the registries. An exact one is asked before one of every registry, and several for one registry in
	// their order here. Together they have a third of Timeout for an image.
	Mirrors []Mirror

	// Timeout of one image's requests; default 15 s. Waiting for a turn comes on top, at most as long.
	Timeout time.Duration
	// PerTenant is how many images of one tenant are resolved at once (default 8), Total those of all tenants (default 128).
	PerTenant, Total int
	// CacheBytes bounds the memory of the cache; default 16 MiB.
	CacheBytes int
	// TagAge is for how long a tag is taken to be what it was, so that the jobs of a matrix ask once; default 3 s. An older one costs
	// a HEAD request, which registries do not count as a pull.
	TagAge time.Duration
	// DigestAge is for how long credentials that could read an image are taken to be able to; default 1 h.
	DigestAge time.Duration

	// Now and After are the clock; nil: that of the system.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Resolver asks registries for images. It is safe for concurrent use. Close it when it is no longer needed.
type Resolver struct {
	options Options
	secret  [32]byte // keys of the cache contain credentials only as codes made with it
	slots   *slots
	cache   *cache
	flights *flights
}

// New makes a Resolver.
func New(options Options) *Resolver {
	options.Timeout = cmp.Or(options.Timeout, 15*time.Second)
	options.PerTenant = cmp.Or(options.PerTenant, 8)
	options.Total = cmp.Or(options.Total, 128)
	options.CacheBytes = cmp.Or(options.CacheBytes, 16<<20)
	options.TagAge = cmp.Or(options.TagAge, 3*time.Second)
	options.DigestAge = cmp.Or(options.DigestAge, time.Hour)
	if options.DNS == nil {
		options.DNS = net.DefaultResolver
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.After == nil {
		options.After = time.After
	}
	r := &Resolver{
		options: options,
		slots:   newSlots(options.PerTenant, options.Total),
		cache:   newCache(options.CacheBytes),
		flights: newFlights(),
	}
	rand.Read(r.secret[:]) // never fails
	return r
}

// Close ends the requests that are being sent, and waits for them. Resolve returns an error from then on.
func (r *Resolver) Close() { r.flights.close() }

// Resolve returns the image that a name stands for now. An image that cannot be used is an *Error, whose text is for the job's
// log. If ctx ends first, the error is that of ctx; other callers that wait for the same image are not affected.
func (r *Resolver) Resolve(ctx context.Context, query Query) (Resolved, error) {
	name, err := ParseName(query.Image)
	if err != nil {
		return Resolved{}, err
	}
	if !query.Policy.Permits(name) {
		return Resolved{}, failure(NotPermitted, query.Image, name,
			"Image '%[1]s' is not permitted in this runner pool. Use a permitted image, or ask an administrator to permit this one.")
	}
	credentials := credentialsFor(name, query.Credentials)
	if credentials != nil && credentials.Password == "" {
		return Resolved{}, failure(CredentialsRefused, query.Image, name, "Image '%[1]s' could not be pulled: the password for registry '%[2]s' is empty. "+
			"Check the secret that it comes from; workflows of forks are given no secrets.")
	}
	k := key{name: name, platform: query.Platform.normalized(), credentials: r.fingerprint(credentials), reach: query.Policy.Reach()}
	if found, ok := r.fresh(k); ok {
		return found.resolved(name), nil
	}
	if ctx.Err() != nil {
		return Resolved{}, fmt.Errorf("resolving an image: %w", context.Cause(ctx))
	}
	found, err := r.flights.do(ctx, flightKey{query.Tenant, k}, r.options.Now(), r.options.TagAge, func(ctx context.Context) (cached, error) {
		return r.look(ctx, query, k, credentials)
	})
	if err != nil {
		return Resolved{}, explain(err, query.Image, name, credentials != nil, r.options.Timeout)
	}
	return found.resolved(name), nil
}

func (c cached) resolved(name imagename.Name) Resolved {
	return Resolved{Reference: name.Pinned(c.digest), Config: clone(c.config)}
}

// fingerprint stands for credentials in keys.
func (r *Resolver) fingerprint(credentials *jobcontainer.Credentials) (sum [sha256.Size]byte) {
	if credentials == nil {
		return sum
	}
	code := hmac.New(sha256.New, r.secret[:])
	fmt.Fprintf(code, "%d %s%s", len(credentials.Username), credentials.Username, credentials.Password)
	return [sha256.Size]byte(code.Sum(nil))
}

// fresh is what the cache has for the key, if it is recent enough to use without asking the registry.
func (r *Resolver) fresh(k key) (cached, bool) {
	age := r.options.TagAge
	if k.name.Digest != "" {
		age = r.options.DigestAge
	}
	found, ok := r.cache.get(k)
	return found, ok && r.options.Now().Sub(found.at) < age
}

// look asks the mirrors and then the registry, in the tenant's turn, and within its time. Its errors are for explain.
func (r *Resolver) look(ctx context.Context, query Query, k key, credentials *jobcontainer.Credentials) (cached, error) {
	waiting, stop := r.within(ctx, r.options.Timeout, errNoTurn)
	err := r.slots.acquire(waiting, query.Tenant)
	stop()
	if err != nil {
		return cached{}, err
	}
	defer r.slots.release(query.Tenant)
	if found, ok := r.fresh(k); ok {
		return found, nil
	}
	ctx, stop = r.within(ctx, r.options.Timeout, errTimedOut)
	defer stop()
	found, problems, ok := r.askMirrors(ctx, query, k)
	if !ok {
		if found, err = r.askRegistry(ctx, query, k, credentials); err != nil {
			return cached{}, &mirroredError{err, problems}
		}
	}
	r.cache.put(k, found)
	r.cache.put(k.pinned(found.digest), found)
	return found, nil
}

// askRegistry asks again after failures that may be gone a moment later.
func (r *Resolver) askRegistry(ctx context.Context, query Query, k key, credentials *jobcontainer.Credentials) (cached, error) {
	for attempt := 0; ; attempt++ {
		found, err := r.attempt(ctx, query, k, nil, credentials)
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			if layer := (*layerError)(nil); errors.As(err, &layer) {
				return cached{}, &layerError{context.Cause(ctx)}
			}
			return cached{}, context.Cause(ctx)
		}
		delay, again := retryDelay(err, attempt)
		if !again {
			return cached{}, err
		}
		select {
		case <-r.options.After(delay):
		case <-ctx.Done():
			return cached{}, err
		}
	}
}

// attempt has one conversation with the mirror, or without one with the registry.
func (r *Resolver) attempt(ctx context.Context, query Query, k key, mirror *Mirror, credentials *jobcontainer.Credentials) (cached, error) {
	exchange := newExchange(k.name, mirror, query.Policy, &r.options)
	defer exchange.close()
	at := r.options.Now()
	s, err := newSession(exchange, k.name, credentials)
	if err != nil {
		return cached{}, err
	}
	if old, ok := r.cache.get(k); ok && k.name.Digest == "" {
		// Most tags are what they were: a request that is not counted then suffices. Any error is found again by the next one.
		if digest, err := s.head(ctx, k.name); err == nil {
			if known, ok := r.fresh(k.pinned(digest)); ok && digest == old.digest {
				return cached{digest: digest, config: known.config, at: at}, nil
			}
		}
	}
	found, err := s.fetch(ctx, k.name, k.platform)
	if err != nil {
		return cached{}, exchange.failed(err)
	}
	found.at = at
	return found, nil
}

// within ends a context with a cause after a duration, by the resolver's clock.
func (r *Resolver) within(ctx context.Context, duration time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	expired := r.options.After(duration)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-expired:
			cancel(cause)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}
