package http

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// webhookTimeout is less than the 10 s that GitHub waits: an answer it does not hear is worth nothing.
const webhookTimeout = 8 * time.Second

// bodyTimeout is how long a delivery's body may take to arrive.
const bodyTimeout = 20 * time.Second

// webhook takes one delivery: verify, hand it to the intake (decode, one transaction), then 2xx. What is not committed is not acknowledged,
// so that a redelivery can make it good.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	// Whoever sends slowly is not yet known to be GitHub.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's recorder has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, github.MaxWebhookBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.refuseHook(w, "too_large", http.StatusRequestEntityTooLarge, "the payload is larger than 25 MB, the most that GitHub sends")
		return
	case err != nil:
		s.refuseHook(w, "unreadable", http.StatusBadRequest, "the payload could not be read to its end")
		return
	}
	// NET-6: before anything in the body is looked at.
	position, err := s.opt.WebhookSecrets.Verify(r.Header.Get(github.HeaderSignature), body)
	if err != nil {
		s.refuseHook(w, "bad_signature", http.StatusUnauthorized, err.Error())
		return
	}
	s.signatures.WithLabelValues(string(position)).Inc()
	ctx, cancel := context.WithTimeout(r.Context(), webhookTimeout)
	defer cancel()
	result := s.opt.Intake.Take(ctx, intake.Delivery{
		GUID: r.Header.Get(github.HeaderDelivery), Event: r.Header.Get(github.HeaderEvent), Body: body, At: s.opt.Now(),
	})
	if result.Outcome != intake.Malformed && result.Outcome != intake.Failed {
		faultpoint.Reached(faultpoint.WebhookCommitted)
	}
	switch result.Outcome {
	case intake.Malformed:
		refuse(w, http.StatusBadRequest, result.Reason)
	case intake.Failed:
		refuse(w, http.StatusServiceUnavailable, result.Reason)
	case intake.Ignored:
		answer(w, http.StatusAccepted, map[string]string{"status": result.Reason})
	default:
		answer(w, http.StatusOK, map[string]string{"status": result.Reason})
	}
}

// refuseHook turns away what never reaches the intake.
func (s *Server) refuseHook(w http.ResponseWriter, outcome string, status int, sentence string) {
	s.opt.Intake.Count("", outcome)
	refuse(w, status, sentence)
}
