package adminapi

import "time"

// PathHistory returns the history of the fleet: ?window=24h or 14d. A pool's history is at PathPools + "/" + its namespace + "/" + its name +
// "/history". Both need the right to read pools.
const PathHistory = "/api/v1/history"

// HistoryWindow is the time range of a history.
type HistoryWindow string

// The windows. The first has one point per quarter hour, the second one per four hours.
const (
	History24Hours HistoryWindow = "24h"
	History14Days  HistoryWindow = "14d"
)

// History is the utilization and the queue times of a pool or of the fleet, from samples that the server takes once a minute.
type History struct {
	Namespace string        `json:"namespace,omitempty"` // of the pool; left out for the fleet
	Name      string        `json:"name,omitempty"`      // the pool; left out for the fleet
	Window    HistoryWindow `json:"window"`
	From      time.Time     `json:"from"`
	To        time.Time     `json:"to"` // the end of the last step, which is not over
	// StepSeconds is the length of a step.
	StepSeconds int64 `json:"stepSeconds"`
	// Points has one entry per step, in order, also for steps without samples.
	Points []HistoryPoint `json:"points"`
}

// HistoryPoint is one step of a history.
type HistoryPoint struct {
	At time.Time `json:"at"` // the begin of the step
	// SampledMinutes is the number of samples in the step. 0: the numbers of queued jobs and of runners are unknown.
	SampledMinutes int64 `json:"sampledMinutes"`
	// Queued is the mean number of queued jobs, without jobs blocked by limits.
	Queued     float64 `json:"queued"`
	PeakQueued int64   `json:"peakQueued"` // the highest number of one minute
	// Busy, Idle and Starting are mean numbers of runners.
	Busy     float64 `json:"busy"`
	PeakBusy int64   `json:"peakBusy"`
	Idle     float64 `json:"idle"`
	Starting float64 `json:"starting"`
	// Capacity is the mean of spec.replicas, or of spec.autoscaling.maxReplicas of an autoscaled pool.
	Capacity float64 `json:"capacity"`
	// StartedJobs is the number of jobs that started on the pool's runners.
	StartedJobs int64 `json:"startedJobs"`
	// QueueTimeP50 and QueueTimeP95 are quantiles of the queue time of started jobs, in seconds; omitted without jobs.
	QueueTimeP50 *float64 `json:"queueTimeP50,omitempty"`
	QueueTimeP95 *float64 `json:"queueTimeP95,omitempty"`
}

// PathUsageByDay returns usage by day: ?from=2026-01&to=2026-03&account=LOGIN.
const PathUsageByDay = PathUsage + "/days"

// DayFormat is how a day is written: 2026-11-26.
const DayFormat = "2006-01-02"

// DayUsage is the usage of one day (UTC), of all pools, for one account or for all. It is counted as MonthUsage is.
type DayUsage struct {
	Day              string  `json:"day"` // 2026-11-26
	Sessions         int64   `json:"sessions"`
	Jobs             int64   `json:"jobs"`
	RunnerSeconds    float64 `json:"runnerSeconds"`
	JobSeconds       float64 `json:"jobSeconds"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryGiBSeconds float64 `json:"memoryGiBSeconds"`
}

// DayUsageList has the days with usage, in order.
type DayUsageList struct {
	Usage []DayUsage `json:"usage"`
	AsOf  time.Time  `json:"asOf"` // sessions that have not ended are counted up to here
}
