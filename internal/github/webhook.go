package github

import (
	"encoding/json"
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

// InstallationEvent says that the App was installed somewhere, removed, suspended or given other permissions.
type InstallationEvent struct {
	Action         string
	InstallationID int64
	Account        Account
	SuspendedAt    time.Time // zero when not suspended
}

// Actions of an InstallationRepositoriesEvent.
const (
	RepositoriesAdded   = "added"
	RepositoriesRemoved = "removed"
)

// InstallationRepositoriesEvent says that an installation may see more or fewer repositories than before.
type InstallationRepositoriesEvent struct {
	Action         string
	InstallationID int64
	Account        Account
	Added, Removed []string // owner/name
}

// Actions of a WorkflowJobEvent.
const (
	JobQueued     = "queued"
	JobWaiting    = "waiting"
	JobInProgress = "in_progress"
	JobCompleted  = "completed"
)

// WorkflowJobEvent says that a job was queued, waits, was started or has ended. Deliveries arrive late, twice and in
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
	ID           int64     `json:"id"`
	RunID        int64     `json:"run_id"`
	RunAttempt   int64     `json:"run_attempt"`
	Name         string    `json:"name"`
	WorkflowName string    `json:"workflow_name"`
	HeadBranch   string    `json:"head_branch"`
	HeadSHA      string    `json:"head_sha"`
	Labels       []string  `json:"labels"`
	Status       string    `json:"status"`     // queued, waiting, in_progress, completed
	Conclusion   string    `json:"conclusion"` // empty until completed
	RunnerID     int64     `json:"runner_id"`  // zero until a runner took it
	RunnerName   string    `json:"runner_name"`
	CreatedAt    time.Time `json:"created_at"`
	StartedAt    time.Time `json:"started_at"`
	CompletedAt  time.Time `json:"completed_at"`
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

// MalformedError: the body is not what its event header promises. It never repeats the body.
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

type idOnly struct {
	ID int64 `json:"id"`
}

func parseWorkflowJob(body []byte) (*WorkflowJobEvent, error) {
	var wire struct {
		Action       string      `json:"action"`
		Job          WorkflowJob `json:"workflow_job"`
		Repository   Repository  `json:"repository"`
		Installation idOnly      `json:"installation"`
		Organization Account     `json:"organization"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, err
	}
	event := &WorkflowJobEvent{
		Action: clean(wire.Action), Job: wire.Job, Repository: wire.Repository,
		InstallationID: wire.Installation.ID, Organization: clean(wire.Organization.Login),
	}
	event.Job.clean()
	event.Repository.FullName = clean(event.Repository.FullName)
	event.Repository.Owner.clean()
	switch {
	case event.Action == "":
		return nil, missing("action")
	case event.Job.ID <= 0:
		return nil, missing("workflow_job.id")
	case event.Repository.ID <= 0 || event.Repository.FullName == "":
		return nil, missing("repository")
	case event.Repository.Owner.ID <= 0 || event.Repository.Owner.Login == "":
		return nil, missing("repository.owner")
	}
	return event, nil
}

func parseInstallation(body []byte) (*InstallationEvent, error) {
	var wire struct {
		Action       string `json:"action"`
		Installation struct {
			ID          int64     `json:"id"`
			Account     Account   `json:"account"`
			SuspendedAt time.Time `json:"suspended_at"`
		} `json:"installation"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, err
	}
	event := &InstallationEvent{
		Action: clean(wire.Action), InstallationID: wire.Installation.ID,
		Account: wire.Installation.Account, SuspendedAt: wire.Installation.SuspendedAt,
	}
	event.Account.clean()
	switch {
	case event.Action == "":
		return nil, missing("action")
	case event.InstallationID <= 0:
		return nil, missing("installation.id")
	case event.Account.ID <= 0 || event.Account.Login == "":
		return nil, missing("installation.account")
	}
	return event, nil
}

func parseInstallationRepositories(body []byte) (*InstallationRepositoriesEvent, error) {
	type repositories []struct {
		FullName string `json:"full_name"`
	}
	var wire struct {
		Action       string `json:"action"`
		Installation struct {
			ID      int64   `json:"id"`
			Account Account `json:"account"`
		} `json:"installation"`
		Added   repositories `json:"repositories_added"`
		Removed repositories `json:"repositories_removed"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, err
	}
	names := func(list repositories) (out []string) {
		for _, r := range list {
			if name := clean(r.FullName); name != "" {
				out = append(out, name)
			}
		}
		return out
	}
	event := &InstallationRepositoriesEvent{
		Action: clean(wire.Action), InstallationID: wire.Installation.ID, Account: wire.Installation.Account,
		Added: names(wire.Added), Removed: names(wire.Removed),
	}
	event.Account.clean()
	switch {
	case event.Action == "":
		return nil, missing("action")
	case event.InstallationID <= 0:
		return nil, missing("installation.id")
	case event.Account.ID <= 0 || event.Account.Login == "":
		return nil, missing("installation.account")
	}
	return event, nil
}

func missing(field string) error { return fmt.Errorf("it has no %s", field) }

// clean makes text that every store accepts: PostgreSQL refuses a zero byte, and a delivery that can never be stored
// would be redelivered for ever.
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
	for i := range j.Labels {
		j.Labels[i] = clean(j.Labels[i])
	}
}
