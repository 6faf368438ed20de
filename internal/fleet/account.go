package fleet

import (
	"fmt"
	"strings"
	"time"
)

// Platform is the operating system a runner offers; budgets are kept per platform.
type Platform string

// The platforms.
const (
	Linux Platform = "linux"
	MacOS Platform = "macos"
)

// Shape is what one runner is charged with.
type Shape struct {
	MilliCPU int64 // thousandths of a CPU
	MemoryMB int64 // mebibytes
}

// Limits is one account's budget on one platform. A zero field allows nothing.
type Limits struct {
	MilliCPU int64
	MemoryMB int64
	Jobs     int64
	// JobsPerRepository is the most jobs of one repository at a time; zero: only the account's own limits count.
	JobsPerRepository int64
}

// Usage is what an account's live claims on one platform add up to.
type Usage struct {
	MilliCPU int64
	MemoryMB int64
	Jobs     int64
}

// Room reports how many more runners of that shape fit (CLAIM-5).
func (l Limits) Room(u Usage, shape Shape) int64 {
	room := l.Jobs - u.Jobs
	if shape.MilliCPU > 0 {
		room = min(room, (l.MilliCPU-u.MilliCPU)/shape.MilliCPU)
	}
	if shape.MemoryMB > 0 {
		room = min(room, (l.MemoryMB-u.MemoryMB)/shape.MemoryMB)
	}
	return max(room, 0)
}

// DefaultLimits is what a new account may use before an administrator says otherwise.
func DefaultLimits(p Platform) Limits {
	if p == MacOS {
		return Limits{MilliCPU: 12_000, MemoryMB: 28 * 1024, Jobs: 2}
	}
	return Limits{MilliCPU: 32_000, MemoryMB: 64 * 1024, Jobs: 40}
}

// Scope says where a runner is registered: an organization (Repo empty), one repository, or an enterprise (Owner and Repo
// empty).
type Scope struct {
	Owner string
	Repo  string
	// RepositoryID is GitHub's id of the repository, which survives a rename; zero where it is not known. Where it is, what
	// the name does not show is looked for under the name that the repository has now.
	RepositoryID int64
	// Enterprise is the slug of an enterprise. Runners of a RunnerPool are never registered there.
	Enterprise string
}

// enterprises stands before the slug of an enterprise, as in its URL. GitHub gives no account that name.
const enterprises = "enterprises"

// String is "owner", "owner/repo" or "enterprises/slug".
func (s Scope) String() string {
	switch {
	case s.Enterprise != "":
		return enterprises + "/" + s.Enterprise
	case s.Repo == "":
		return s.Owner
	default:
		return s.Owner + "/" + s.Repo
	}
}

// Of is the scope with the repository's id, if it is a repository's.
func (s Scope) Of(repositoryID int64) Scope {
	if s.Repo != "" {
		s.RepositoryID = repositoryID
	}
	return s
}

// Repository is one of GitHub's, by the name under which it was last reported.
type Repository struct {
	Name string // owner/name
	ID   int64  // zero: not known
}

// ParseScope reads what String wrote.
func ParseScope(text string) (Scope, error) {
	owner, repo, found := strings.Cut(text, "/")
	if owner == "" || found && (repo == "" || strings.Contains(repo, "/")) {
		return Scope{}, fmt.Errorf("scope %q is neither an owner nor owner/repository", text)
	}
	if found && owner == enterprises {
		return Scope{Enterprise: repo}, nil
	}
	return Scope{Owner: owner, Repo: repo}, nil
}

// Secret is text that must not be seen: it prints, logs and marshals as a placeholder. Reveal is the one way out.
type Secret struct{ text string }

// NewSecret wraps the text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text, for the one place that has to send it.
func (s Secret) Reveal() string { return s.text }

// String hides the text.
func (Secret) String() string { return "[secret]" }

// GoString hides the text from %#v too.
func (Secret) GoString() string { return "[secret]" }

// MarshalText hides the text from JSON and structured logs.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Registration is a runner as GitHub knows it.
type Registration struct {
	ID     int64
	Name   string
	Online bool
	// Busy lags: GitHub has been seen to answer false for up to a minute after a job started.
	Busy bool
}

// JIT is a minted just-in-time configuration: one registration and the credential for it.
type JIT struct {
	RunnerID int64
	Name     string
	Encoded  Secret // base64 blob for the runner; never stored or logged (NET-3)
}

// MintRequest asks GitHub for a just-in-time registration.
type MintRequest struct {
	Scope         Scope
	Name          string // at most 64 characters, unique per mint (CLAIM-10)
	Labels        []string
	RunnerGroup   string // by name, which is looked up; empty where RunnerGroupID says it
	RunnerGroupID int64  // 1 is the default group, and so is 0
	WorkFolder    string // relative to the runner's root
}

// RateState is what GitHub last said of one rate-limit bucket.
type RateState struct {
	Resource  string
	Limit     int
	Remaining int
	Reset     time.Time
}

// Owner is an account as GitHub knows it: who owns the scopes in which runners are registered.
type Owner struct {
	ID             int64
	Login          string
	User           bool // has repositories only: runners are registered there
	InstallationID int64
	Suspended      bool // its scopes cannot be read
}

// Roster is a whole reading of the list of a scope's registrations.
type Roster struct {
	Runners []Registration
	// Complete indicates that a registration which existed when the reading began, and still does, is in Runners: then absence
	// from it proves something. Otherwise Doubt says, in a sentence, why it does not.
	Complete bool
	Doubt    string
}
