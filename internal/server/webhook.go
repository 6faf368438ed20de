package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// webhookTimeout is less than the 10 s that GitHub waits: an answer it does not hear is worth nothing.
const webhookTimeout = 8 * time.Second

// bodyTimeout is how long a delivery's body may take to arrive.
const bodyTimeout = 20 * time.Second

// webhook takes one delivery: verify, decode, one transaction, then 2xx. What is not committed is not acknowledged,
// so that a redelivery can make it good.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	// Whoever sends slowly is not yet known to be GitHub.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's recorder has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, github.MaxWebhookBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.refuseHook(w, "", "too_large", http.StatusRequestEntityTooLarge, "the payload is larger than 25 MB, the most that GitHub sends")
		return
	case err != nil:
		s.refuseHook(w, "", "unreadable", http.StatusBadRequest, "the payload could not be read to its end")
		return
	}
	// NET-6: before anything in the body is looked at.
	if err := github.VerifySignature(s.opt.WebhookSecret, r.Header.Get(github.HeaderSignature), body); err != nil {
		s.refuseHook(w, "", "bad_signature", http.StatusUnauthorized, err.Error())
		return
	}
	guid := r.Header.Get(github.HeaderDelivery)
	if guid == "" || len(guid) > 128 {
		s.refuseHook(w, "", "malformed", http.StatusBadRequest, "the delivery has no "+github.HeaderDelivery+" header that could be its id")
		return
	}
	event, err := github.ParseWebhook(r.Header.Get(github.HeaderEvent), body)
	if err != nil {
		s.refuseHook(w, "", "malformed", http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), webhookTimeout)
	defer cancel()
	delivery := dispatch.Delivery{GUID: guid, Event: r.Header.Get(github.HeaderEvent), At: s.opt.Now()}
	switch event := event.(type) {
	case *github.InstallationEvent:
		s.installation(ctx, w, delivery, event)
	case *github.WorkflowJobEvent:
		s.workflowJob(ctx, w, delivery, event)
	case *github.PingEvent:
		s.accept(w, "ping", "recorded", http.StatusOK, "pong")
	default:
		s.accept(w, "other", "ignored", http.StatusAccepted, "ignored: Bullpen has no use for this event; subscribe the App to workflow_job only")
	}
}

func (s *Server) installation(
	ctx context.Context, w http.ResponseWriter, d dispatch.Delivery, ev *github.InstallationEvent,
) {
	switch ev.Action {
	case github.InstallationCreated, github.InstallationDeleted, github.InstallationSuspended,
		github.InstallationUnsuspended, github.InstallationPermissionsAccepted:
	default:
		s.accept(w, "installation", "ignored", http.StatusAccepted, "ignored: nothing follows from the action "+ev.Action)
		return
	}
	fresh, err := s.opt.Store.RecordInstallation(ctx, d, dispatch.Installation{
		Action: ev.Action, Account: account(ev.Account, ev.InstallationID),
	})
	s.recorded(ctx, w, d, "installation", fresh, err)
}

func account(a github.Account, installationID int64) dispatch.Account {
	return dispatch.Account{ID: a.ID, Login: a.Login, User: a.Type == "User", InstallationID: installationID}
}

func (s *Server) workflowJob(
	ctx context.Context, w http.ResponseWriter, d dispatch.Delivery, ev *github.WorkflowJobEvent,
) {
	if ev.InstallationID == 0 {
		s.accept(w, "workflow_job", "ignored", http.StatusAccepted,
			"ignored: the event names no installation; set the webhook on the GitHub App, not on the repository")
		return
	}
	kind, ok := jobEventKind(ev)
	if !ok {
		s.accept(w, "workflow_job", "ignored", http.StatusAccepted, "ignored: nothing follows from the action "+ev.Action)
		return
	}
	if len(dispatch.LabelKey(ev.Job.Labels)) > dispatch.MaxLabelKey { // storing it would fail however often it is redelivered
		s.accept(w, "workflow_job", "ignored", http.StatusAccepted,
			"ignored: the job asks for more labels than any pool can carry; shorten its runs-on")
		return
	}
	rec, err := s.opt.Store.RecordJob(ctx, d, jobEvent(kind, ev))
	s.recorded(ctx, w, d, "workflow_job", rec.Fresh, err)
	if err == nil && rec.Outcome == fleet.Refuse && rec.Fresh {
		s.opt.Log.WarnContext(ctx, "a webhook that makes no sense in the job's state", "job", ev.Job.ID, "action", ev.Action)
	}
}

func jobEventKind(ev *github.WorkflowJobEvent) (fleet.JobEvent, bool) {
	switch ev.Action {
	case github.JobQueued:
		return fleet.JobEventQueued, true
	case github.JobWaiting:
		return fleet.JobEventWaiting, true
	case github.JobInProgress:
		return fleet.JobEventStarted, true
	case github.JobCompleted:
		if strings.EqualFold(ev.Job.Conclusion, "cancelled") {
			return fleet.JobEventCancelled, true
		}
		return fleet.JobEventCompleted, true
	default:
		return "", false
	}
}

func jobEvent(kind fleet.JobEvent, ev *github.WorkflowJobEvent) dispatch.JobEvent {
	return dispatch.JobEvent{
		Kind: kind, Account: account(ev.Repository.Owner, ev.InstallationID),
		JobID: ev.Job.ID, Repository: ev.Repository.FullName, RunID: ev.Job.RunID, RunAttempt: ev.Job.RunAttempt,
		Name: ev.Job.Name, Workflow: ev.Job.WorkflowName, HeadBranch: ev.Job.HeadBranch, HeadSHA: ev.Job.HeadSHA,
		Labels: ev.Job.Labels, Conclusion: ev.Job.Conclusion, RunnerName: ev.Job.RunnerName, RunnerID: ev.Job.RunnerID,
		QueuedAt: ev.Job.CreatedAt, StartedAt: ev.Job.StartedAt, CompletedAt: ev.Job.CompletedAt,
	}
}

// recorded answers after the transaction: 2xx only when it was committed.
func (s *Server) recorded(ctx context.Context, w http.ResponseWriter, d dispatch.Delivery, event string, fresh bool, err error) {
	switch {
	case err != nil:
		s.opt.Log.ErrorContext(ctx, "recording a webhook", "event", event, "delivery", d.GUID, "error", err)
		s.refuseHook(w, event, "failed", http.StatusServiceUnavailable, "the event could not be stored; redeliver it")
	case fresh:
		s.accept(w, event, "recorded", http.StatusOK, "recorded")
	default:
		s.accept(w, event, "repeated", http.StatusOK, "this delivery was recorded before")
	}
}

func (s *Server) accept(w http.ResponseWriter, event, outcome string, status int, reason string) {
	s.webhooks.WithLabelValues(event, outcome).Inc()
	answer(w, status, map[string]string{"status": reason})
}

func (s *Server) refuseHook(w http.ResponseWriter, event, outcome string, status int, sentence string) {
	if event == "" {
		event = "unknown"
	}
	s.webhooks.WithLabelValues(event, outcome).Inc()
	refuse(w, status, sentence)
}
