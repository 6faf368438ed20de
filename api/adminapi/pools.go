package adminapi

import "time"

// PathPools lists pools; one is PathPools + "/" + its namespace + "/" + its name.
const PathPools = "/api/v1/pools"

// ResourcePools is what Kubernetes is asked about for pools; for runners it is ResourceRunnerPods.
const ResourcePools = "pools"

// Pool is what a pool of runners has and what is asked of it.
type Pool struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Labels    []string `json:"labels"`
	Platform  string   `json:"platform"`
	MilliCPU  int64    `json:"milliCpu"` // of one runner
	MemoryMB  int64    `json:"memoryMb"` // of one runner, in mebibytes
	// Desired is how many runners there are to be. The others are what the controller has counted last: Booting cannot take a job yet, Idle
	// can at once, Busy show work, Leaving are being removed, Finished have ended and are not gone.
	Desired  int64 `json:"desired"`
	Booting  int64 `json:"booting"`
	Idle     int64 `json:"idle"`
	Busy     int64 `json:"busy"`
	Leaving  int64 `json:"leaving"`
	Finished int64 `json:"finished"`
	// Intake says whether its runners are given jobs: Open, Paused (they stay and are given none) or Drained (idle ones leave as well).
	Intake   string `json:"intake"`
	Deleting bool   `json:"deleting,omitempty"` // it takes no more jobs, and goes when its runners are done
	// Problems are what is wrong with it, a sentence each, as its conditions say.
	Problems []Problem `json:"problems"`
	// Demand is nil while it cannot be read.
	Demand *PoolDemand `json:"demand,omitempty"`
}

// Problem is a condition of a pool that somebody should know of.
type Problem struct {
	Condition string `json:"condition"`
	Sentence  string `json:"sentence"`
}

// PoolDemand is what waits for a pool.
type PoolDemand struct {
	Queued       int64            `json:"queued"`             // jobs that would begin at once if there were runners
	Withheld     map[string]int64 `json:"withheld,omitempty"` // jobs that wait for something else, by what: account_limit, suspended, …
	OldestQueued *time.Time       `json:"oldestQueued,omitempty"`
}

// PoolList is all pools, by name.
type PoolList struct {
	Pools []Pool `json:"pools"`
	// Held says why no job is handed out at all; empty: they are.
	Held string `json:"held,omitempty"`
	// Unserved are the queued jobs that no pool serves; nil while it cannot be read, and of an older server.
	Unserved *UnservedJobs `json:"unserved,omitempty"`
}

// Runner is one runner pod of a pool.
type Runner struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // the pod's
	Pool      string `json:"pool"`
	// Stage is booting, idle, claimed (it was chosen for a job), minted (it is registered for it), busy, leaving or finished.
	Stage     string     `json:"stage"`
	Node      string     `json:"node,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	Account   string     `json:"account,omitempty"` // whose job it was chosen for
	JobID     int64      `json:"jobId,omitempty"`
	RunnerAt  string     `json:"runnerName,omitempty"` // at GitHub
	ClaimedAt *time.Time `json:"claimedAt,omitempty"`
}

// RunnerStages are what Runner.Stage may be, in the order of a runner's life.
func RunnerStages() []string {
	return []string{"booting", "idle", "claimed", "minted", "busy", "leaving", "finished"}
}

// RunnerList is one page, by namespace and name.
type RunnerList struct {
	Runners []Runner `json:"runners"`
	Next    string   `json:"next,omitempty"` // the "after" of the next page; empty: this is the last
}

// RunnerLog is what a runner that died had said last. It is kept for a week.
type RunnerLog struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"` // of the pod
	Pool      string    `json:"pool"`
	EndedAt   time.Time `json:"endedAt"`
	ExitCode  *int32    `json:"exitCode,omitempty"` // of the runner's container; left out when it is not known
	Reason    string    `json:"reason"`             // Kubernetes' word: Error, OOMKilled, Evicted, …
	Tail      string    `json:"tail"`               // at most its last 200 lines and 64 KiB
	Cut       bool      `json:"cut,omitempty"`      // there was more before it
}
