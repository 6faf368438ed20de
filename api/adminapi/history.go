package adminapi

import "time"

// PathHistory is where the history of the fleet is: ?window=24h or 14d. A pool's is PathPools + "/" + its namespace + "/" + its name +
// "/history". Both need the right to see pools.
const PathHistory = "/api/v1/history"

// HistoryWindow is how long a history is.
type HistoryWindow string

// The windows. The first has a point for each quarter of an hour, the second for each four hours.
const (
	History24Hours HistoryWindow = "24h"
	History14Days  HistoryWindow = "14d"
)

// History is how busy a pool, or the fleet, was, and how long its jobs were queued. It is made of samples that the server takes once a minute.
type History struct {
	Namespace string        `json:"namespace,omitempty"` // of the pool; left out for the fleet
	Name      string        `json:"name,omitempty"`      // the pool; left out for the fleet
	Window    HistoryWindow `json:"window"`
	From      time.Time     `json:"from"`
	To        time.Time     `json:"to"` // the end of the last point's step, which is under way
	// StepSeconds is the time from one point to the next.
	StepSeconds int64 `json:"stepSeconds"`
	// Points are one for each step, in order, also for steps without a sample.
	Points []HistoryPoint `json:"points"`
}

// HistoryPoint is one step of a history.
type HistoryPoint struct {
	At time.Time `json:"at"` // the begin of the step
	// SampledMinutes is how many minutes of the step have a sample. 0: the numbers of jobs and runners are unknown.
	SampledMinutes int64 `json:"sampledMinutes"`
	// Queued is the mean number of jobs that waited for a runner of the pool, and no longer for a limit.
	Queued     float64 `json:"queued"`
	PeakQueued int64   `json:"peakQueued"` // the highest number of one minute
	// Busy, Idle and Starting are mean numbers of runners.
	Busy     float64 `json:"busy"`
	PeakBusy int64   `json:"peakBusy"`
	Idle     float64 `json:"idle"`
	Starting float64 `json:"starting"`
	// Capacity is the mean of the most runners that the pool could have: spec.replicas, or spec.autoscaling.maxReplicas.
	Capacity float64 `json:"capacity"`
	// StartedJobs began in the step on runners of the pool.
	StartedJobs int64 `json:"startedJobs"`
	// QueueTimeP50 and QueueTimeP95 are quantiles of the queue time of these jobs, in seconds; left out without any.
	QueueTimeP50 *float64 `json:"queueTimeP50,omitempty"`
	QueueTimeP95 *float64 `json:"queueTimeP95,omitempty"`
}

// PathUsageByDay is what accounts have used by day: ?from=2026-01&to=2026-03&account=LOGIN.
const PathUsageByDay = PathUsage + "/days"

// DayFormat is how a day is written: 2026-11-26.
const DayFormat = "2006-01-02"

// DayUsage is what the runners of all pools have done on one day (UTC), for one account or for all. It is counted as MonthUsage is.
type DayUsage struct {
	Day              string  `json:"day"` // 2026-11-26
	Sessions         int64   `json:"sessions"`
	Jobs             int64   `json:"jobs"`
	RunnerSeconds    float64 `json:"runnerSeconds"`
	JobSeconds       float64 `json:"jobSeconds"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryGiBSeconds float64 `json:"memoryGiBSeconds"`
}

// DayUsageList is the days on which anything was used, in order.
type DayUsageList struct {
	Usage []DayUsage `json:"usage"`
	AsOf  time.Time  `json:"asOf"` // sessions that have not ended are counted up to here
}
