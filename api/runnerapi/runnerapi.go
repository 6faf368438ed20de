package runnerapi

import "time"

// Paths of the internal interface.
const (
	PathDispatch    = "/internal/v1/dispatch"
	PathAcknowledge = "/internal/v1/dispatch/ack"
	PathRetire      = "/internal/v1/retire"
	PathPodsStopped = "/internal/v1/pods/stopped"
	PathSignals     = "/internal/v1/signals"
	PathDemand      = "/internal/v1/demand"
)

// Audiences of the tokens that are accepted there.
const (
	// AudienceDispatch is the audience of a pod's own projected token: dispatch and acknowledge only.
	AudienceDispatch = "bullpen-dispatch"
	// AudienceServer is the audience of the controller's token: retire, pods/stopped, signals and demand only.
	AudienceServer = "bullpen-server"
)

// PollHold is how long the server holds a poll that finds no work before it answers 204. Clients give up no earlier
// than PollClientTimeout, which leaves room for a mint.
const (
	PollHold          = 25 * time.Second
	PollClientTimeout = 60 * time.Second
)

// AcknowledgeWait is how long a pod waits for the end of the server's answer before it starts its runner without. The server
// gives up earlier.
const AcknowledgeWait = 1500 * time.Millisecond

// Poll is the body of PathDispatch.
type Poll struct {
	// Sequence numbers the pod's requests: each has a larger number than the ones before, also after a restart of the
	// poller. A request that is read late, from a connection that nobody listens to any more, is known by it. 0 or absent:
	// an agent that does not number them.
	Sequence int64 `json:"sequence,omitempty"`
}

// Dispatch answers PathDispatch (POST, Poll as body, the pod's token as bearer):
//
//	200  Dispatch: a JIT configuration; stage it, acknowledge, never poll again
//	204  no work yet: ask again at once
//	401, 403  the token is not accepted: exit 1
//	410  this pod's shot is spent or the fleet takes the pod: exit 0
//	429, 503  come back after Retry-After seconds
//
// A lost 200 costs nothing: the next poll of the same pod is given a fresh configuration (CLAIM-7).
type Dispatch struct {
	// JITConfig is the base64 blob for the runner. It is never logged or stored by anyone (NET-3).
	JITConfig string `json:"jit_config"`
	// RunnerName is the registration's name.
	RunnerName string `json:"runner_name"`
	// Generation identifies this answer; it is sent back in the acknowledgement (CLAIM-15).
	Generation int64 `json:"generation"`
}

// Acknowledge is the body of PathAcknowledge (POST, the pod's token): the configuration is staged, and its runner not started. 200
// when it is recorded, also when it was before; 409 when a later answer has replaced that generation. Best effort: that the
// poller has terminated says the same.
//
// The body of a 200 is empty and ends when the pod's owner label is written or given up, after a second at most. The runner is started
// when it has ended, however it ends, or AcknowledgeWait after the first attempt (TEN-8). A server of an earlier release answers 204 at once.
type Acknowledge struct {
	Generation int64 `json:"generation"`
}

// RetireRequest is the body of PathRetire (POST, the controller's token): may these pods be removed?
type RetireRequest struct {
	Pods []PodRef `json:"pods"`
}

// PodRef names one pod, by UID; name and namespace are kept with the row for people to read.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Pool      string `json:"pool"`
	// Lost says that the pod's node is authoritatively gone: what the pod shows proves nothing any more, and it may go
	// only if its registration is proven gone (POOL-7).
	Lost bool `json:"lost,omitempty"`
}

// RetireResponse answers in the order of the request.
type RetireResponse struct {
	Answers []RetireAnswer `json:"answers"`
}

// Verdict of a retire request for one pod.
type Verdict string

// The verdicts. Anything else, and any pod that is not answered, is to be taken as Unknown.
const (
	Granted Verdict = "granted"
	Busy    Verdict = "busy"
	Unknown Verdict = "unknown"
)

// RetireAnswer says whether one pod may be removed. Busy names the owner and the state of the claim.
type RetireAnswer struct {
	UID     string  `json:"uid"`
	Verdict Verdict `json:"verdict"`
	Owner   string  `json:"owner,omitempty"`
	State   string  `json:"state,omitempty"`
	// Proof comes with Granted when it is known, other than from the pod, that its work is over: a sentence. It lifts
	// the veto of the pod's own signs of work (EXCL-4).
	Proof string `json:"proof,omitempty"`
	// Reason comes with Unknown where there is more to say than that nobody could be asked: a sentence.
	Reason string `json:"reason,omitempty"`
}

// PodStopped is the body of PathPodsStopped (POST, the controller's token): the pod is terminal, or gone. 204 also
// when nothing was open; any other status: report it again.
type PodStopped struct {
	Pod     PodRef    `json:"pod"`
	EndedAt time.Time `json:"ended_at"`
	// ExitCode of the runner container; nil when it never ran or its end is unknown.
	ExitCode *int32 `json:"exit_code,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Died says that nobody wanted it to end as it did. Tail is the end of the runner container's log then, as package logtail cuts it, empty
	// when there was none or it could not be read; TailCut says that there was more.
	Died    bool   `json:"died,omitempty"`
	Tail    string `json:"tail,omitempty"`
	TailCut bool   `json:"tail_cut,omitempty"`
}

// Error is the body of every answer of 400 and above.
type Error struct {
	Error string `json:"error"`
}

// Signals answers PathSignals (GET, the controller's token): what every pool is asked for, in one answer, and the pods
// that the server wants removed.
type Signals struct {
	At       time.Time     `json:"at"`
	Pools    []PoolSignals `json:"pools"`
	Removals []Removal     `json:"removals,omitempty"`
}

// PoolSignals is the demand for one pool, as numbers of runners.
type PoolSignals struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Occupied runners have a live claim or an open session: it counts a runner until its pod's end was reported.
	Occupied int `json:"occupied"`
	// Claimed runners have a live claim.
	Claimed int `json:"claimed"`
	// Queued jobs would be handed out now if there were runners: their accounts have room for them (SCALE-2).
	Queued int `json:"queued"`
	// Blocked jobs wait for something else than a runner, by reason; one job counts under one reason.
	Blocked map[BlockedReason]int `json:"blocked,omitempty"`
	// P95LastHour is the 95th percentile of the number of runners occupied at a time in the last hour.
	P95LastHour int `json:"p95_last_hour"`
	// Refused says in one sentence what GitHub refuses of the pool's jobs; empty when that is nothing.
	Refused string `json:"refused,omitempty"`
	// OldestQueued is when the oldest of Queued was queued; nil when there is none.
	OldestQueued *time.Time `json:"oldest_queued,omitempty"`
}

// BlockedReason says why a queued job is not handed out.
type BlockedReason string

// The reasons.
const (
	BlockedLimit      BlockedReason = "account_limit"    // its account's budget is used up (CLAIM-5)
	BlockedRepository BlockedReason = "repository_limit" // its repository is at its cap, or was taken from the installation
	BlockedSuspended  BlockedReason = "suspended"        // its installation is suspended or gone
	BlockedBackoff    BlockedReason = "backoff"          // requests to GitHub for its account are backing off (CLAIM-11)
	BlockedGroup      BlockedReason = "runner_group"     // its account has no runner group of the pool's name or id
	BlockedRefused    BlockedReason = "refused"          // GitHub registers no runner for it, or gives its runners no job of its repository (CLAIM-19, CLAIM-20)
	BlockedConflict   BlockedReason = "label_conflict"   // two live pools serve its label (CLAIM-12)
	BlockedPaused     BlockedReason = "pool_paused"      // an administrator has paused or drained the pool
)

// Removal is a pod that the server wants removed: its work has been over for a minute, and that is known other than from
// the pod, which has not gone by itself. The controller asks for it like for any other before it deletes it. At most 1000
// are named at a time, those that ended first.
type Removal struct {
	Pod   PodRef `json:"pod"`
	Proof string `json:"proof"`
}

// Bounds of one request to PathDemand, and of its answer.
const (
	MostDemandTargets = 1000   // targets
	MostDemandJobs    = 1000   // jobs of a kind, of one target
	MostDemandSeen    = 20_000 // DemandTarget.Seen, of all targets
	MostDemandAnswer  = 10_000 // jobs in an answer; what is beyond is cut from the targets that have most
)

// DemandRequest is the body of PathDemand (POST, the controller's token): which jobs do runners that register themselves have
// to be there for?
type DemandRequest struct {
	Targets []DemandTarget `json:"targets"`
}

// DemandTarget is where such runners are registered, and as what: exactly one of Enterprise, Organization and Repository.
type DemandTarget struct {
	// Key names the target in the answer; unique in a request.
	Key          string `json:"key"`
	Enterprise   string `json:"enterprise,omitempty"`
	Organization string `json:"organization,omitempty"`
	Repository   string `json:"repository,omitempty"` // owner/name
	// Repositories of an enterprise whose jobs are of interest: which accounts belong to one is not known here.
	Repositories []string `json:"repositories,omitempty"`
	// Labels of the runners.
	Labels []string `json:"labels"`
	// NoDefaultLabels: the runners have no label beside those, not even self-hosted.
	NoDefaultLabels bool `json:"no_default_labels,omitempty"`
	// Most is how many jobs of a kind are of interest.
	Most int `json:"most"`
	// Seen are jobs that were seen waiting or running at GitHub.
	Seen []int64 `json:"seen,omitempty"`
}

// DemandResponse answers for every target of the request, or there is no answer (POOL-8).
type DemandResponse struct {
	Targets []TargetDemand `json:"targets"`
}

// TargetDemand names the jobs of one target that its runners could be given and that no RunnerPool serves, by their ids: so
// whoever adds up several sources counts each job once.
type TargetDemand struct {
	Key string `json:"key"`
	// Sees: GitHub sends the messages of that target's jobs here. Of an enterprise it never does.
	Sees    bool        `json:"sees"`
	Queued  []DemandJob `json:"queued"`
	Running []DemandJob `json:"running"`
	// More: more jobs wait than are named. Of those that run fewer may be named than there are, without a word: most are other
	// runners' with the same labels, and who has one of its own running sees that on the runner.
	More bool `json:"more,omitempty"`
	// Settled are those of Seen that need none of these runners: they have ended, or a RunnerPool serves them.
	Settled []int64 `json:"settled,omitempty"`
}

// DemandJob is one job.
type DemandJob struct {
	ID         int64  `json:"id"`
	Repository string `json:"repository"` // owner/name
	// RunnerName has it, of a job that runs.
	RunnerName string    `json:"runner_name,omitempty"`
	QueuedAt   time.Time `json:"queued_at"`
	// Since is when the server learnt that it waits, or runs.
	Since time.Time `json:"since"`
}
