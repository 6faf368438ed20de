package adminapi

import "time"

// PathPools lists pools; one is PathPools + "/" + its namespace + "/" + its name.
const PathPools = "/api/v1/pools"

// ResourcePools is the resource of access reviews for pools; for runners it is ResourceRunnerPods.
const ResourcePools = "pools"

// Pool is a pool of runners, with its demand.
type Pool struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Labels    []string `json:"labels"`
	Platform  string   `json:"platform"`
	MilliCPU  int64    `json:"milliCpu"` // of one runner
	MemoryMB  int64    `json:"memoryMb"` // of one runner, in mebibytes
	// Desired is the desired number of runners. The others are the controller's last counts: Starting are not idle yet, Idle can take a
	// job, Busy have one, Terminating are being removed, Finished have exited and still exist.
	Desired     int64 `json:"desired"`
	Starting    int64 `json:"starting"`
	Idle        int64 `json:"idle"`
	Busy        int64 `json:"busy"`
	Terminating int64 `json:"terminating"`
	Finished    int64 `json:"finished"`
	// Intake is Open, Paused (runners are kept and receive no jobs) or Drained (idle runners are removed as well).
	Intake string `json:"intake"`
	// Autoscaled: Bullpen sets the number of runners, between a minimum and a maximum.
	Autoscaled bool `json:"autoscaled,omitempty"`
	Deleting   bool `json:"deleting,omitempty"` // it takes no more jobs, and is deleted when its busy runners finish
	// Problems are its conditions that indicate a problem.
	Problems []Problem `json:"problems"`
	// Demand is left out while it cannot be read.
	Demand *PoolDemand `json:"demand,omitempty"`
}

// Problem is a condition that indicates a problem.
type Problem struct {
	Condition string `json:"condition"`
	Sentence  string `json:"sentence"`
}

// PoolDemand is the demand for a pool.
type PoolDemand struct {
	Queued       int64            `json:"queued"`            // jobs that may start
	Blocked      map[string]int64 `json:"blocked,omitempty"` // jobs that are held back, by reason, as Job.BlockedBy has them: account_limit, suspended, …
	OldestQueued *time.Time       `json:"oldestQueued,omitempty"`
}

// TotalBlocked is how many jobs are held back, for whatever reason.
func (d PoolDemand) TotalBlocked() (jobs int64) {
	for _, n := range d.Blocked {
		jobs += n
	}
	return jobs
}

// PoolList is all pools, by name.
type PoolList struct {
	Pools []Pool `json:"pools"`
	// Frozen is why no job is dispatched at all; empty: jobs are dispatched.
	Frozen string `json:"frozen,omitempty"`
	// Unserved are the queued jobs that no pool serves; nil if it cannot be read, and from a server of an earlier release.
	Unserved *UnservedJobs `json:"unserved,omitempty"`
}

// Runner is one runner pod of a pool.
type Runner struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // the pod's
	Pool      string `json:"pool"`
	// Stage is starting, idle, assigned (to a job), registered (for a job), busy, terminating or finished.
	Stage     string     `json:"stage"`
	Node      string     `json:"node,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	Account   string     `json:"account,omitempty"` // of the job that it is claimed for
	JobID     int64      `json:"jobId,omitempty"`
	RunnerAt  string     `json:"runnerName,omitempty"` // at GitHub
	ClaimedAt *time.Time `json:"claimedAt,omitempty"`
}

// RunnerStages are what Runner.Stage may be, in the order of a runner's life.
func RunnerStages() []string {
	return []string{"starting", "idle", "assigned", "registered", "busy", "terminating", "finished"}
}

// RunnerList is one page, by namespace and name.
type RunnerList struct {
	Runners []Runner `json:"runners"`
	Next    string   `json:"next,omitempty"` // the "after" of the next page; empty: this is the last
}

// RunnerLog is the end of a failed runner's log. It is kept for 7 days.
type RunnerLog struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"` // of the pod
	Pool      string    `json:"pool"`
	EndedAt   time.Time `json:"endedAt"`
	ExitCode  *int32    `json:"exitCode,omitempty"` // of the runner's container, if known
	Reason    string    `json:"reason"`             // Kubernetes' reason: Error, OOMKilled, Evicted, …
	Tail      string    `json:"tail"`               // at most 200 lines and 64 KiB
	Cut       bool      `json:"cut,omitempty"`      // earlier lines were dropped
}
