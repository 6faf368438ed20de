package github

import (
	"fmt"
	"strings"
	"time"
)

// Account is a GitHub organization or user.
type Account struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"` // "Organization" or "User"
}

// Actions of an InstallationEvent.
const (
	InstallationCreated             = "created"
	InstallationDeleted             = "deleted"
	InstallationSuspended           = "suspend"
	InstallationUnsuspended         = "unsuspend"
	InstallationPermissionsAccepted = "new_permissions_accepted"
)

// InstallationEvent reports that the App was installed somewhere, removed, suspended or given other permissions.
type InstallationEvent struct {
	Action         string
	InstallationID int64
	Account        Account   // zero where the event names no organization or user
	Enterprise     bool      // the App is installed on an enterprise, which has no repositories of its own
	SuspendedAt    time.Time // zero when not suspended
}

// Actions of an InstallationRepositoriesEvent.
const (
	RepositoriesAdded   = "added"
	RepositoriesRemoved = "removed"
)

// InstallationRepositoriesEvent reports that an installation may see more or fewer repositories than before.
type InstallationRepositoriesEvent struct {
	Action         string
	InstallationID int64
	Account        Account  // zero where the event names no organization or user
	Enterprise     bool     // as of InstallationEvent
	Added, Removed []string // owner/name
}

// Actions of a WorkflowJobEvent.
const (
	JobQueued     = "queued"
	JobWaiting    = "waiting"
	JobInProgress = "in_progress"
	JobCompleted  = "completed"
)

// WorkflowJobEvent reports that a job was queued, waits, was started or has ended. Deliveries arrive late, twice and in
// any order.
type WorkflowJobEvent struct {
	Action         string
	Job            WorkflowJob
	Repository     Repository
	InstallationID int64  // zero for a webhook of a repository instead of the App
	Organization   string // login; empty for a user's repository
}

// WorkflowJob is one job of a run, as webhooks and the API show it. Times are zero when not reached yet.
type WorkflowJob struct {
	ID           int64
	RunID        int64
	RunAttempt   int64
	Name         string
	WorkflowName string
	HeadBranch   string
	HeadSHA      string
	Labels       []string // not nil
	Status       string   // queued, waiting, in_progress, completed
	Conclusion   string   // empty until completed
	RunnerID     int64    // zero until a runner took it
	RunnerName   string
	CreatedAt    time.Time
	StartedAt    time.Time
	CompletedAt  time.Time
}

// Repository a job belongs to.
type Repository struct {
	ID       int64   `json:"id"`
	FullName string  `json:"full_name"` // owner/name
	Owner    Account `json:"owner"`
}

// PingEvent is what GitHub sends when the webhook was configured.
type PingEvent struct{}

// UnknownEvent is one that Bullpen does not subscribe to: to be acknowledged with a reason, and nothing stored.
type UnknownEvent struct {
	Event string
}

// MalformedError: the body is not what its event header promises. It names the field, and never repeats its value.
type MalformedError struct {
	Event string
	Err   error
}

// Error names the event and what is wrong with it.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("decoding a %q webhook: %v", e.Event, e.Err)
}

// Unwrap gives the decoder's own error.
func (e *MalformedError) Unwrap() error { return e.Err }

// IsWebhookEvent reports whether ParseWebhook makes anything but an *UnknownEvent of an event with this HeaderEvent.
func IsWebhookEvent(event string) bool {
	switch event {
	case "workflow_job", "installation", "installation_repositories", "ping":
		return true
	default:
		return false
	}
}

// ParseWebhook decodes a body whose signature was verified: *InstallationEvent, *InstallationRepositoriesEvent,
// *WorkflowJobEvent, *PingEvent or
// *UnknownEvent; a *MalformedError for anything that is not such an event.
func ParseWebhook(event string, body []byte) (any, error) {
	var parsed any
	var err error
	switch event {
	case "workflow_job":
		parsed, err = parseWorkflowJob(body)
	case "installation":
		parsed, err = parseInstallation(body)
	case "installation_repositories":
		parsed, err = parseInstallationRepositories(body)
	case "ping":
		return &PingEvent{}, nil
	default:
		return &UnknownEvent{Event: clean(event)}, nil
	}
	if err != nil {
		return nil, &MalformedError{Event: event, Err: err}
	}
	return parsed, nil
}

// clean makes text that every store accepts: PostgreSQL refuses a zero byte, and a delivery that can never be stored
// would be redelivered forever.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

func (a *Account) clean() {
	a.Login, a.Type = clean(a.Login), clean(a.Type)
}

func (j *WorkflowJob) clean() {
	for _, text := range []*string{
		&j.Name, &j.WorkflowName, &j.HeadBranch, &j.HeadSHA, &j.Status, &j.Conclusion, &j.RunnerName,
	} {
		*text = clean(*text)
	}
	labels := make([]string, 0, len(j.Labels)) // never nil: PostgreSQL would take that for NULL
	for _, label := range j.Labels {
		if label != "" { // null among them
			labels = append(labels, clean(label))
		}
	}
	j.Labels = labels
}
