package load

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Progress is how far it is, in jobs.
type Progress struct {
	Elapsed                                     time.Duration
	Planned, Submitted, Waiting, Running, Ended int
	// Trouble is why the jobs could not be read the last time; nil when they could.
	Trouble error
}

// Result is the outcome. Times are in seconds.
type Result struct {
	Shape Shape  `json:"shape"`
	Seed  uint64 `json:"seed"`
	// PlannedJobs were to be submitted, SubmittedJobs were, in SubmittedRuns.
	PlannedJobs   int `json:"plannedJobs"`
	SubmittedJobs int `json:"submittedJobs"`
	SubmittedRuns int `json:"submittedRuns"`
	Ended         int `json:"ended"`
	// Conclusions are those of the jobs that have ended.
	Conclusions map[string]int `json:"conclusions"`
	Interrupted bool           `json:"interrupted"`
	// SubmitSeconds is from the beginning to the last submission, LastedSeconds to the end.
	SubmitSeconds float64 `json:"submitSeconds"`
	LastedSeconds float64 `json:"lastedSeconds"`
	// LateSeconds is by how much the run that was latest was submitted after its time.
	LateSeconds float64 `json:"lateSeconds"`
	// HeldBack counts the runs that had to wait because too many jobs had not ended.
	HeldBack int     `json:"heldBack"`
	Stages   []Stage `json:"stages"`
	Series   []Point `json:"series"`
	// Unended counts the jobs that did not end, Stuck are the first of them, and why.
	Unended int     `json:"unended"`
	Stuck   []Stuck `json:"stuck"`
}

// Stage is a part of a job's wait, of the jobs that have it.
type Stage struct {
	Name string `json:"name"`
	Summary
	Histogram []Bucket `json:"histogram"`
}

// Point is the wait of the jobs that were queued in a part of the time.
type Point struct {
	Summary
	After float64 `json:"afterSeconds"` // of the part's middle, since the first job was queued
}

// Stuck is a job that did not end.
type Stuck struct {
	ID         int64  `json:"id"`
	Repository string `json:"repository"`
	Name       string `json:"name,omitempty"`
	State      string `json:"state,omitempty"`
	// Code, Sentence and Remedy are those of `bullpen why`.
	Code     string `json:"code,omitempty"`
	Sentence string `json:"sentence"`
	Remedy   string `json:"remedy,omitempty"`
}

// Good reports whether every planned job was submitted and succeeded.
func (r Result) Good() bool {
	return r.Unended == 0 && r.SubmittedJobs == r.PlannedJobs && r.Conclusions["success"] == r.SubmittedJobs
}

// StageWait is the whole wait; the stages before it add up to it.
const StageWait = "wait"

// stages of a job's wait in the order of its life, and the administrators' API's names for them.
var stages = []struct{ name, phase string }{
	{"hook", "webhook"}, {"approval", "approval"}, {"claim", "dispatch"}, {"mint", "registration"}, {"handover", "handover"}, {"start", "start"},
}

// Stages splits the waits of jobs that have begun. A stage that no job has is left out.
func Stages(jobs []adminapi.Job) []Stage {
	values := map[string][]float64{}
	for _, job := range jobs {
		if _, begun := waited(job); !begun {
			continue
		}
		for _, phase := range job.Timeline.Split {
			if phase.Name != "run" {
				values[phase.Name] = append(values[phase.Name], phase.Seconds)
			}
		}
		whole, _ := waited(job)
		values[StageWait] = append(values[StageWait], whole)
	}
	out := []Stage{}
	for _, stage := range append(slices.Clone(stages), struct{ name, phase string }{StageWait, StageWait}) {
		if v := values[stage.phase]; len(v) > 0 {
			out = append(out, Stage{Name: stage.name, Summary: Summarize(v), Histogram: Histogram(v)})
		}
	}
	return out
}

// waited is the sum of a job's stages, in seconds; false: it has not begun.
func waited(job adminapi.Job) (seconds float64, begun bool) {
	if job.Timeline == nil || job.StartedAt == nil {
		return 0, false
	}
	for _, phase := range job.Timeline.Split {
		if phase.Name != "run" {
			seconds += phase.Seconds
		}
	}
	return seconds, true
}

// mostPoints of a series: a plot cannot show more.
const mostPoints = 60

// Series is the wait over the time of queueing. A part in which no job was queued has no point.
func Series(jobs []adminapi.Job) []Point {
	var begun []adminapi.Job
	for _, job := range jobs {
		if _, is := waited(job); is {
			begun = append(begun, job)
		}
	}
	if len(begun) == 0 {
		return []Point{}
	}
	slices.SortFunc(begun, func(a, b adminapi.Job) int { return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID)) })
	first := begun[0].QueuedAt
	last := begun[len(begun)-1].QueuedAt.Sub(first).Seconds()
	width := math.Max(1, math.Ceil((last+1)/mostPoints)) // GitHub's times are whole seconds
	parts := map[int][]float64{}
	for _, job := range begun {
		part := int(job.QueuedAt.Sub(first).Seconds() / width)
		wait, _ := waited(job)
		parts[part] = append(parts[part], wait)
	}
	points := []Point{}
	for part := range mostPoints {
		if v := parts[part]; len(v) > 0 {
			points = append(points, Point{Summary: Summarize(v), After: (float64(part) + 0.5) * width})
		}
	}
	return points
}
