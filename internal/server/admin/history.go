package admin

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/history"
)

// HistoryStore reads samples of pools, and usage by day.
type HistoryStore interface {
	// Samples returns the samples of a pool in that span, in order; of the fleet for the zero Pool.
	Samples(ctx context.Context, pool history.Pool, since, before time.Time) ([]history.Sample, error)
	// UsageByDay returns the days with usage, in order. ErrNotFound and *ConflictError are about the account.
	UsageByDay(ctx context.Context, q UsageQuery) ([]adminapi.DayUsage, error)
}

func (a *API) fleetHistory(w http.ResponseWriter, r request) error {
	return a.serveHistory(w, r, history.Pool{})
}

func (a *API) poolHistory(w http.ResponseWriter, r request) error {
	return a.serveHistory(w, r, history.Pool{Namespace: r.PathValue("namespace"), Name: r.PathValue("pool")})
}

func (a *API) serveHistory(w http.ResponseWriter, r request, pool history.Pool) error {
	window, known := history.WindowByName(r.URL.Query().Get("window"))
	if !known {
		return &InvalidError{"window must be 24h or 14d"}
	}
	answer, err := a.histories.get(r.Context(), historyKey{pool, window.Name}, a.opt.Now(), func(ctx context.Context, now time.Time) (adminapi.History, error) {
		return a.readHistory(ctx, pool, window, now)
	})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, answer)
	return nil
}

// readHistory returns ErrNotFound for a pool that does not exist and has no sample in the window.
func (a *API) readHistory(ctx context.Context, pool history.Pool, window history.Window, now time.Time) (adminapi.History, error) {
	from, to := window.Bounds(now)
	samples, err := a.opt.Store.Samples(ctx, pool, from, to)
	if err != nil {
		return adminapi.History{}, err
	}
	exists := func(p adminapi.Pool) bool { return p.Namespace == pool.Namespace && p.Name == pool.Name }
	if pool != (history.Pool{}) && len(samples) == 0 && !slices.ContainsFunc(a.opt.Fleet.DescribePools(), exists) {
		return adminapi.History{}, ErrNotFound
	}
	answer := adminapi.History{
		Namespace: pool.Namespace, Name: pool.Name, Window: adminapi.HistoryWindow(window.Name), From: from, To: to,
		StepSeconds: int64(window.Step / time.Second), Points: []adminapi.HistoryPoint{},
	}
	for _, p := range window.Series(now, samples) {
		answer.Points = append(answer.Points, historyPoint(p))
	}
	return answer, nil
}

func historyPoint(p history.Point) adminapi.HistoryPoint {
	quantile := func(q float64) *float64 {
		if seconds, ok := p.QueueTimes.Quantile(q); ok {
			return &seconds
		}
		return nil
	}
	return adminapi.HistoryPoint{
		At: p.At, SampledMinutes: p.Minutes, Queued: p.Queued, PeakQueued: p.PeakQueued, Busy: p.Busy, PeakBusy: p.PeakBusy, Idle: p.Idle,
		Starting: p.Starting, Capacity: p.Capacity, StartedJobs: p.QueueTimes.Jobs(), QueueTimeP50: quantile(.5), QueueTimeP95: quantile(.95),
	}
}

// historyKept is how long an answer is cached: live pages request it every two seconds, and it changes once a minute.
const historyKept = 20 * time.Second

type historyKey struct {
	pool   history.Pool
	window string
}

// historyCache caches answers. They share memory and must not be changed.
type historyCache struct {
	mu      sync.Mutex
	answers map[historyKey]cachedHistory
}

type cachedHistory struct {
	readAt time.Time
	answer adminapi.History
}

func (c *historyCache) get(
	ctx context.Context, key historyKey, now time.Time, read func(context.Context, time.Time) (adminapi.History, error),
) (adminapi.History, error) {
	c.mu.Lock()
	kept, known := c.answers[key]
	c.mu.Unlock()
	if known && kept.fresh(now) {
		return kept.answer, nil
	}
	answer, err := read(ctx, now)
	if err != nil {
		return answer, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, old := range c.answers { // bounds the cache by the requests of the last seconds
		if !old.fresh(now) {
			delete(c.answers, other)
		}
	}
	if c.answers == nil {
		c.answers = map[historyKey]cachedHistory{}
	}
	c.answers[key] = cachedHistory{now, answer}
	return answer, nil
}

func (h cachedHistory) fresh(now time.Time) bool {
	age := now.Sub(h.readAt)
	return age >= 0 && age < historyKept
}

func (a *API) listUsageByDay(w http.ResponseWriter, r request) error {
	now := a.opt.Now().UTC()
	q := UsageQuery{Account: r.URL.Query().Get("account"), Now: now}
	var err error
	if q.Since, q.Before, err = months(r.URL.Query().Get("from"), r.URL.Query().Get("to"), now); err != nil {
		return err
	}
	usage, err := a.opt.Store.UsageByDay(r.Context(), q)
	if err != nil {
		return err
	}
	if usage == nil {
		usage = []adminapi.DayUsage{}
	}
	write(w, http.StatusOK, adminapi.DayUsageList{Usage: usage, AsOf: now})
	return nil
}
