package adminapi

import (
	"encoding/json"
	"strconv"
	"time"
)

// Audience is the audience of tokens made for this API. Tokens for the cluster's own audience are taken too.
const Audience = "bullpen-api"

// Paths. One account is PathAccounts + "/" + its login, or "@" + its id; a verb is appended as ":suspend".
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

// Group and the resources are what Kubernetes is asked about (SubjectAccessReview): they exist in roles only.
const (
	Group            = "bullpen.dev"
	ResourceAccounts = "accounts"
	ResourceAudits   = "audits"
)

// MaxPage is the most entries of one page, DefaultPage what is given when nothing is asked for.
const (
	MaxPage     = 500
	DefaultPage = 100
)

// MaxReason bounds the reason of a change, in bytes.
const MaxReason = 500

// MaxQueued is as far as queued jobs are counted: that number means "so many or more".
const MaxQueued = 10_000

// AccountState says whether an account's jobs are served.
type AccountState string

// The states. An account that several of them fit has the last.
const (
	AccountActive      AccountState = "active"
	AccountSuspended   AccountState = "suspended" // by GitHub, an operator, or both: both must be off for it to run
	AccountUninstalled AccountState = "uninstalled"
	AccountDeleted     AccountState = "deleted"
)

// Account is an organization or user whose jobs are served.
type Account struct {
	ID                  int64        `json:"id"` // GitHub's; it survives a rename
	Login               string       `json:"login"`
	Kind                string       `json:"kind"` // Organization or User
	State               AccountState `json:"state"`
	InstallationID      int64        `json:"installationId,omitempty"` // 0: the App is not installed
	SuspendedByGitHub   bool         `json:"suspendedByGithub,omitempty"`
	SuspendedByOperator bool         `json:"suspendedByOperator,omitempty"`
	SuspensionReason    string       `json:"suspensionReason,omitempty"` // the operator's
	Budgets             []Budget     `json:"budgets"`                    // by platform, in its order
	Queued              int64        `json:"queued"`                     // jobs that wait for a runner or for room, up to MaxQueued
	Held                int64        `json:"held,omitempty"`             // jobs that are set aside for their repository, their labels or what GitHub refuses, up to MaxQueued
	Refusals            []Refusal    `json:"refusals,omitempty"`         // what GitHub refuses of it, of one account alone; at most 100
	Version             int64        `json:"version"`                    // of what operators decide; the ETag
	CreatedAt           time.Time    `json:"createdAt"`
	UpdatedAt           time.Time    `json:"updatedAt"`
	DeletedAt           *time.Time   `json:"deletedAt,omitempty"`
}

// Refusal is what GitHub does not do for an account, and that jobs wait for.
type Refusal struct {
	Repository  string    `json:"repository,omitempty"` // owner/name; empty: of the whole account, or of the pool there
	Pool        string    `json:"pool,omitempty"`       // namespace/name; empty: of the whole account
	JobID       int64     `json:"jobId,omitempty"`      // 0: of all jobs
	Reason      string    `json:"reason"`               // refused: no runner is registered; not_assigned: runners are, and are given no job
	Status      int       `json:"status,omitempty"`     // GitHub's
	Message     string    `json:"message,omitempty"`    // GitHub's, shortened
	Failures    int64     `json:"failures"`             // in a row
	Since       time.Time `json:"since"`
	NextAttempt time.Time `json:"nextAttempt"`
	Sentence    string    `json:"sentence"`
}

// ETag of what operators decide about the account.
func (a Account) ETag() string { return `"` + strconv.FormatInt(a.Version, 10) + `"` }

// Budget is what an account may use on one platform, and what it uses now.
type Budget struct {
	Platform string `json:"platform"`
	Limits   Limits `json:"limits"`
	Usage    Usage  `json:"usage"`
}

// Limits of one account on one platform.
type Limits struct {
	Jobs              int64 `json:"jobs"`
	MilliCPU          int64 `json:"milliCpu"`
	MemoryMB          int64 `json:"memoryMb"`          // mebibytes
	JobsPerRepository int64 `json:"jobsPerRepository"` // 0: no bound but the account's
}

// Usage is what live claims add up to.
type Usage struct {
	Jobs     int64 `json:"jobs"`
	MilliCPU int64 `json:"milliCpu"`
	MemoryMB int64 `json:"memoryMb"`
}

// LimitsChange changes what is set and keeps the rest.
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

// Change is the body of :suspend, :resume and DELETE; it may be left out. An If-Match is honoured.
type Change struct {
	Reason string `json:"reason,omitempty"`
}

// AccountList is one page, ordered by login.
type AccountList struct {
	Accounts []Account `json:"accounts"`
	Next     string    `json:"next,omitempty"` // the "after" of the next page; empty: this is the last
}

// AuditEvent says who changed what.
type AuditEvent struct {
	ID         int64           `json:"id"`
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor"`                // a Kubernetes user, or "github"
	Credential string          `json:"credential,omitempty"` // the id of its token, as in Kubernetes' audit log
	Action     string          `json:"action"`
	AccountID  int64           `json:"accountId,omitempty"`
	Account    string          `json:"account"` // its login at that time
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
	Reason     string          `json:"reason,omitempty"`
}

// ActorGitHub is the actor of what GitHub decided.
const ActorGitHub = "github"

// Actions of audit events.
const (
	ActionSetLimits  = "set_limits"
	ActionSuspend    = "suspend"
	ActionResume     = "resume"
	ActionDelete     = "delete"
	ActionPurge      = "purge"
	ActionInstall    = "install"     // the App was installed, or again under another id
	ActionUninstall  = "uninstall"   // the App was uninstalled
	ActionGitSuspend = "gh_suspend"  // the installation was suspended at GitHub
	ActionGitResume  = "gh_resume"   // and resumed
	ActionReposTaken = "repos_taken" // repositories were taken from the installation
	ActionReposGiven = "repos_given" // and given back
)

// AuditList is one page, the latest first.
type AuditList struct {
	Events []AuditEvent `json:"events"`
	Next   int64        `json:"next,omitempty"` // the "before" of the next page; 0: this is the last
}

// Error is the body of every status of 400 and above: one sentence.
type Error struct {
	Error string `json:"error"`
}
