package registration

import (
	"context"
	"errors"
	"sync"
	"time"
)

// RosterOptions configures a Roster.
type RosterOptions struct {
	// Registrars reach GitHub. Required.
	Registrars Registrars
	// Interval between two lists of one target; a minute when zero.
	Interval time.Duration
	// Listed is called after each list, also one that failed: what Look says of the target may be new. It must not wait. May be
	// nil.
	Listed func(Credentials, Target)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

const (
	// listsAtOnce is how many targets are listed at a time.
	listsAtOnce = 64
	// longestBackOff is how long a target is left alone whose list fails again and again.
	longestBackOff = 10 * time.Minute
	// askAgainSoon is when to look again while a list is under way.
	askAgainSoon = 2 * time.Second
	// keptUnasked is the number of intervals after which an unused list is dropped.
	keptUnasked = 10
)

// Roster knows which runners GitHub lists, for many callers: each target is listed at most once per interval, only while callers wait for
// it, and independently of the others. It is safe for concurrent use.
type Roster struct {
	options RosterOptions
	wake    chan struct{}

	mu    sync.Mutex
	lists map[rosterKey]*listing
}

type rosterKey struct {
	credentials Credentials
	target      Target // without group and id
}

// listing is one target's list as it was read last. The Roster's lock guards it.
type listing struct {
	target   Target
	byName   map[string]Registration
	asOf     time.Time // when the reading began
	next     time.Time // no sooner is it read again
	asked    time.Time
	failures int
	problem  error
	wanted   bool
	running  bool
}

// Sighting is what GitHub's list says of one runner.
type Sighting struct {
	// Known: the list shows a runner of that name, which is Registration. That it does not proves nothing.
	Known        bool
	Registration Registration
	// AsOf is when the reading of the list began; zero: there was none yet.
	AsOf time.Time
	// Next is when it is of use to look again.
	Next time.Time
	// Problem is why the last reading of the list failed; the entries are of the reading before. Nil: it succeeded.
	Problem error
}

// NewRoster returns a Roster that lists nothing until it is started.
func NewRoster(options RosterOptions) (*Roster, error) {
	if options.Registrars == nil {
		return nil, errors.New("a roster needs a way to GitHub")
	}
	if options.Interval == 0 {
		options.Interval = time.Minute
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Roster{options: options, wake: make(chan struct{}, 1), lists: map[rosterKey]*listing{}}, nil
}

// Look says what is known of a runner by its whole name, and has the target listed if that is due. It never waits.
func (r *Roster) Look(credentials Credentials, target Target, name string) Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	l := r.listing(credentials, target)
	l.asked = now
	if !l.running && !l.wanted && !now.Before(l.next) {
		l.wanted = true
		r.poke()
	}
	seen := Sighting{AsOf: l.asOf, Next: l.next, Problem: l.problem}
	if l.running || l.wanted {
		seen.Next = now.Add(askAgainSoon)
	}
	seen.Registration, seen.Known = l.byName[name]
	return seen
}

func (r *Roster) listing(credentials Credentials, target Target) *listing {
	if credentials.Secret == "" {
		credentials = Credentials{}
	}
	key := rosterKey{credentials, target}
	key.target.Group, key.target.RepositoryID = "", 0
	l, ok := r.lists[key]
	if !ok {
		l = &listing{target: key.target}
		r.lists[key] = l
	}
	if target.RepositoryID != 0 {
		l.target.RepositoryID = target.RepositoryID
	}
	return l
}

func (r *Roster) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Start lists what is asked for until ctx ends.
func (r *Roster) Start(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, listsAtOnce)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		for key, target := range r.due() {
			select {
			case <-ctx.Done():
				return nil
			case slots <- struct{}{}:
			}
			all.Go(func() {
				defer func() { <-slots }()
				r.list(ctx, key, target)
			})
		}
	}
}

// due returns the targets that callers wait for, and drops those that have not been asked for in a long time.
func (r *Roster) due() map[rosterKey]Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, now := map[rosterKey]Target{}, r.options.Now()
	for key, l := range r.lists {
		switch {
		case l.wanted:
			l.wanted, l.running = false, true
			due[key] = l.target
		case !l.running && now.Sub(l.asked) > keptUnasked*r.options.Interval && now.After(l.next):
			delete(r.lists, key)
		}
	}
	return due
}

func (r *Roster) list(ctx context.Context, key rosterKey, target Target) {
	began := r.options.Now()
	byName, err := r.read(ctx, key.credentials, target)
	r.mu.Lock()
	l := r.lists[key] // while it runs it is not forgotten
	l.running, l.problem = false, err
	if err == nil {
		l.byName, l.asOf, l.next, l.failures = byName, began, began.Add(r.options.Interval), 0
	} else {
		l.next = began.Add(r.backOff(l.failures))
		if until := limitedUntil(err); until.After(l.next) {
			l.next = until
		}
		l.failures++
	}
	r.mu.Unlock()
	if r.options.Listed != nil {
		r.options.Listed(key.credentials, target)
	}
}

func (r *Roster) read(ctx context.Context, credentials Credentials, target Target) (map[string]Registration, error) {
	registrar, err := r.options.Registrars.For(ctx, credentials, target)
	if err != nil {
		return nil, err
	}
	byName := map[string]Registration{}
	err = registrar.List(ctx, func(one Registration) bool {
		byName[one.Name] = one
		return true
	})
	return byName, err
}

// backOff is the interval, and twice as long after each failure.
func (r *Roster) backOff(failures int) time.Duration {
	return max(r.options.Interval, min(longestBackOff, r.options.Interval<<min(failures, 10)))
}
