package intake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// installed is GitHub: where the App is installed, by owner or owner/repository.
type installed struct {
	mu    sync.Mutex
	at    map[string]int64
	err   error
	asked []string
}

func (i *installed) InstallationFor(_ context.Context, scope fleet.Scope) (int64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, scope.String())
	if i.err != nil {
		return 0, i.err
	}
	if id, ok := i.at[scope.String()]; ok {
		return id, nil
	}
	return 0, fmt.Errorf("looking up the App's installation: %w", fleet.ErrNotFound)
}

func (i *installed) questions() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

// direct is an intake that takes events of webhooks that are set on repositories and organizations.
type direct struct {
	*intake.Intake
	t       *testing.T
	github  *installed
	store   *ledger.Store
	url     string
	metrics *prometheus.Registry
	log     *strings.Builder
	now     time.Time
	n       int
}

func newDirect(t *testing.T) *direct {
	t.Helper()
	d := &direct{
		t: t, github: &installed{at: map[string]int64{}}, metrics: prometheus.NewRegistry(), log: &strings.Builder{}, now: time.Now(),
		url: postgrestest.NewDatabase(t, ledger.Migrate),
	}
	var err error
	d.store, err = ledger.Open(t.Context(), d.url, 0)
	require.NoError(t, err)
	t.Cleanup(d.store.Close)
	log := slog.New(slog.NewTextHandler(d.log, nil))
	owners, err := intake.NewOwners(intake.OwnersOptions{Store: d.store, GitHub: d.github, Log: log, Now: func() time.Time { return d.now }})
	require.NoError(t, err)
	d.Intake, err = intake.New(intake.Options{Store: d.store, Owners: owners, Log: log, Metrics: d.metrics})
	require.NoError(t, err)
	return d
}

// queued takes a queued job of an owner without an installation. The job's id is the number of the event.
func (d *direct) queued(owner, kind string) intake.Result {
	d.t.Helper()
	d.n++
	body := fmt.Sprintf(`{"action":"queued","workflow_job":{"id":%d,"run_id":9,"name":"build","labels":["linux"]},
		"repository":{"id":7,"full_name":"%s/app","owner":{"id":%d,"login":%q,"type":%q}}}`, d.n, owner, ownerID(owner), owner, kind)
	got := d.Take(d.t.Context(), intake.Delivery{GUID: fmt.Sprint("g", d.n), Event: "workflow_job", Body: []byte(body), At: d.now})
	require.NotEmpty(d.t, got.Reason)
	return got
}

func ownerID(login string) int64 {
	id := int64(1000)
	for _, c := range login {
		id = id*31%1_000_003 + int64(c)
	}
	return id
}

// A webhook that is set on an organization, or on a user's repository, is served if the App is installed there.
func TestTake_R14_AnEventWithoutAnInstallationIsServedByItsOwner(t *testing.T) {
	d := newDirect(t)
	d.github.at["acme"], d.github.at["ada/app"] = 42, 43
	for _, c := range []struct{ owner, kind string }{{"acme", "Organization"}, {"ada", "User"}} {
		for range 3 {
			got := d.queued(c.owner, c.kind)
			require.Equal(t, intake.Recorded, got.Outcome, got.Reason)
			require.Equal(t, fleet.JobQueued, state(t, d.store, int64(d.n)))
		}
		account, err := d.store.Account(t.Context(), c.owner)
		require.NoError(t, err)
		require.EqualValues(t, d.github.at[d.github.asked[len(d.github.asked)-1]], account.InstallationID)
	}
	require.Equal(t, []string{"acme", "ada/app"}, d.github.asked, "the ledger knows the installation from then on")
}

// Owners that the ledger knows need no request to GitHub, also when GitHub is unavailable.
func TestTake_R14_AKnownOwnerCostsNoCall(t *testing.T) {
	d := newDirect(t)
	d.github.err = errors.New("GitHub is away")
	body := fmt.Sprintf(`{"action":"created","installation":{"id":42,"account":{"id":%d,"login":"acme","type":"Organization"}}}`, ownerID("acme"))
	got := d.Take(t.Context(), intake.Delivery{GUID: "i", Event: "installation", Body: []byte(body), At: d.now})
	require.Equal(t, intake.Recorded, got.Outcome)
	for range 10 {
		require.Equal(t, intake.Recorded, d.queued("acme", "Organization").Outcome)
	}
	require.Zero(t, d.github.questions())
}

// Where the App is not installed the answer, the log, the metric and the ledger say so, and GitHub is asked once a minute.
func TestTake_R14_WhereTheAppIsNotInstalledIsSaid(t *testing.T) {
	d := newDirect(t)
	for range 50 {
		got := d.queued("stranger", "Organization")
		require.Equal(t, intake.NotInstalled, got.Outcome)
		require.Contains(t, got.Reason, "not installed at stranger")
		require.Equal(t, fleet.JobAbsent, state(t, d.store, int64(d.n)))
	}
	require.Equal(t, 1, d.github.questions())
	require.Equal(t, 1, strings.Count(d.log.String(), "not installed"))
	require.Contains(t, d.log.String(), "stranger/app")
	noted, err := ledger.InspectUninstalled(t.Context(), d.url)
	require.NoError(t, err)
	require.Len(t, noted, 1)
	require.Equal(t, "stranger", noted[0].Login)
	families, err := d.metrics.Gather()
	require.NoError(t, err)
	var counted string
	for _, family := range families {
		counted += family.String()
	}
	require.Contains(t, counted, "not_installed")

	d.now = d.now.Add(2 * time.Minute)
	d.queued("stranger", "Organization")
	require.Equal(t, 2, d.github.questions(), "an administrator may have installed it since")
	require.Equal(t, 1, strings.Count(d.log.String(), "not installed"), "the log names an owner once an hour")
	d.github.at["stranger"] = 44
	d.now = d.now.Add(2 * time.Minute)
	require.Equal(t, intake.Recorded, d.queued("stranger", "Organization").Outcome)
	noted, err = ledger.InspectUninstalled(t.Context(), d.url)
	require.NoError(t, err)
	require.Empty(t, noted, "it is installed now")
}

// TEN-10: however many owners a sender makes up, GitHub is asked a few times a minute, the ledger records a hundred of them, and known
// owners are served normally.
func TestTake_TEN10_ManyUnknownOwnersCostFewCalls(t *testing.T) {
	d := newDirect(t)
	d.github.at["acme"] = 42
	require.Equal(t, intake.Recorded, d.queued("acme", "Organization").Outcome)
	began := d.now
	for i := range 3000 {
		got := d.queued(fmt.Sprint("made-up-", i), "Organization")
		require.Contains(t, []intake.Outcome{intake.NotInstalled, intake.Failed}, got.Outcome)
		d.now = began.Add(time.Duration(i) * 100 * time.Millisecond) // five minutes in total
	}
	require.LessOrEqual(t, d.github.questions(), 1+20+5*10+1)
	require.Equal(t, intake.Recorded, d.queued("acme", "Organization").Outcome)
	noted, err := ledger.InspectUninstalled(t.Context(), d.url)
	require.NoError(t, err)
	require.NotEmpty(t, noted)
	require.LessOrEqual(t, len(noted), 100)
}

// A failed lookup is not taken for a no: the delivery is refused, and can be repeated.
func TestTake_R14_WhatCannotBeLookedUpIsAskedForAgain(t *testing.T) {
	d := newDirect(t)
	for _, err := range []error{fleet.ErrUncertain, fleet.ErrForbidden, &fleet.RateLimitedError{Resource: "core", Until: d.now.Add(time.Hour)}} {
		d.github.err = err
		got := d.queued("acme", "Organization")
		require.Equal(t, intake.Failed, got.Outcome)
		require.Contains(t, got.Reason, "acme")
	}
	d.github.err, d.github.at["acme"] = nil, 42
	require.Equal(t, intake.Recorded, d.queued("acme", "Organization").Outcome)
	d.github.err = fmt.Errorf("%w: no owner", fleet.ErrRejected)
	require.Equal(t, intake.Ignored, d.queued("no-owner", "Organization").Outcome)
}
