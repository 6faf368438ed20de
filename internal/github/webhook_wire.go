package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// This file reads payloads as GitHub's schema describes them: a member may be null, absent or empty, and an account may be an enterprise. A
// missing member that an event needs is an error with the member's name, and everything else has a zero value. A payload that is refused
// once is refused at every redelivery, so no payload may reach the ledger that it cannot store.

const (
	// mostName bounds names that are keys in the ledger, in bytes. GitHub's own limits are 39 for an account, 140 for owner/name
	// and 64 for a runner.
	mostName = 255
	// formType is the other content type that a webhook's settings offer.
	formType = "application/x-www-form-urlencoded"
	// formField is where such a body has the payload.
	formField = "payload="
)

// PayloadOf returns the JSON of a webhook's verified body. A webhook that is set to the content type of forms sends it in
// the field "payload"; everything else is taken for JSON, whatever its content type.
func PayloadOf(contentType string, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || kind != formType {
		return body, nil
	}
	for field := range bytes.SplitSeq(body, []byte("&")) {
		value, found := bytes.CutPrefix(field, []byte(formField))
		if !found {
			continue
		}
		text, err := url.QueryUnescape(string(value))
		if err != nil {
			return nil, errors.New(`decoding a webhook: the form's field "payload" is not URL-encoded`)
		}
		return []byte(text), nil
	}
	return nil, errors.New(`decoding a webhook: the form has no field "payload"`)
}

// decode reads a payload. Its errors name the member that has another type than GitHub's schema gives it.
func decode(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field == "":
		return errors.New("the body is not a JSON object")
	case errors.As(err, &wrong):
		kind, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5": the value is not repeated
		return fmt.Errorf("%s must not be of type %s", wrong.Field, kind)
	default:
		return errors.New("the body is not JSON: set the webhook's content type to application/json")
	}
}

// wireTime is a time as webhooks write it: RFC 3339, or Unix seconds in some events. Null, "" and 0 are no time.
type wireTime struct{ text string }

// UnmarshalJSON implements json.Unmarshaler. It keeps the text: an error here could not name the member.
func (w *wireTime) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &w.text) != nil {
		w.text = string(text)
	}
	return nil
}

func (w wireTime) read(member string) (time.Time, error) {
	if w.text == "" || w.text == "0" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, w.text); err == nil {
		return at, nil
	}
	if seconds, err := strconv.ParseInt(w.text, 10, 64); err == nil {
		if at := time.Unix(seconds, 0).UTC(); at.Year() >= 0 && at.Year() < 10_000 {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is not a time", member)
}

// wireNumber is a whole number. GitHub's schema calls some of them numbers, which JSON lets be written as 7.0; null and "" are 0.
type wireNumber struct{ text string }

// UnmarshalJSON implements json.Unmarshaler, as wireTime has it.
func (w *wireNumber) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &w.text) != nil {
		w.text = string(text)
	}
	return nil
}

func (w wireNumber) read(member string) (int64, error) {
	if w.text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(w.text, 10, 64); err == nil {
		return n, nil
	}
	const exact = 1 << 53 // beyond that, a fraction's neighbours are no whole numbers
	if f, err := strconv.ParseFloat(w.text, 64); err == nil && f == math.Trunc(f) && math.Abs(f) <= exact {
		return int64(f), nil
	}
	return 0, fmt.Errorf("%s is not a whole number", member)
}

func missing(member string) error { return fmt.Errorf("it has no %s", member) }

// checkName checks text that is a key in the ledger.
func checkName(member, text string) error {
	if len(text) > mostName {
		return fmt.Errorf("%s is longer than %d bytes", member, mostName)
	}
	return nil
}

type wireAccount struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Slug  string `json:"slug"` // of an enterprise, which has no login
	Type  string `json:"type"`
}

func (w wireAccount) account() Account {
	return Account{ID: w.ID, Login: clean(w.Login), Type: clean(w.Type)}
}

type wireJob struct {
	ID           wireNumber `json:"id"`
	RunID        wireNumber `json:"run_id"`
	RunAttempt   wireNumber `json:"run_attempt"`
	Name         string     `json:"name"`
	WorkflowName string     `json:"workflow_name"`
	HeadBranch   string     `json:"head_branch"`
	HeadSHA      string     `json:"head_sha"`
	Labels       []string   `json:"labels"`
	Status       string     `json:"status"`
	Conclusion   string     `json:"conclusion"`
	RunnerID     wireNumber `json:"runner_id"`
	RunnerName   string     `json:"runner_name"`
	CreatedAt    wireTime   `json:"created_at"`
	StartedAt    wireTime   `json:"started_at"`
	CompletedAt  wireTime   `json:"completed_at"`
}

func (w wireJob) job() (WorkflowJob, error) {
	job := WorkflowJob{
		Name: w.Name, WorkflowName: w.WorkflowName, HeadBranch: w.HeadBranch, HeadSHA: w.HeadSHA, Labels: w.Labels, Status: w.Status,
		Conclusion: w.Conclusion, RunnerName: w.RunnerName,
	}
	job.clean()
	for _, one := range []struct {
		member string
		from   wireNumber
		into   *int64
	}{
		{"workflow_job.id", w.ID, &job.ID}, {"workflow_job.run_id", w.RunID, &job.RunID}, {"workflow_job.run_attempt", w.RunAttempt, &job.RunAttempt},
		{"workflow_job.runner_id", w.RunnerID, &job.RunnerID},
	} {
		n, err := one.from.read(one.member)
		if err != nil {
			return job, err
		}
		*one.into = n
	}
	if job.ID <= 0 {
		return job, missing("workflow_job.id")
	}
	if err := checkName("workflow_job.runner_name", job.RunnerName); err != nil {
		return job, err
	}
	for _, one := range []struct {
		member string
		from   wireTime
		into   *time.Time
	}{
		{"workflow_job.created_at", w.CreatedAt, &job.CreatedAt},
		{"workflow_job.started_at", w.StartedAt, &job.StartedAt},
		{"workflow_job.completed_at", w.CompletedAt, &job.CompletedAt},
	} {
		at, err := one.from.read(one.member)
		if err != nil {
			return job, err
		}
		*one.into = at
	}
	return job, nil
}

func parseWorkflowJob(body []byte) (*WorkflowJobEvent, error) {
	var wire struct {
		Action     string  `json:"action"`
		Job        wireJob `json:"workflow_job"`
		Repository struct {
			ID       int64       `json:"id"`
			FullName string      `json:"full_name"`
			Owner    wireAccount `json:"owner"`
		} `json:"repository"`
		Installation struct {
			ID int64 `json:"id"`
		} `json:"installation"`
		Organization wireAccount `json:"organization"`
	}
	if err := decode(body, &wire); err != nil {
		return nil, err
	}
	job, err := wire.Job.job()
	event := &WorkflowJobEvent{
		Action: clean(wire.Action), Job: job, InstallationID: max(0, wire.Installation.ID), Organization: clean(wire.Organization.Login),
		Repository: Repository{ID: wire.Repository.ID, FullName: clean(wire.Repository.FullName), Owner: wire.Repository.Owner.account()},
	}
	owner := event.Repository.Owner
	switch {
	case event.Action == "":
		return nil, missing("action")
	case err != nil:
		return nil, err
	case event.Repository.ID <= 0:
		return nil, missing("repository.id")
	case event.Repository.FullName == "":
		return nil, missing("repository.full_name")
	case owner.ID <= 0:
		return nil, missing("repository.owner.id")
	case owner.Login == "":
		return nil, missing("repository.owner.login")
	}
	if err := checkName("repository.full_name", event.Repository.FullName); err != nil {
		return nil, err
	}
	return event, checkName("repository.owner.login", owner.Login)
}

// wireInstallation is an installation as its own events show it.
type wireInstallation struct {
	ID          int64       `json:"id"`
	Account     wireAccount `json:"account"`
	TargetType  string      `json:"target_type"`
	SuspendedAt wireTime    `json:"suspended_at"`
}

// holder returns the owner of the installation: an organization or a user, an enterprise, or, with neither, one that GitHub does not name.
//
// The headers that name the event are not signed, and the bodies of other events have an installation with an id alone: one of them under
// another header must not read as the end of the installation (NET-6). So a null account is distinct from an absent one.
func (w wireInstallation) holder(body []byte) (account Account, enterprise bool, err error) {
	account = w.Account.account()
	switch {
	case w.ID <= 0:
		return account, false, missing("installation.id")
	case account.Login == "" && account.ID <= 0 && !hasAccount(body):
		return account, false, missing("installation.account")
	case account.Login == "" && (w.Account.Slug != "" || strings.EqualFold(w.TargetType, "Enterprise")):
		return Account{}, true, nil
	case account.Login == "" && account.ID <= 0:
		return Account{}, false, nil
	case account.Login == "":
		return account, false, missing("installation.account.login")
	case account.ID <= 0:
		return account, false, missing("installation.account.id")
	}
	if account.Type == "" {
		account.Type = clean(w.TargetType)
	}
	return account, false, checkName("installation.account.login", account.Login)
}

// hasAccount: there is a member installation.account, which may be null.
func hasAccount(body []byte) bool {
	var keys struct {
		Installation map[string]json.RawMessage `json:"installation"`
	}
	err := json.Unmarshal(body, &keys)
	_, there := keys.Installation["account"]
	return err == nil && there
}

func parseInstallation(body []byte) (*InstallationEvent, error) {
	var wire struct {
		Action       string           `json:"action"`
		Installation wireInstallation `json:"installation"`
	}
	if err := decode(body, &wire); err != nil {
		return nil, err
	}
	event := &InstallationEvent{Action: clean(wire.Action), InstallationID: wire.Installation.ID}
	if event.Action == "" {
		return nil, missing("action")
	}
	var err error
	if event.Account, event.Enterprise, err = wire.Installation.holder(body); err != nil {
		return nil, err
	}
	event.SuspendedAt, err = wire.Installation.SuspendedAt.read("installation.suspended_at")
	return event, err
}

type wireRepositories []struct {
	FullName string `json:"full_name"`
}

// names leaves out what is no name of a repository.
func (w wireRepositories) names() (out []string) {
	for _, one := range w {
		if text := clean(one.FullName); text != "" && len(text) <= mostName {
			out = append(out, text)
		}
	}
	return out
}

func parseInstallationRepositories(body []byte) (*InstallationRepositoriesEvent, error) {
	var wire struct {
		Action       string           `json:"action"`
		Installation wireInstallation `json:"installation"`
		Added        wireRepositories `json:"repositories_added"`
		Removed      wireRepositories `json:"repositories_removed"`
	}
	if err := decode(body, &wire); err != nil {
		return nil, err
	}
	event := &InstallationRepositoriesEvent{
		Action: clean(wire.Action), InstallationID: wire.Installation.ID, Added: wire.Added.names(), Removed: wire.Removed.names(),
	}
	if event.Action == "" {
		return nil, missing("action")
	}
	var err error
	event.Account, event.Enterprise, err = wire.Installation.holder(body)
	return event, err
}
