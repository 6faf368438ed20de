package adminapi

import (
	"encoding/json"
	"strconv"
	"time"
)

// Audience is the audience of tokens for this API. Tokens for the cluster's audience are accepted too.
const Audience = "bullpen-api"

// AudienceUser begins an audience that names the user who requested a ServiceAccount's token: the prefix and then the user's name. The
// chart's admission policy lets a user request it for their own name only.
const AudienceUser = "bullpen-user:"

// Paths. One account is PathAccounts + "/" + its login, or "@" + its ID; a verb is appended as ":suspend".
const (
	PathAccounts = "/api/v1/accounts"
	PathAudit    = "/api/v1/audit"
)

// HeaderVersion of every response to an authenticated request is the version of the server.
const HeaderVersion = "Bullpen-Version"

// Verbs of one account.
const (
	VerbSuspend = "suspend"
	VerbResume  = "resume"
)

// Group and the resources of access reviews (SubjectAccessReview). They exist in roles only.
const (
	Group            = "bullpen.dev"
	ResourceAccounts = "accounts"
	ResourceAudits   = "audits"
)

// MaxPage is the maximum number of entries in a page, and DefaultPage the default.
const (
	MaxPage     = 500
	DefaultPage = 100
)

// MaxReason bounds the reason of a change, in bytes.
const MaxReason = 500

// MaxQueued is the maximum count of queued jobs: it means "that many or more".
const MaxQueued = 10_000

// AccountState is whether an account's jobs are served.
type AccountState string

// The states. If several apply, the last one is shown.
const (
	AccountActive      AccountState = "active"
	AccountSuspended   AccountState = "suspended" // by GitHub, an administrator, or both
	AccountUninstalled AccountState = "uninstalled"
	AccountDeleted     AccountState = "deleted"
)

// Account is an organization or user whose jobs are served.
type Account struct {
	ID                       int64        `json:"id"` // GitHub's; it survives a rename
	Login                    string       `json:"login"`
	Kind                     string       `json:"kind"` // Organization or User
	State                    AccountState `json:"state"`
	InstallationID           int64        `json:"installationId,omitempty"` // 0: the App is not installed
	SuspendedByGitHub        bool         `json:"suspendedByGithub,omitempty"`
	SuspendedByAdministrator bool         `json:"suspendedByAdministrator,omitempty"`
	SuspensionReason         string       `json:"suspensionReason,omitempty"` // the administrator's
	Budgets                  []Budget     `json:"budgets"`                    // by platform, in its order
	Queued                   int64        `json:"queued"`                     // jobs that may start
	Blocked                  int64        `json:"blocked,omitempty"`          // jobs that a limit, a suspension, a paused pool or GitHub holds back
	Unserved                 int64        `json:"unserved,omitempty"`         // jobs that no pool serves, counted as UnservedJobs are
	Refusals                 []Refusal    `json:"refusals,omitempty"`         // by GitHub; not in lists, at most 100
	Version                  int64        `json:"version"`                    // of limits and suspension; the ETag
	CreatedAt                time.Time    `json:"createdAt"`
	UpdatedAt                time.Time    `json:"updatedAt"`
	DeletedAt                *time.Time   `json:"deletedAt,omitempty"`
}

// Refusal is a request for an account that GitHub rejects, and that blocks jobs.
type Refusal struct {
	Repository  string    `json:"repository,omitempty"` // owner/name; empty: the whole account, or the pool there
	Pool        string    `json:"pool,omitempty"`       // namespace/name; empty: the whole account
	JobID       int64     `json:"jobId,omitempty"`      // 0: all jobs
	Reason      string    `json:"reason"`               // refused: registrations are rejected; not_assigned: runners are registered, and receive no job
	Status      int       `json:"status,omitempty"`     // GitHub's
	Message     string    `json:"message,omitempty"`    // GitHub's, shortened
	Failures    int64     `json:"failures"`             // in a row
	Since       time.Time `json:"since"`
	NextAttempt time.Time `json:"nextAttempt"`
	Sentence    string    `json:"sentence"`
}

// ETag of the account's limits and suspension.
func (a Account) ETag() string { return `"` + strconv.FormatInt(a.Version, 10) + `"` }

// Budget is the limits and the usage of an account on one platform.
type Budget struct {
	Platform string `json:"platform"`
	Limits   Limits `json:"limits"`
	Usage    Usage  `json:"usage"`
	Blocked  int64  `json:"blocked,omitempty"` // jobs of this platform that wait for these limits
}

// Limits of one account on one platform.
type Limits struct {
	Jobs              int64 `json:"jobs"`
	MilliCPU          int64 `json:"milliCpu"`
	MemoryMB          int64 `json:"memoryMb"`          // mebibytes
	JobsPerRepository int64 `json:"jobsPerRepository"` // 0: no limit but the account's
}

// Usage is the sum of live claims.
type Usage struct {
	Jobs     int64 `json:"jobs"`
	MilliCPU int64 `json:"milliCpu"`
	MemoryMB int64 `json:"memoryMb"`
}

// LimitsChange changes the limits that are set, and keeps the others.
type LimitsChange struct {
	Jobs              *int64 `json:"jobs,omitempty"`
	MilliCPU          *int64 `json:"milliCpu,omitempty"`
	MemoryMB          *int64 `json:"memoryMb,omitempty"`
	JobsPerRepository *int64 `json:"jobsPerRepository,omitempty"`
}

// Apply returns the limits with the change made.
func (c LimitsChange) Apply(l Limits) Limits {
	for _, field := range []struct {
		from *int64
		to   *int64
	}{{c.Jobs, &l.Jobs}, {c.MilliCPU, &l.MilliCPU}, {c.MemoryMB, &l.MemoryMB}, {c.JobsPerRepository, &l.JobsPerRepository}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	return l
}

// ChangeLimits is the body of PATCH …/limits, which needs an If-Match with the account's ETag, or "*".
type ChangeLimits struct {
	Platforms map[string]LimitsChange `json:"platforms"`
	Reason    string                  `json:"reason,omitempty"`
}

// Change is the optional body of :suspend, :resume and DELETE. If-Match is honoured.
type Change struct {
	Reason string `json:"reason,omitempty"`
}

// AccountList is one page, ordered by login.
type AccountList struct {
	Accounts []Account `json:"accounts"`
	Next     string    `json:"next,omitempty"` // the "after" of the next page; empty: this is the last
}

// AuditEvent records a change.
type AuditEvent struct {
	ID         int64           `json:"id"`
	At         time.Time       `json:"at"`
	Author     string          `json:"author"`               // the person, if known: user, or actor with statedUser or manager in parentheses
	Actor      string          `json:"actor"`                // a Kubernetes user, "github", or "kubernetes" for changes of objects in the cluster
	User       string          `json:"user,omitempty"`       // the user who requested the actor's token, or changed the object; verified by the cluster
	StatedUser string          `json:"statedUser,omitempty"` // the same as stated by the client; not verified
	Credential string          `json:"credential,omitempty"` // the ID of the actor's token, as in Kubernetes' audit log
	Manager    string          `json:"manager,omitempty"`    // the field manager of a change of an object, as stated by the client
	Action     string          `json:"action"`
	AccountID  int64           `json:"accountId,omitempty"`
	Account    string          `json:"account"`        // the login at that time; of a retired runner its namespace/name; empty for pools
	Pool       string          `json:"pool,omitempty"` // namespace/name
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
	Reason     string          `json:"reason,omitempty"`
}

// Named returns the event with its author: the user that the cluster verified, or the actor, with what the client stated of itself.
func (e AuditEvent) Named() AuditEvent {
	switch {
	case e.User != "":
		e.Author = e.User
	case e.StatedUser != "":
		e.Author = e.Actor + " (stated by the client: " + e.StatedUser + ")"
	case e.Manager != "":
		e.Author = e.Actor + " (" + e.Manager + ")"
	case e.Actor == ActorKubernetes:
		e.Author = e.Actor + " (unknown client)"
	default:
		e.Author = e.Actor
	}
	return e
}

// Actors that are not Kubernetes users.
const (
	ActorGitHub     = "github"     // of changes at GitHub
	ActorKubernetes = "kubernetes" // of changes of objects in the cluster, whose user the cluster's audit log has
)

// Actions of audit events.
const (
	ActionSetLimits  = "set_limits"
	ActionSuspend    = "suspend"
	ActionResume     = "resume"
	ActionDelete     = "delete"
	ActionPurge      = "purge"
	ActionInstall    = "install"     // the App was installed, or reinstalled under another ID
	ActionUninstall  = "uninstall"   // the App was uninstalled
	ActionGitSuspend = "gh_suspend"  // the installation was suspended at GitHub
	ActionGitResume  = "gh_resume"   // and resumed
	ActionReposTaken = "repos_taken" // repositories were removed from the installation
	ActionReposGiven = "repos_given" // and added again
	ActionPoolPause  = "pool_pause"  // spec.intake of a RunnerPool was set to Paused
	ActionPoolDrain  = "pool_drain"  // to Drained
	ActionPoolResume = "pool_resume" // to Open
	ActionPoolScale  = "pool_scale"  // spec.replicas or spec.autoscaling was changed, and nothing else
	ActionPoolSet    = "pool_set"    // other fields of the spec were changed
)

// AuditList is one page, newest first.
type AuditList struct {
	Events []AuditEvent `json:"events"`
	Next   int64        `json:"next,omitempty"` // the "before" of the next page; 0: this is the last
}

// Error is the body of every status of 400 and above: one sentence.
type Error struct {
	Error string `json:"error"`
}
