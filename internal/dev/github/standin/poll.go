package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

type brokerMessage struct {
	ID   int64  `json:"messageId"`
	Type string `json:"messageType"`
	Body string `json:"body"`
	IV   string `json:"iv,omitempty"`
}

// getMessage is the long poll: it is held until there is a message for the runner, or the hold is over.
func (s *Server) getMessage(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	query := r.URL.Query()
	busy := strings.EqualFold(query.Get("status"), "Busy")
	rn := token.runner
	if err := s.beginPoll(rn, query.Get("sessionId"), query.Get("os"), busy); err != nil {
		return err
	}
	defer s.endPoll(rn)
	var over <-chan time.Time
	for {
		message, wake, err := s.nextMessage(rn, query.Get("sessionId"), busy)
		if err != nil {
			return err
		}
		if message != nil {
			writeJSON(w, http.StatusOK, message)
			return nil
		}
		if over == nil {
			over = s.opts.After(s.opts.PollHold)
		}
		select {
		case <-wake:
		case <-over:
			w.WriteHeader(http.StatusAccepted)
			return nil
		case <-r.Context().Done():
			return nil
		case <-s.closing:
			w.WriteHeader(http.StatusAccepted)
			return nil
		}
	}
}

func (s *Server) beginPoll(rn *runner, sessionID, os string, busy bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkSessionLocked(rn, sessionID, s.now()); err != nil {
		return err
	}
	if _, strikes := s.faults.take(FaultVersionRefused, runnerSubjectLocked(rn)); strikes {
		return brokerError(http.StatusForbidden, kindVersionTooOld, "This version of the runner is deprecated and cannot receive messages.")
	}
	rn.polls++
	rn.lastContact = s.now()
	if os != "" {
		rn.os = osName(os)
	}
	s.settleRunnerLocked(rn)
	if !busy && !rn.removed {
		s.matchRunnerLocked(rn)
	}
	return nil
}

func checkSessionLocked(rn *runner, sessionID string, now time.Time) error {
	if rn.ends(sessionID, now) {
		return nil
	}
	if rn.removed {
		return brokerError(http.StatusNotFound, kindRunnerNotFound, "The runner's registration has been deleted from the server.")
	}
	if rn.session == nil || rn.session.id != sessionID {
		return brokerError(http.StatusUnauthorized, kindSessionInvalid, "The session does not exist any more: create another.")
	}
	return nil
}

func (s *Server) endPoll(rn *runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rn.polls--
	rn.lastContact = s.now()
	s.watchOfflineLocked(rn)
	s.settleRunnerLocked(rn)
}

// nextMessage returns the runner's next message, or the channel to wait on. A job request is repeated to an idle poll until it is
// acknowledged or acquired: a runner that polls as idle has not received it.
func (s *Server) nextMessage(rn *runner, sessionID string, busy bool) (*brokerMessage, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkSessionLocked(rn, sessionID, s.now()); err != nil {
		return nil, nil, err
	}
	j := rn.job
	switch {
	case j == nil:
	case rn.cancelMessage != 0 && !rn.cancelDelivered && j.state == jobInProgress:
		rn.cancelDelivered = true
		message, err := cancellation(rn.cancelMessage, j)
		return message, nil, err
	case !busy && j.state == jobAssigned && !j.acknowledged:
		message, err := s.jobRequest(j)
		return message, nil, err
	}
	return nil, rn.wake, nil
}

func (s *Server) jobRequest(j *job) (*brokerMessage, error) {
	body, err := json.Marshal(map[string]any{
		"id": j.requestID, "runner_request_id": j.requestID, "run_service_url": s.opts.URL + pathRun + "/",
		"billing_owner_id": fmt.Sprintf("U_%d", j.run.repo.owner.id), "should_acknowledge": true,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a job request: %w", err)
	}
	return &brokerMessage{ID: j.messageID, Type: "RunnerJobRequest", Body: string(body)}, nil
}

func cancellation(id int64, j *job) (*brokerMessage, error) {
	body, err := json.Marshal(map[string]any{"jobId": j.guid, "timeout": "00:05:00"})
	if err != nil {
		return nil, fmt.Errorf("encoding a cancellation: %w", err)
	}
	return &brokerMessage{ID: id, Type: "JobCancellation", Body: string(body)}, nil
}

// acknowledge records that the runner has received the job request, which is then not repeated.
func (s *Server) acknowledge(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q struct {
		RunnerRequestID string `json:"runnerRequestId"`
	}
	if err := readJSON(r, &q); err != nil {
		return brokerError(err.status, kindBadRequest, err.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.requests[q.RunnerRequestID]
	if j == nil || j.runner != token.runner || token.runner.removed {
		return brokerError(http.StatusNotFound, kindAcknowledgeNotFound, "The job is not this runner's any more: it was cancelled or given to another.")
	}
	j.acknowledged = true
	w.WriteHeader(http.StatusOK)
	return nil
}
