package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// tracked is a job that was submitted and has not ended, as far as is known.
type tracked struct {
	repository string
	asked      int  // how often it was asked for alone
	running    bool // when its server was last asked
}

// tracker knows what was submitted and what became of it. It has no clock and no lock.
type tracker struct {
	pending map[int64]*tracked
	ended   []adminapi.Job
	runs    int
	jobs    int
}

func newTracker() *tracker { return &tracker{pending: map[int64]*tracked{}} }

func (t *tracker) submitted(repository string, ids []int64) {
	t.runs++
	t.jobs += len(ids)
	for _, id := range ids {
		t.pending[id] = &tracked{repository: repository}
	}
}

// live takes the jobs that have not ended, and returns those of ours that are not among them, up to most: they have completed, or are not
// known yet. Those that were requested least often come first.
func (t *tracker) live(jobs []adminapi.Job, most int) []int64 {
	alive := make(map[int64]bool, len(jobs))
	for _, job := range jobs {
		alive[job.ID] = true
		if known := t.pending[job.ID]; known != nil {
			known.running = job.StartedAt != nil
		}
	}
	var absent []int64
	for id := range t.pending {
		if !alive[id] {
			absent = append(absent, id)
		}
	}
	slices.SortFunc(absent, func(a, b int64) int {
		return cmp.Or(cmp.Compare(t.pending[a].asked, t.pending[b].asked), cmp.Compare(a, b))
	})
	absent = absent[:min(len(absent), most)]
	for _, id := range absent {
		t.pending[id].asked++
	}
	return absent
}

// read takes a job that was asked for alone.
func (t *tracker) read(job adminapi.Job) {
	if t.pending[job.ID] == nil || job.CompletedAt == nil && !terminal(job.State) {
		return
	}
	delete(t.pending, job.ID)
	t.ended = append(t.ended, job)
}

func terminal(state string) bool {
	return state == adminapi.JobCompleted
}

// left are the jobs that have not ended, in order.
func (t *tracker) left() []int64 {
	ids := make([]int64, 0, len(t.pending))
	for id := range t.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// progress counts.
func (t *tracker) progress(planned int, elapsed time.Duration) Progress {
	p := Progress{Elapsed: elapsed, Planned: planned, Submitted: t.jobs, Ended: len(t.ended)}
	for _, known := range t.pending {
		if known.running {
			p.Running++
		}
	}
	p.Waiting = len(t.pending) - p.Running
	return p
}
