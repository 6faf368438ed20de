package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// UnservedStore reads the label sets that no pool serves. It does not wait out an outage.
type UnservedStore interface {
	// UnservedLanes lists the label sets beside those that have jobs queued, the oldest first, and counts the jobs, all as of one moment. What
	// it costs does not grow with the number of jobs.
	UnservedLanes(ctx context.Context, served []string) (UnservedLanes, error)
}

// However many clients ask, a server reads the ledger for jobs that no pool serves at most every unservedKept, and without any client every
// unservedEvery, for its metrics and its log (CLAIM-21: within a minute).
const (
	unservedKept  = 10 * time.Second
	unservedEvery = 30 * time.Second
)

// unservedLogged is how long a label set is not logged again.
const unservedLogged = time.Hour

// unserved is what a server reports of jobs that no pool serves.
type unserved struct {
	cached *cached[Unserved]

	jobs, oldest prometheus.Gauge
	outside      *prometheus.GaugeVec

	mu     sync.Mutex
	logged map[string]time.Time // by label key
}

func newUnserved(opt Options, read func(context.Context) (Unserved, error)) *unserved {
	u := &unserved{
		cached: &cached[Unserved]{keep: unservedKept, now: opt.Now, read: read},
		jobs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_jobs_unserved",
			Help: "Queued jobs whose labels no RunnerPool serves. Jobs for GitHub's own runners and for other runners are not among them.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_jobs_unserved_oldest_seconds", Help: "How long the oldest job whose labels no RunnerPool serves has been queued; 0 if there is none.",
		}),
		outside: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bullpen_jobs_outside", Help: "Queued jobs for runners outside of RunnerPools, by kind: github-hosted or other-runners.",
		}, []string{"runners"}),
		logged: map[string]time.Time{},
	}
	opt.Metrics.MustRegister(u.jobs, u.oldest, u.outside)
	return u
}

// Unserved says which queued jobs no pool serves. It may be some seconds old. Answers share memory: they must not be changed.
func (d *Dispatcher) Unserved(ctx context.Context) (Unserved, error) {
	if err := d.notFrozen(); err != nil { // CLAIM-17: a restored ledger has jobs that are over
		return Unserved{}, err
	}
	return d.unserved.cached.get(ctx)
}

// Outside says which runners outside of RunnerPools a job with those labels is for.
func (d *Dispatcher) Outside(labels []string) fleet.Outside { return d.opt.Outside.Of(labels) }

func (d *Dispatcher) readUnserved(ctx context.Context) (Unserved, error) {
	routing, err := d.routingNow(ctx)
	if err != nil {
		return Unserved{}, err
	}
	served := []string{}
	for _, set := range routing.sets() {
		served = append(served, set.Key)
	}
	lanes, err := d.opt.Store.UnservedLanes(ctx, served)
	if err != nil {
		return Unserved{}, err
	}
	return FindUnserved(d.opt.Cluster.Pools(), d.opt.Outside, lanes), nil
}

// runUnserved reports jobs that no pool serves until ctx ends. The watch of pools has had its first list when it begins.
func (d *Dispatcher) runUnserved(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.opt.After(unservedEvery):
		}
		u, err := d.Unserved(ctx)
		if err != nil { // the metrics stay, and what is wrong with the ledger is logged elsewhere
			d.opt.Log.DebugContext(ctx, "reading which jobs no pool serves", "error", err)
			continue
		}
		d.unserved.report(ctx, d.opt.Log, u, d.opt.Now())
	}
}

// report sets the metrics, and logs each label set at most once an hour.
func (u *unserved) report(ctx context.Context, log *slog.Logger, found Unserved, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs.Set(float64(found.Jobs))
	age := 0.0
	if !found.Oldest.IsZero() {
		age = max(0, now.Sub(found.Oldest).Seconds())
	}
	u.oldest.Set(age)
	for _, kind := range []fleet.Outside{fleet.OutsideGitHub, fleet.OutsideOther} {
		u.outside.WithLabelValues(string(kind)).Set(float64(found.Outside[kind]))
	}
	maps.DeleteFunc(u.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= unservedLogged })
	for _, set := range found.Sets {
		key := LabelKey(set.Labels)
		if _, recent := u.logged[key]; recent {
			continue
		}
		u.logged[key] = now
		log.WarnContext(ctx, "jobs are queued for labels that no pool serves", "labels", strings.Join(set.Labels, ","), "jobs", set.Jobs,
			"job", set.JobID, "repository", set.Repository, "nearest", fleet.NearestText(set.Near), "remedy", set.Remedy)
	}
}
