package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func lane(jobs, age int64, labels ...string) dispatch.UnservedLane {
	return dispatch.UnservedLane{
		LabelKey: dispatch.LabelKey(labels), Jobs: jobs, Repository: "acme/app",
		Oldest: dispatch.JobAge{ID: 100 + age, QueuedAt: time.Unix(10_000-age, 0)},
	}
}

// CLAIM-21: what no pool serves is counted, the oldest first; what a pool, several pools, GitHub's own runners or another fleet serve is not.
func TestFindUnserved_CLAIM21_CountsWhatNothingServes(t *testing.T) {
	grouped := linuxPool("linux", "bullpen", "self-hosted", "linux")
	grouped.RunnerGroup = "builders"
	pools := []dispatch.Pool{grouped, linuxPool("one", "twice"), linuxPool("two", "twice"), linuxPool("ub", "ubuntu-22.04")}
	outside := fleet.OutsideRunners{GitHub: fleet.GitHubHosted(), Other: fleet.LabelPatterns{"arc"}}
	u := dispatch.FindUnserved(pools, outside, dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{
		lane(2, 10, "self-hosted", "linux", "x64"), lane(3, 50, "self-hosted", "linux", "x64"), lane(1, 30, "bulpen"), lane(9, 90, "twice"),
		lane(4, 90, "bullpen"), lane(5, 90, "ubuntu-latest"), lane(8, 90, "Ubuntu-22.04"), lane(6, 90, "self-hosted", "arc"), lane(0, 0, "cancelled"), lane(1, 5),
	}})
	require.EqualValues(t, 7, u.Jobs)
	require.False(t, u.More)
	require.Equal(t, time.Unix(10_000-50, 0), u.Oldest)
	require.Equal(t, map[fleet.Outside]int64{fleet.OutsideGitHub: 5, fleet.OutsideOther: 6}, u.Outside)
	require.Len(t, u.Sets, 3)
	require.Equal(t, []string{"linux", "self-hosted", "x64"}, u.Sets[0].Labels)
	require.EqualValues(t, 150, u.Sets[0].JobID)
	require.Equal(t, "5 jobs queued for labels that no pool serves: linux, self-hosted, x64. Nearest: pool linux lacks x64.", u.Sets[0].Sentence())
	require.Equal(t, "Write `runs-on: [linux, self-hosted]` in the workflow, or add x64 to spec.labels of pool linux.", u.Sets[0].Remedy)
	require.Equal(t, "1 job queued for labels that no pool serves: bulpen. Nearest: pool linux has bullpen, not bulpen.", u.Sets[1].Sentence())
	require.Equal(t, "Write `runs-on: bullpen` in the workflow, or add bulpen to spec.labels of pool linux.", u.Sets[1].Remedy)
	require.Equal(t, "1 job queued whose runs-on names only a runner group. Any runner of that group may take such a job, but a pool starts runners for labels only.",
		u.Sets[2].Sentence())
	require.Equal(t, "Write the label of a pool in runs-on, such as bullpen or ubuntu-22.04.", u.Sets[2].Remedy)
}

// CLAIM-21: a job that names a runner group and no label is for other runners, unless a live pool's runners are in a group of their own.
func TestFindUnserved_CLAIM21_AGroupAloneIsForOtherRunnersUnlessAPoolHasAGroup(t *testing.T) {
	lanes := dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{lane(3, 5)}}
	for name, c := range map[string]struct {
		change func(*dispatch.Pool)
		mine   bool
	}{
		"no group":         {change: func(*dispatch.Pool) {}},
		"GitHub's default": {change: func(p *dispatch.Pool) { p.RunnerGroupID = 1 }},
		"by name":          {change: func(p *dispatch.Pool) { p.RunnerGroup = "builders" }, mine: true},
		"by ID":            {change: func(p *dispatch.Pool) { p.RunnerGroupID = 7 }, mine: true},
		"being deleted":    {change: func(p *dispatch.Pool) { p.RunnerGroup, p.Terminating = "builders", true }},
	} {
		pool := linuxPool("linux", "bullpen")
		c.change(&pool)
		u := dispatch.FindUnserved([]dispatch.Pool{pool}, fleet.OutsideRunners{}, lanes)
		if c.mine {
			require.EqualValues(t, 3, u.Jobs, name)
			require.Empty(t, u.Outside, name)
			continue
		}
		require.Zero(t, u.Jobs, name)
		require.Equal(t, map[fleet.Outside]int64{fleet.OutsideOther: 3}, u.Outside, name)
	}
}

// A suggestion is one that the pool serves alone.
func TestFindUnserved_SuggestsWhatOnePoolServes(t *testing.T) {
	both := []dispatch.Pool{linuxPool("small", "small", "linux"), linuxPool("large", "large", "linux")}
	remedy := func(pools []dispatch.Pool, labels ...string) string {
		u := dispatch.FindUnserved(pools, fleet.OutsideRunners{}, dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{lane(1, 1, labels...)}})
		require.Len(t, u.Sets, 1)
		return u.Sets[0].Remedy
	}
	require.Equal(t, "Write `runs-on: large` in the workflow, or add x64 to spec.labels of pool large.", remedy(both, "linux", "x64"))
	leaving := linuxPool("linux", "linux")
	leaving.Terminating = true
	require.Equal(t, "Write the label of a pool in runs-on, such as large or small, or add a RunnerPool with these labels.", remedy(both, "gpu"))
	require.Equal(t, "Write the label of a pool in runs-on, or add a RunnerPool with these labels.", remedy([]dispatch.Pool{leaving}, "linux"))
	require.Equal(t, "Write the label of a pool in runs-on, or add a RunnerPool with these labels.", remedy(nil, "linux"))
}

// What is named is bounded, and what was not counted is said to be more.
func TestFindUnserved_IsBounded(t *testing.T) {
	var lanes dispatch.UnservedLanes
	for n := range int64(dispatch.MostUnservedSets + 5) {
		lanes.Lanes = append(lanes.Lanes, lane(2, n, "made-up-"+strings.Repeat("x", int(n))))
	}
	u := dispatch.FindUnserved(nil, fleet.OutsideRunners{}, lanes)
	require.Len(t, u.Sets, dispatch.MostUnservedSets)
	require.EqualValues(t, 2*(dispatch.MostUnservedSets+5), u.Jobs)
	require.False(t, u.More)
	lanes.More = true
	require.True(t, dispatch.FindUnserved(nil, fleet.OutsideRunners{}, lanes).More)
	require.False(t, dispatch.FindUnserved([]dispatch.Pool{linuxPool("linux", "linux")}, fleet.OutsideRunners{}, dispatch.UnservedLanes{More: true}).More, "there are none")
	one := lane(10, 1, "x")
	one.More = true
	u = dispatch.FindUnserved(nil, fleet.OutsideRunners{}, dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{one}})
	require.True(t, u.More)
	require.Contains(t, u.Sets[0].Sentence(), "10 or more jobs queued")
}

// Package fleet compares labels as dispatch does: what it says that a pool serves is what the pool is given (CLAIM-18).
func TestLabelled_ServesWhatThePoolServes(t *testing.T) {
	labels := []string{"linux", " Linux ", "x64", "self-hosted", ""}
	rapid.Check(t, func(t *rapid.T) {
		pool := linuxPool("p", rapid.SliceOfN(rapid.SampledFrom(labels), 1, 4).Draw(t, "pool")...)
		asked := rapid.SliceOfN(rapid.SampledFrom(labels), 0, 3).Draw(t, "job")
		require.Equal(t, pool.Serves(asked), dispatch.Labelled([]dispatch.Pool{pool})[0].Serves(asked))
	})
}

// CLAIM-21: a server reports what its ledger has within a minute, in its metrics and its log, each label set once an hour.
func TestUnserved_CLAIM21_IsReportedWithinAMinute(t *testing.T) {
	h, c := newHarness(t), newClock()
	c.at = c.at.Truncate(time.Second)
	var log lines
	metrics := prometheus.NewRegistry()
	d := h.replica(at(c), func(o *dispatch.Options) {
		o.Metrics, o.Log = metrics, slog.New(slog.NewTextHandler(&log, nil))
		o.Outside = fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}
	})
	ask := func(id int64, labels ...string) {
		h.record(job(fleet.JobEventQueued, id, func(ev *dispatch.JobEvent) { ev.Labels, ev.QueuedAt = labels, c.now().Add(-time.Minute) }))
	}
	ask(1, "linux")
	ask(2, "linx")
	ask(3, "ubuntu-latest")
	tick := func() {
		h.eventually("the server is about to look", func() bool { return h.timers.fire(30*time.Second) > 0 })
	}
	tick()
	tick() // the first look is over
	require.NoError(t, testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP bullpen_jobs_outside Queued jobs for runners outside of RunnerPools, by kind: github-hosted or other-runners.
# TYPE bullpen_jobs_outside gauge
bullpen_jobs_outside{runners="github-hosted"} 1
bullpen_jobs_outside{runners="other-runners"} 0
# HELP bullpen_jobs_unserved Queued jobs whose labels no RunnerPool serves. Jobs for GitHub's own runners and for other runners are not among them.
# TYPE bullpen_jobs_unserved gauge
bullpen_jobs_unserved 1
# HELP bullpen_jobs_unserved_oldest_seconds How long the oldest job whose labels no RunnerPool serves has been queued; 0 if there is none.
# TYPE bullpen_jobs_unserved_oldest_seconds gauge
bullpen_jobs_unserved_oldest_seconds 60
`), "bullpen_jobs_outside", "bullpen_jobs_unserved", "bullpen_jobs_unserved_oldest_seconds"))
	tick()
	const line = "jobs are queued for labels that no pool serves"
	require.Equal(t, 1, strings.Count(log.String(), line), "once an hour")
	require.Contains(t, log.String(), "pool linux has linux, not linx")
	require.NotContains(t, log.String(), "ubuntu-latest")
	c.pass(time.Hour)
	tick()
	tick()
	require.Equal(t, 2, strings.Count(log.String(), line))

	h.cluster.PutPool(linuxPool("another", "linx"))
	d.PoolsChanged()
	c.pass(time.Minute)
	got, err := d.Unserved(t.Context())
	require.NoError(t, err)
	require.Zero(t, got.Jobs, "a pool serves it now")
}

// However many clients ask, the ledger is read once in ten seconds. What cannot be read has no old answer.
func TestUnserved_IsReadOnceForAllClients(t *testing.T) {
	h, c := newHarness(t), newClock()
	store := &unservedStore{Store: h.store}
	d := h.replica(at(c), func(o *dispatch.Options) { o.Store = store })
	for range 5 {
		_, err := d.Unserved(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, store.read)
	c.pass(11 * time.Second)
	store.err = errors.New("the database went away")
	_, err := d.Unserved(t.Context())
	require.ErrorIs(t, err, store.err)
}

type unservedStore struct {
	dispatch.Store
	read int
	err  error
}

func (s *unservedStore) UnservedLanes(ctx context.Context, served []string) (dispatch.UnservedLanes, error) {
	s.read++
	lanes, err := s.Store.UnservedLanes(ctx, served)
	return lanes, errors.Join(err, s.err)
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
