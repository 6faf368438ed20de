package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Forge is GitHub. Errors are those of package fleet; it does not retry.
type Forge interface {
	// Owners lists every account that has the App installed.
	Owners(ctx context.Context) ([]fleet.Owner, error)
	// Repositories lists the repositories that an installation may use, up to most; whole: there are no more.
	Repositories(ctx context.Context, installationID int64, most int) (list []fleet.Repository, whole bool, err error)
	// Roster reads one scope's list of runners.
	Roster(ctx context.Context, installationID int64, scope fleet.Scope) (fleet.Roster, error)
	// ReadRate is the last known state of the bucket that reads are counted in.
	ReadRate(installationID int64) (fleet.RateState, bool)
}

// Ledger is what our own rows say, which may be too little: it widens where is looked, and never narrows it.
type Ledger interface {
	// RepositoryScopes are the repositories at which registrations of ours may be alive.
	RepositoryScopes(ctx context.Context) ([]Known, error)
}

// Known is a repository as it was called when something of an account's was registered there. The account's id outlives the
// names of both.
type Known struct {
	AccountID  int64
	Repository string // owner/name
	// RepositoryID is GitHub's, 0 where it is not known. With it the list is read of that repository, under its present
	// name.
	RepositoryID int64
}

// Options of New. Forge and Ledger are required.
type Options struct {
	Forge  Forge
	Ledger Ledger
	// ByRepository indicates whether any pool registers its runners at repositories: then organizations have such scopes too.
	ByRepository func() bool
	// Keep bounds how long a reading is reused by callers for which it is fresh enough; default 2 min.
	Keep time.Duration
	// MaxRepositories bounds how many repositories of one account are read; with more, absence is never proven; default 200.
	MaxRepositories int
	Log             *slog.Logger
	Now             func() time.Time
}

// Query asks about one pod.
type Query struct {
	UID string
	// AccountID is the account that the pod works for, if that is known: then it can be registered with that account alone,
	// since a pod has one shot. It is GitHub's id: another account may have taken the name since.
	AccountID int64
	// OwnerLabel of the pod, if any: the account's login when the pod was stamped. It counts where the id is not known.
	OwnerLabel string
	// Since is when it was certain that nothing new could be minted for the pod (its row ended, or was taken by the caller):
	// only a reading that began later proves its absence. By this process's clock.
	Since time.Time
}

// Sighting is what GitHub's lists say of one pod.
type Sighting struct {
	// Found are the registrations whose names carry the pod's UID, also when not every scope could be read.
	Found []Found
	// Absent: in no scope that the pod could be registered in is there one, and each was read whole after Query.Since.
	Absent bool
	// Doubt says, in a sentence, why Absent is false although nothing was found.
	Doubt string
}

// Proves reports whether what was found is all that there is.
func (s Sighting) Proves() bool { return s.Absent || len(s.Found) > 0 && s.Doubt == "" }

// Found is one registration and where it stands.
type Found struct {
	fleet.Registration
	Owner fleet.Owner
	Scope fleet.Scope
}

// Reader reads lists, and keeps each for a while: however many pods are asked about, a scope is read once. It is safe for
// concurrent use and owns no goroutine that outlives its call to Look.
type Reader struct {
	opt Options

	mu          sync.Mutex
	readings    map[place]*shared[reading]
	swept       time.Time // when outdated readings and listings were last dropped
	directories map[struct{}]*shared[directory]
	listings    map[int64]*shared[listing] // by installation
}

// place is a scope as it is read.
type place struct {
	installation int64
	scope        fleet.Scope
}

// reading is one reading of a scope.
type reading struct {
	byUID map[string][]fleet.Registration
	doubt string // empty: read whole
}

const (
	readers      = 8                // scopes of one installation that are read at a time
	allReaders   = 32               // scopes of all: one installation that hangs leaves others most of them (TEN-11)
	listers      = 8                // accounts whose repositories are listed at a time
	readTimeout  = 45 * time.Second // of one scope, however many pages
	reserveShare = 10               // a tenth of an installation's requests is left to what matters more
	surveyKept   = 30 * time.Second
	listTimeout  = 2 * time.Second // of one account's repositories, where others' are listed too
)

// New checks the options.
func New(opt Options) (*Reader, error) {
	if opt.Forge == nil || opt.Ledger == nil {
		return nil, errors.New("the reader of runner lists needs a forge and a ledger")
	}
	if opt.ByRepository == nil {
		opt.ByRepository = func() bool { return false }
	}
	if opt.Keep == 0 {
		opt.Keep = 2 * time.Minute
	}
	if opt.MaxRepositories == 0 {
		opt.MaxRepositories = 200
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Reader{
		opt: opt, readings: map[place]*shared[reading]{}, directories: map[struct{}]*shared[directory]{}, listings: map[int64]*shared[listing]{},
	}, nil
}

// Look says of each pod, by UID, what GitHub's lists show. It costs a request for each hundred runners of each scope that
// the pods could be in, and none for scopes that were read since. An installation that has few requests left gets none:
// then nothing is proven. It runs no longer than ctx; the scopes that were read by then are there for the next question.
//
// An error means that not even the accounts could be listed: nothing is known of any pod.
func (r *Reader) Look(ctx context.Context, queries []Query) (map[string]Sighting, error) {
	out := make(map[string]Sighting, len(queries))
	if len(queries) == 0 {
		return out, nil
	}
	accounts, err := r.directory(ctx, latest(queries))
	if err != nil {
		return nil, fmt.Errorf("listing where runners are registered: %w", err)
	}
	var named, anyone []Query
	for _, q := range queries {
		if q.named() {
			named = append(named, q)
		} else {
			anyone = append(anyone, q)
		}
	}
	// Pods that could be anywhere need every account's lists: they come last, so that the others wait for none of those.
	for _, some := range [][]Query{named, anyone} {
		r.look(ctx, accounts, some, out)
	}
	return out, nil
}

// look puts what GitHub's lists show of these pods into out.
func (r *Reader) look(ctx context.Context, accounts directory, queries []Query, out map[string]Sighting) {
	if len(queries) == 0 {
		return
	}
	all := r.survey(ctx, accounts, queries)
	wanted := map[place]time.Time{} // its reading must not have begun before that, for the pod that is strictest
	for _, q := range queries {
		for _, s := range all.of(q) {
			if since, known := wanted[s.place]; s.doubt == "" && (!known || q.Since.After(since)) {
				wanted[s.place] = q.Since
			}
		}
	}
	readings := r.readAll(ctx, wanted)
	for _, q := range queries {
		out[q.UID] = sight(q, all, readings)
	}
}

// sight gathers what the readings say of one pod.
func sight(q Query, all *survey, readings map[place]*reading) Sighting {
	sites := all.of(q)
	out := Sighting{}
	if _, err := runnerpod.RunnerNamePrefix(q.UID); err != nil {
		return Sighting{Doubt: err.Error()}
	}
	if len(sites) == 0 {
		out.Doubt = all.nowhere(q)
	}
	for _, s := range sites {
		got := readings[s.place]
		switch {
		case s.doubt != "":
			out.Doubt = s.doubt
			continue
		case got == nil:
			out.Doubt = "the list of runners of " + s.scope.String() + " is still being read"
			continue
		case got.doubt != "":
			out.Doubt = got.doubt
		}
		for _, one := range got.byUID[q.UID] {
			out.Found = append(out.Found, Found{Registration: one, Owner: s.owner, Scope: s.scope})
		}
	}
	out.Absent = out.Doubt == "" && len(out.Found) == 0
	return out
}

// readAll returns the readings that are done by the time ctx ends.
func (r *Reader) readAll(ctx context.Context, wanted map[place]time.Time) map[place]*reading {
	places := slices.Collect(maps.Keys(wanted))
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.scope.String(), b.scope.String()) })
	inTurn := turns(places)
	out := make(map[place]*reading, len(places))
	var mu sync.Mutex
	each(len(inTurn), allReaders, func(i int) {
		for _, p := range inTurn[i] {
			if got := r.read(ctx, p, wanted[p]); got != nil {
				mu.Lock()
				out[p] = got
				mu.Unlock()
			}
		}
	})
	return out
}

// turns groups places that are read one after the other: those of one installation never take more than so many readers.
func turns(places []place) [][]place {
	var out [][]place
	mine := map[int64][]int{} // of out
	next := map[int64]int{}
	for _, p := range places {
		if len(mine[p.installation]) < readers {
			mine[p.installation] = append(mine[p.installation], len(out))
			out = append(out, []place{p})
			continue
		}
		turn := mine[p.installation][next[p.installation]%readers]
		next[p.installation]++
		out[turn] = append(out[turn], p)
	}
	return out
}

// read returns a reading that began at that time or later, or nil when ctx ends before there is one.
func (r *Reader) read(ctx context.Context, p place, since time.Time) *reading {
	if ctx.Err() != nil {
		return nil
	}
	now := r.opt.Now()
	r.sweep(now)
	fits := func(began time.Time, got reading) bool {
		return got.doubt == "" && !began.Before(since) && now.Sub(began) <= r.opt.Keep
	}
	got, ok := share(ctx, r, r.readings, p, fits, func() reading { return r.run(ctx, p) })
	if !ok {
		return nil
	}
	return &got
}

// sweep drops what is too old to be used: each reading holds the whole list of a scope that may never be asked for again,
// renamed and deleted ones among them. Waiting callers keep theirs.
func (r *Reader) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.swept) <= r.opt.Keep {
		return
	}
	r.swept = now
	maps.DeleteFunc(r.readings, func(_ place, got *shared[reading]) bool { return now.Sub(got.began) > r.opt.Keep })
	maps.DeleteFunc(r.listings, func(_ int64, got *shared[listing]) bool { return now.Sub(got.began) > surveyKept })
}

// run reads one scope, on behalf of all callers that wait for it.
func (r *Reader) run(ctx context.Context, p place) (into reading) {
	into.doubt = "the list of runners of " + p.scope.String() + " could not be read"
	if rate, known := r.opt.Forge.ReadRate(p.installation); known && rate.Limit > 0 &&
		rate.Remaining < rate.Limit/reserveShare && r.opt.Now().Before(rate.Reset) {
		into.doubt = fmt.Sprintf("GitHub has few requests left for %s until %s, so its runners are not listed", p.scope.Owner,
			rate.Reset.UTC().Format(time.RFC3339))
		return into
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := r.opt.Forge.Roster(ctx, p.installation, p.scope)
	if err != nil {
		r.opt.Log.WarnContext(ctx, "reading a list of runners", "scope", p.scope.String(), "error", err)
		into.doubt = fmt.Sprintf("the list of runners of %s cannot be read: %v", p.scope, err)
		return into
	}
	into.doubt = list.Doubt
	if !list.Complete && into.doubt == "" {
		into.doubt = "the list of runners of " + p.scope.String() + " was not read whole"
	}
	into.byUID = make(map[string][]fleet.Registration, len(list.Runners))
	for _, one := range list.Runners {
		if uid, ours := runnerpod.PodUID(one.Name); ours {
			into.byUID[uid] = append(into.byUID[uid], one)
		}
	}
	return into
}
