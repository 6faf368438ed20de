package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// jobsPerPage is how many jobs a page shows unless its address says otherwise.
const jobsPerPage = 50

// jobsView is the list of jobs, and the filter as the address has it.
type jobsView struct {
	Jobs                      []adminapi.Job
	Account, Repository, Name string
	Statuses, Conclusions     []choice
	Ended, Later              bool
	First, Next               string // addresses of pages; empty: none
}

// choice is an entry of a select.
type choice struct {
	Value, Text string
	Selected    bool
}

// Tab names the list by its filter.
func (j jobsView) Tab() string {
	var parts []string
	for _, c := range slices.Concat(j.Statuses, j.Conclusions) {
		if c.Selected {
			parts = append(parts, c.Text)
		}
	}
	for _, text := range []string{j.Account, j.Repository, j.Name} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "Jobs"
	}
	return "Jobs: " + strings.Join(parts, ", ")
}

// Filtered reports whether the list shows some of the jobs only.
func (j jobsView) Filtered() bool { return j.Tab() != "Jobs" }

// jobFilters are what of an address says which jobs are listed.
func jobFilters() []string {
	return []string{"state", "conclusion", "account", "repository", "name", "ended", "limit"}
}

// anyFailure is the filter for all conclusions that the overview counts as failed.
const anyFailure = "any_failure"

func failures() []string {
	return slices.DeleteFunc(adminapi.Conclusions(), func(conclusion string) bool { return !adminapi.Failed(conclusion) })
}

func loadJobs(_ *Console, v *visitor, at location) (string, any, error) {
	view := jobsView{
		Account: at.query.Get("account"), Repository: at.query.Get("repository"), Name: at.query.Get("name"),
		Ended: at.query.Get("ended") == "true", Later: at.query.Get("before") != "",
	}
	query := url.Values{"limit": {strconv.Itoa(jobsPerPage)}}
	for _, name := range append(jobFilters(), "before") {
		if value := at.query.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	if query.Get("conclusion") == anyFailure {
		query["conclusion"] = failures()
	}
	for _, state := range adminapi.JobStates() {
		view.Statuses = append(view.Statuses, choice{Value: state, Text: words(state), Selected: query.Get("state") == state})
	}
	for _, conclusion := range append([]string{anyFailure}, adminapi.Conclusions()...) {
		view.Conclusions = append(view.Conclusions, choice{Value: conclusion, Text: words(conclusion), Selected: at.query.Get("conclusion") == conclusion})
	}
	var list adminapi.JobList
	if err := v.get(adminapi.PathJobs+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Jobs = list.Jobs
	page := func(before string) string {
		to := url.Values{}
		for _, name := range jobFilters() {
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

// jobView is one job: what became of it, why it is queued, and where its time went.
type jobView struct {
	Job   adminapi.Job
	Why   adminapi.Why
	Steps []stepView
	Open  *adminapi.TimelineOpen
	// Phases are the timeline as bars, one for each phase.
	Phases []phaseBar
	Total  float64 // seconds
	Known  bool    // the ledger has it
}

// Tab names the job and its status. The page's script keeps the document's title at that.
func (j jobView) Tab() string {
	if !j.Known {
		return "Unknown job " + strconv.FormatInt(j.Why.JobID, 10)
	}
	return words(j.Job.Status()) + ": " + j.title()
}

func (j jobView) title() string {
	return cmp.Or(strings.TrimSpace(j.Job.Name), "Job "+strconv.FormatInt(j.Why.JobID, 10))
}

// Queued reports whether it has not got a runner yet.
func (j jobView) Queued() bool { return j.Job.StartedAt == nil && j.Job.CompletedAt == nil }

// LogCommand prints the job's log where GitHub has no pages; empty: GitHub has it, or the job has not started.
func (j jobView) LogCommand() string {
	if j.Job.URL != "" || j.Job.StartedAt == nil {
		return ""
	}
	return "bullpen job " + strconv.FormatInt(j.Job.ID, 10) + " --log"
}

// Died reports whether its runner failed, so that its last lines are kept.
func (j jobView) Died() bool {
	return j.Job.RunnerLostAt != nil || j.Job.ExitCode != nil && *j.Job.ExitCode != 0
}

// stepView is a step of a job's life, and what the time before it was spent on.
type stepView struct {
	adminapi.TimelineStep
	Phase   string // empty: the first step
	Seconds float64
	Whole   bool // Seconds are right to the second only
}

func loadJob(c *Console, v *visitor, at location) (string, any, error) {
	path := adminapi.PathJobs + "/" + url.PathEscape(at.path("job"))
	var view jobView
	if err := v.get(path+"/why", &view.Why); err != nil {
		return "", nil, err
	}
	if view.Why.Job == nil {
		return "Job " + strconv.FormatInt(view.Why.JobID, 10), view, nil
	}
	if err := v.get(path, &view.Job); err != nil {
		return "", nil, err
	}
	view.Known = true
	if t := view.Job.Timeline; t != nil {
		view.Steps, view.Total = timeline(*t)
		view.Open, view.Phases = t.Open, phaseBars(t, c.opt.Now())
	}
	return view.title(), view, nil
}

// timeline puts each phase before the step that ended it.
func timeline(t adminapi.Timeline) (steps []stepView, total float64) {
	for _, phase := range t.Split {
		total += phase.Seconds
	}
	for i, step := range t.Steps {
		shown := stepView{TimelineStep: step}
		if i > 0 && i <= len(t.Split) { // the first step ends no phase
			phase := t.Split[i-1]
			shown.Phase, shown.Seconds, shown.Whole = phase.Name, phase.Seconds, phase.WholeSeconds
		}
		steps = append(steps, shown)
	}
	return steps, total
}
