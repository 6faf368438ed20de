package load

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// wall is real time; in the tests it is that of their bubble.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// world is a fleet in which each job takes its steps at stated times after it was queued.
type world struct {
	mu        sync.Mutex
	jobs      []time.Time // when each was queued; ids count from 1
	never     map[int64]bool
	ended     time.Duration
	refuse    error         // of submissions
	readError error         // of reading
	unread    bool          // reading fails
	alone     int           // jobs asked for alone
	most      int           // the maximum of jobs that had not ended
	slow      time.Duration // of a submission
	pages     time.Duration // that listing jobs takes
}

func (w *world) Submit(ctx context.Context, _, workflow string) ([]int64, error) {
	select {
	case <-time.After(w.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	var ids []int64
	for range strings.Count(workflow[:strings.Index(workflow, "steps")], ", ") + 1 {
		w.jobs = append(w.jobs, time.Now())
		ids = append(ids, int64(len(w.jobs)))
	}
	unended := 0
	for i := range w.jobs {
		if w.job(int64(i+1)).CompletedAt == nil {
			unended++
		}
	}
	w.most = max(w.most, unended)
	return ids, nil
}

func (w *world) job(id int64) adminapi.Job {
	queued := w.jobs[id-1]
	job := adminapi.Job{ID: id, Repository: "acme/app", Name: "load", QueuedAt: queued, State: "queued"}
	at := func(d time.Duration) *time.Time {
		if t := queued.Add(d); !w.never[id] && !t.After(time.Now()) {
			return &t
		}
		return nil
	}
	job.ReceivedAt, job.ClaimedAt, job.RegisteredAt = at(100*time.Millisecond), at(300*time.Millisecond), at(600*time.Millisecond)
	job.Acknowledged, job.StartedAt, job.CompletedAt = at(700*time.Millisecond), at(time.Second), at(w.ended)
	if job.CompletedAt != nil {
		job.State, job.Conclusion = "completed", "success"
	}
	timeline := admin.TimelineOf(job)
	job.Timeline = &timeline
	return job
}

func (w *world) Live(context.Context) ([]adminapi.Job, error) {
	<-time.After(w.pages)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread {
		return nil, w.readError
	}
	var live []adminapi.Job
	for i := range w.jobs {
		if job := w.job(int64(i + 1)); job.ReceivedAt != nil && job.CompletedAt == nil || w.never[job.ID] {
			live = append(live, job)
		}
	}
	return live, nil
}

func (w *world) Job(_ context.Context, id int64) (adminapi.Job, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alone++
	job := w.job(id)
	return job, job.ReceivedAt != nil, nil
}

func (w *world) Why(_ context.Context, id int64) (adminapi.Why, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.job(id)
	return adminapi.Why{JobID: id, Job: &job, Reasons: []adminapi.Reason{{Code: "account-at-limit", Sentence: "It is full.", Remedy: "Wait."}}}, nil
}

func generated(w *world) Options {
	return Options{
		Plan: Plan{Shape: Even, Rate: 10, Jobs: 40, For: time.Minute, Seed: 1}, Mix: DefaultMix(),
		Forge: w, Ledger: w, Clock: wall{}, MaxWaiting: 1000, Patience: time.Minute,
	}
}

func TestRun_SaysWhereTheTimeWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 3 * time.Second}
		looks := 0
		opts := generated(w)
		opts.Progress = func(p Progress) { looks++; require.NoError(t, p.Trouble) }
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.True(t, r.Good(), "%+v", r)
		require.Equal(t, []int{40, 40, 40, 40}, []int{r.PlannedJobs, r.SubmittedJobs, r.SubmittedRuns, r.Ended})
		require.InDelta(t, 3.9, r.SubmitSeconds, 0.01)
		want := map[string]float64{"hook": 0.1, "claim": 0.2, "mint": 0.3, "handover": 0.1, "start": 0.3, "wait": 1}
		require.Len(t, r.Stages, len(want))
		for _, s := range r.Stages {
			require.InDelta(t, want[s.Name], s.P50, 1e-6, s.Name)
			require.Equal(t, 40, s.Count)
		}
		require.NotEmpty(t, r.Series)
		require.Positive(t, looks)
		require.Less(t, w.alone, 3*40) // each is asked for alone when it has ended, and little besides
	})
}

func TestRun_NamesJobsThatNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 3 * time.Second, never: map[int64]bool{7: true}}
		r, err := Run(t.Context(), generated(w))
		require.NoError(t, err)
		require.False(t, r.Good())
		require.Equal(t, []Stuck{{ID: 7, Repository: "acme/app", Name: "load", State: "queued", Code: "account-at-limit", Sentence: "It is full.", Remedy: "Wait."}}, r.Stuck)
		require.Equal(t, []int{39, 1}, []int{r.Ended, r.Unended})
		require.InDelta(t, 3.9+60, r.LastedSeconds, 1)
	})
}

func TestRun_HoldsBackAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 3 * time.Second}
		opts := generated(w)
		opts.MaxWaiting = 8
		opts.Mix.Runs[0].Jobs = 4
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.True(t, r.Good())
		require.Positive(t, r.HeldBack)
		require.LessOrEqual(t, w.most, 8)

		opts.MaxWaiting = 3
		_, err = Run(t.Context(), opts)
		require.ErrorContains(t, err, "4 jobs")
	})
}

// Jobs that never end do not hold a run forever, although nothing more can be submitted.
func TestRun_EndsWhenNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 1000 * time.Hour}
		opts := generated(w)
		opts.MaxWaiting = 8
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.False(t, r.Good())
		require.Equal(t, []int{8, 8}, []int{r.SubmittedJobs, r.Unended})
		require.InDelta(t, 61+60, r.LastedSeconds, 1)
	})
}

func TestRun_EndsOnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 1500 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), 2050*time.Millisecond)
		defer cancel()
		r, err := Run(ctx, generated(w))
		require.NoError(t, err)
		require.True(t, r.Interrupted)
		require.False(t, r.Good())
		require.Equal(t, 21, r.SubmittedJobs)
		require.Len(t, w.jobs, 21)
		require.Equal(t, 21, r.Ended+r.Unended)
		require.Empty(t, r.Stuck)
	})
}

// A run whose submission was under way is waited for, and counts: GitHub has its jobs.
func TestRun_CountsWhatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: time.Minute, slow: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		r, err := Run(ctx, generated(w))
		require.NoError(t, err)
		require.True(t, r.Interrupted)
		require.Len(t, w.jobs, 3)
		require.Equal(t, 3, r.SubmittedJobs)
	})
}

func TestRun_EndsInTimeWhenSubmittingIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 3 * time.Second, slow: 5 * time.Second}
		opts := generated(w)
		opts.Plan.For = 8 * time.Second
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.Equal(t, []int{40, 2}, []int{r.PlannedJobs, r.SubmittedJobs})
		require.InDelta(t, 9.9, r.LateSeconds, 0.01)
		require.False(t, r.Good())
	})
}

// Where looks are slow and far apart, a job that ended since the last one is not called one that never did.
func TestRun_LooksAgainBeforeItNamesJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ended: 9 * time.Second, pages: 3 * time.Second}
		opts := generated(w)
		opts.Plan.Jobs, opts.Patience = 1, 10*time.Second
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.True(t, r.Good(), "%+v", r)
	})
}

func TestRun_ErrorsComeWithWhatIsKnown(t *testing.T) {
	lost := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		w := &world{unread: true, readError: lost}
		_, err := Run(t.Context(), generated(w))
		require.ErrorIs(t, err, lost)
		require.Empty(t, w.jobs) // nothing is submitted that cannot be watched

		w = &world{refuse: lost, ended: time.Second}
		r, err := Run(t.Context(), generated(w))
		require.ErrorIs(t, err, lost)
		require.Zero(t, r.SubmittedJobs)
		require.False(t, r.Good())
	})
	synctest.Test(t, func(t *testing.T) { // it waits for a server that is unavailable for a while
		w := &world{ended: 3 * time.Second, readError: lost}
		opts := generated(w)
		troubles := 0
		opts.Progress = func(p Progress) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if p.Trouble != nil {
				troubles++
			}
			w.unread = p.Elapsed > 2*time.Second && p.Elapsed < 20*time.Second
		}
		r, err := Run(t.Context(), opts)
		require.NoError(t, err)
		require.True(t, r.Good())
		require.Positive(t, troubles)
	})
}
