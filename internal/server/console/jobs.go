package console

import (
	"net/url"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// jobsPerPage is how many jobs a page shows unless its address says otherwise.
const jobsPerPage = 50

// jobsView is the list of jobs, and the filter as the address has it.
type jobsView struct {
	Jobs                       []adminapi.Job
	State, Account, Repository string
	States                     []string
	Ended, Later               bool
	First, Next                string // addresses of pages; empty: none
}

func loadJobs(_ *Console, v *visitor, at location) (string, any, error) {
	view := jobsView{
		State: at.query.Get("state"), Account: at.query.Get("account"), Repository: at.query.Get("repository"),
		Ended: at.query.Get("ended") == "true", Later: at.query.Get("before") != "",
	}
	for _, state := range fleet.JobStates() {
		if state != fleet.JobAbsent {
			view.States = append(view.States, string(state))
		}
	}
	query := url.Values{"limit": {strconv.Itoa(jobsPerPage)}}
	for _, name := range []string{"state", "account", "repository", "ended", "before", "limit"} {
		if value := at.query.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	var list adminapi.JobList
	if err := v.get(adminapi.PathJobs+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Jobs = list.Jobs
	page := func(before string) string {
		to := url.Values{}
		for _, name := range []string{"state", "account", "repository", "ended", "limit"} {
			if value := at.query.Get(name); value != "" {
				to.Set(name, value)
			}
		}
		if before != "" {
			to.Set("before", before)
		}
		if len(to) == 0 {
			return "/ui/jobs"
		}
		return "/ui/jobs?" + to.Encode()
	}
	if view.Later {
		view.First = page("")
	}
	if list.Next != 0 {
		view.Next = page(strconv.FormatInt(list.Next, 10))
	}
	return "Jobs", view, nil
}

// jobView is one job: what became of it, why it waits, and where its time went.
type jobView struct {
	Job   adminapi.Job
	Why   adminapi.Why
	Steps []stepView
	Bars  []barView
	// Phases are the timeline as bars, one for each phase.
	Phases []phaseBar
	Total  float64 // seconds
	Known  bool    // the ledger has it
}

// Died says whether its runner ended as none should, so that its last lines are kept.
func (j jobView) Died() bool {
	return j.Job.RunnerLostAt != nil || j.Job.ExitCode != nil && *j.Job.ExitCode != 0
}

// stepView is a step of a job's life, and what the time before it was spent on.
type stepView struct {
	adminapi.TimelineStep
	Phase   string // empty: the first step
	Seconds float64
}

// barView is a phase as a part of a bar, in percent.
type barView struct {
	Phase       string
	Start, Wide float64
}

func loadJob(_ *Console, v *visitor, at location) (string, any, error) {
	path := adminapi.PathJobs + "/" + url.PathEscape(at.path("job"))
	var view jobView
	if err := v.get(path+"/why", &view.Why); err != nil {
		return "", nil, err
	}
	title := "Job " + strconv.FormatInt(view.Why.JobID, 10)
	if view.Why.Job == nil {
		return title, view, nil
	}
	if err := v.get(path, &view.Job); err != nil {
		return "", nil, err
	}
	view.Known = true
	if t := view.Job.Timeline; t != nil {
		view.Steps, view.Bars, view.Total = timeline(*t)
		view.Phases = phaseBars(t)
	}
	return title, view, nil
}

// timeline puts each phase before the step that ended it, and the phases side by side.
func timeline(t adminapi.Timeline) (steps []stepView, bars []barView, total float64) {
	for _, phase := range t.Split {
		total += phase.Seconds
	}
	start := 0.0
	for i, step := range t.Steps {
		shown := stepView{TimelineStep: step}
		if i > 0 && i <= len(t.Split) { // the first step ends no phase
			phase := t.Split[i-1]
			shown.Phase, shown.Seconds = phase.Name, phase.Seconds
			if total > 0 {
				wide := 100 * phase.Seconds / total
				bars = append(bars, barView{Phase: phase.Name, Start: start, Wide: wide})
				start += wide
			}
		}
		steps = append(steps, shown)
	}
	return steps, bars, total
}
