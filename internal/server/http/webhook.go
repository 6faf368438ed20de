package http

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// webhookTimeout is less than the 10 s that GitHub waits: a later response is lost.
const webhookTimeout = 8 * time.Second

// bodyTimeout is how long a delivery's body may take to arrive.
const bodyTimeout = 20 * time.Second

const tooLargeText = "the payload is larger than 25 MB, GitHub's maximum"

// roomIn is when a payload for which there was no room may be sent again.
const roomIn = 5 * time.Second

// webhook takes one delivery: verify, hand it to the intake (decode, one transaction), then 2xx. Without a commit it is not acknowledged,
// so that a redelivery can make up for it.
//
// No sender is known to be GitHub before the last byte has arrived, so the headers are checked first (TEN-3).
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	verifier, err := s.opt.WebhookSecrets.Verifier(r.Header.Get(github.HeaderSignature))
	event := r.Header.Get(github.HeaderEvent)
	switch {
	case err != nil:
		s.refuseUnread(w, "bad_signature", http.StatusUnauthorized, err.Error())
		return
	case r.ContentLength > github.MaxWebhookBody:
		s.refuseUnread(w, "too_large", http.StatusRequestEntityTooLarge, tooLargeText)
		return
	case !github.IsWebhookEvent(event) && (r.ContentLength < 0 || r.ContentLength > smallBody):
		s.refuseUnread(w, "too_large", http.StatusRequestEntityTooLarge,
			"the payload is larger than 64 KiB, and Bullpen does not use this event: subscribe the App to workflow_job only")
		return
	}
	body, position, ok := s.verified(w, r, verifier)
	defer body.release()
	if !ok {
		return
	}
	defer httpserver.Working(r.Context())() // it is GitHub's, so it is finished, whatever strangers do
	s.signatures.WithLabelValues(string(position)).Inc()
	payload, err := github.PayloadOf(r.Header.Get("Content-Type"), body.bytes)
	if err != nil {
		s.refuseHook(w, string(intake.Malformed), http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), webhookTimeout)
	defer cancel()
	result := s.opt.Intake.Take(ctx, intake.Delivery{
		GUID: r.Header.Get(github.HeaderDelivery), Event: event, Body: payload, At: s.opt.Now(),
	})
	if result.Outcome != intake.Malformed && result.Outcome != intake.Failed {
		faultpoint.Reached(faultpoint.WebhookCommitted)
	}
	switch result.Outcome {
	case intake.Malformed:
		refuse(w, http.StatusBadRequest, result.Reason)
	case intake.Failed:
		refuse(w, http.StatusServiceUnavailable, result.Reason)
	case intake.Ignored, intake.NotInstalled:
		answer(w, http.StatusAccepted, map[string]string{"status": result.Reason})
	default:
		answer(w, http.StatusOK, map[string]string{"status": result.Reason})
	}
}

// verified reads the payload and checks its signature. If it is not ok, it has answered. The caller releases the body.
func (s *Server) verified(w http.ResponseWriter, r *http.Request, verifier *github.Verifier) (read *body, position github.SecretPosition, ok bool) {
	// A slow sender is not yet known to be GitHub.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's recorder has none
	read, err := s.bodies.read(http.MaxBytesReader(w, r.Body, github.MaxWebhookBody), r.ContentLength, verifier,
		func() { _ = connection.SetReadDeadline(time.Now()) })
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.refuseHook(w, "too_large", http.StatusRequestEntityTooLarge, tooLargeText)
		return read, "", false
	case errors.Is(err, errNoRoom):
		s.opt.Intake.Count("", "no_room")
		w.Header().Set("Connection", "close") // as with refuseUnread
		retryLater(w, roomIn, err.Error())
		return read, "", false
	case err != nil:
		s.refuseHook(w, "unreadable", http.StatusBadRequest, "the payload could not be read completely")
		return read, "", false
	}
	_ = connection.SetReadDeadline(time.Time{}) // it was for the body, and would cancel the request
	position, err = verifier.Verify()           // NET-6: before anything in the body is parsed
	if err != nil {
		s.refuseHook(w, "bad_signature", http.StatusUnauthorized, err.Error())
	}
	return read, position, err == nil
}

// refuseUnread is refuseHook of a payload that was not read: an answer on a connection that stays open waits until it has
// come.
func (s *Server) refuseUnread(w http.ResponseWriter, outcome string, status int, sentence string) {
	w.Header().Set("Connection", "close")
	s.refuseHook(w, outcome, status, sentence)
}

// refuseHook turns away what never reaches the intake.
func (s *Server) refuseHook(w http.ResponseWriter, outcome string, status int, sentence string) {
	s.opt.Intake.Count("", outcome)
	refuse(w, status, sentence)
}
