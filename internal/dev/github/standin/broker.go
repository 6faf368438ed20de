package standin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Kinds of a broker's error, as runner clients know them.
const (
	kindRunnerNotFound      = "RunnerNotFound"
	kindSessionInvalid      = "RunnerSessionInvalid"
	kindSessionConflict     = "RunnerSessionConflict"
	kindSessionRefused      = "RunnerSessionRefused"
	kindAcknowledgeNotFound = "AcknowledgeJobNotFound"
	kindVersionTooOld       = "RunnerVersionTooOld"
	kindUnauthorized        = "Unauthorized"
	kindBadRequest          = "BadRequest"

	sourceBroker = "actions-broker-listener"
	sourceRun    = "actions-run-service"
)

// protocolError is an error answer of the broker or the run service.
type protocolError struct {
	Source  string `json:"source"`
	Code    int    `json:"statusCode"`
	Kind    string `json:"errorKind,omitempty"`
	Message string `json:"errorMessage"`
}

func (e *protocolError) Error() string { return e.Message }

func brokerError(status int, kind, message string) *protocolError {
	return &protocolError{Source: sourceBroker, Code: status, Kind: kind, Message: message}
}

// runError has no kind: clients of the run service depend on its status.
func runError(status int, message string) *protocolError {
	return &protocolError{Source: sourceRun, Code: status, Message: message}
}

// protocol registers a call of the runner protocol. Its handler gets the verified token of a runner or a job.
func (s *Server) protocol(mux *http.ServeMux, pattern string, handle func(http.ResponseWriter, *http.Request, *runnerToken) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		token, about, refused := s.runnerTokenOf(r, pattern)
		if refused != nil {
			writeProtocolError(w, refused)
			return
		}
		if f, ok := s.faults.take(FaultRESTLatency, about); ok && !s.pause(r, time.Duration(f.Delay)) {
			return
		}
		if failed := s.faultyAnswer(w.Header(), about); failed != nil {
			writeError(w, failed)
			return
		}
		if s.cutsRunner(about) {
			panic(http.ErrAbortHandler)
		}
		if _, ok := s.faults.take(FaultRESTCut, about); ok {
			_ = handle(&discardWriter{header: http.Header{}}, r, token) // its answer is lost in any case
			panic(http.ErrAbortHandler)
		}
		if err := handle(w, r, token); err != nil {
			writeProtocolError(w, err)
		}
	})
}

func writeProtocolError(w http.ResponseWriter, err error) {
	var e *protocolError
	if errors.As(err, &e) {
		writeJSON(w, e.Code, e)
		return
	}
	writeError(w, err)
}

// cutsRunner reports whether a call of a runner does not get through.
func (s *Server) cutsRunner(about subject) bool {
	if _, ok := s.faults.take(FaultRunnerCut, about); ok {
		return true
	}
	_, ok := s.faults.take(FaultRESTCutBefore, about)
	return ok
}

// runnerTokenOf verifies a runner's or a job's token, and says what a fault of its call would be about.
func (s *Server) runnerTokenOf(r *http.Request, pattern string) (*runnerToken, subject, error) {
	credential := bearer(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.runnerTokens[credential]
	if token == nil || !s.now().Before(token.expires) {
		return nil, subject{}, brokerError(http.StatusUnauthorized, kindUnauthorized, "The token is unknown or has expired: ask the token endpoint for another.")
	}
	about := runnerSubjectLocked(token.runner)
	about.route = pattern
	if _, strikes := s.faults.take(FaultTokens, about); strikes {
		delete(s.runnerTokens, credential)
		return nil, about, brokerError(http.StatusUnauthorized, kindUnauthorized, "The token has expired: ask the token endpoint for another.")
	}
	return token, about, nil
}

func (s *Server) brokerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+pathToken, s.issueToken)
	mux.HandleFunc("GET "+pathPipelines+"/_apis/connectionData", s.connectionData)
	s.protocol(mux, "POST "+pathPipelines+"/_apis/distributedtask/pools/{pool}/sessions", s.createSession)
	s.protocol(mux, "DELETE "+pathPipelines+"/_apis/distributedtask/pools/{pool}/sessions/{session}", s.deleteSession)
	s.protocol(mux, "GET "+pathPipelines+"/_apis/distributedtask/pools/{pool}/messages", s.migrateMessage)
	s.protocol(mux, "DELETE "+pathPipelines+"/_apis/distributedtask/pools/{pool}/messages/{message}", s.deleteMessage)
	// A client that joins the broker's address (given without a trailing slash) the way browsers do ends one level up.
	for _, base := range []string{pathBroker, "/_services"} {
		s.protocol(mux, "POST "+base+"/session", s.createBrokerSession)
		s.protocol(mux, "DELETE "+base+"/session", s.deleteSession)
		s.protocol(mux, "GET "+base+"/message", s.getMessage)
		s.protocol(mux, "POST "+base+"/acknowledge", s.acknowledge)
	}
}

// issueToken trades a signed client assertion for a runner's token.
func (s *Server) issueToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	if err := r.ParseForm(); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "The form could not be read."})
		return
	}
	if grant := r.PostFormValue("grant_type"); grant != "client_credentials" {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type", "error_description": "Only client_credentials is supported."})
		return
	}
	rn, err := s.checkAssertion(r.PostFormValue("client_assertion"), s.opts.URL+pathToken)
	if err != nil {
		s.log.Debug("a client assertion was refused", "error", err)
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_client", "error_description": "The registration does not exist, or its assertion is not valid."})
		return
	}
	s.mu.Lock()
	about := runnerSubjectLocked(rn)
	about.route = "POST " + pathToken
	if s.cutsRunner(about) {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	value := s.newRunnerTokenLocked(rn, nil)
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": value, "token_type": "bearer", "expires_in": int(s.opts.TokenLifetime.Seconds()), "scope": "",
	})
}

// instanceID names this tenant: GitHub's runner reads a GUID there, and opens no session otherwise.
const instanceID = "3f2a6c1e-8d47-4b0a-9f35-6e0c1d7b5a92"

// connectionData says where sessions and messages are, to a client of the old flow. It needs no authentication, as at
// GitHub.
func (s *Server) connectionData(w http.ResponseWriter, _ *http.Request) {
	service := func(id, name, relative string) map[string]any {
		return map[string]any{
			"serviceType": "distributedtask", "identifier": id, "displayName": name, "description": name,
			"relativeToSetting": "context", "relativePath": relative, "resourceVersion": 1,
			"minVersion": "1.0", "maxVersion": "12.0", "releasedVersion": "5.1", "serviceOwner": "00000000-0000-0000-0000-000000000000",
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"instanceId": instanceID, "deploymentType": "hosted",
		"locationServiceData": map[string]any{
			"serviceOwner": "00000000-0000-0000-0000-000000000000", "lastChangeId": 1, "lastChangeId64": 1,
			"serviceDefinitions": []any{
				service("134e239e-2df3-4794-a6f6-24f1f19ec8dc", "sessions", "/_apis/{area}/pools/{poolId}/{resource}/{sessionId}"),
				service("c3a054f6-7a8a-49c0-944e-3a8e5d7adfd7", "messages", "/_apis/{area}/pools/{poolId}/{resource}/{messageId}"),
			},
		},
	})
}

type sessionRequest struct {
	SessionID string `json:"sessionId"`
	OwnerName string `json:"ownerName"`
	Agent     struct {
		ID            json.RawMessage `json:"id"`
		Name          string          `json:"name"`
		OSDescription string          `json:"osDescription"`
	} `json:"agent"`
}

// createSession is the old flow's: its answer sends the client to the broker.
func (s *Server) createSession(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	return s.openSession(w, r, token, false)
}

// createBrokerSession is the broker's: the session that receives jobs.
func (s *Server) createBrokerSession(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	return s.openSession(w, r, token, true)
}

func (s *Server) openSession(w http.ResponseWriter, r *http.Request, token *runnerToken, broker bool) error {
	var q sessionRequest
	if err := readJSON(r, &q); err != nil {
		return brokerError(err.status, kindBadRequest, err.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rn := token.runner
	if rn.removed {
		return brokerError(http.StatusNotFound, kindRunnerNotFound, "The runner's registration has been deleted from the server.")
	}
	answer := map[string]any{
		"ownerName": q.OwnerName, "useFipsEncryption": false,
		"agent": map[string]any{"id": rn.id, "name": rn.name, "version": "", "osDescription": q.Agent.OSDescription, "ephemeral": !rn.static},
		// Messages are not encrypted: the transport is.
		"encryptionKey": map[string]any{"encrypted": false, "value": nil},
	}
	if !broker {
		answer["sessionId"] = s.guid()
		answer["brokerMigrationMessage"] = map[string]string{"brokerBaseUrl": s.opts.URL + pathBroker}
		writeJSON(w, http.StatusOK, answer)
		return nil
	}
	now := s.now()
	if f, ok := s.faults.take(FaultSessionRefused, runnerSubjectLocked(rn)); ok {
		return brokerError(f.statusOr(http.StatusForbidden), kindSessionRefused, "The runner may not open a session.")
	}
	_, forced := s.faults.take(FaultSession, runnerSubjectLocked(rn))
	if forced || (rn.session != nil && rn.online(now, s.opts.OfflineAfter)) {
		return brokerError(http.StatusConflict, kindSessionConflict, "Another session is open for this runner: end it, or wait until it has expired.")
	}
	rn.session = &session{id: s.guid(), createdAt: now}
	rn.lastContact = now
	rn.sessions++
	if rn.onlineAt.IsZero() {
		rn.onlineAt = now
	}
	if q.Agent.OSDescription != "" {
		rn.os = osName(q.Agent.OSDescription)
	}
	s.watchOfflineLocked(rn)
	s.settleRunnerLocked(rn)
	s.matchRunnerLocked(rn)
	s.changedLocked()
	answer["sessionId"] = rn.session.id
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func osName(description string) string {
	switch lower := strings.ToLower(description); {
	case strings.Contains(lower, "darwin"), strings.Contains(lower, "macos"), strings.Contains(lower, "osx"):
		return "macOS"
	case strings.Contains(lower, "windows"):
		return "Windows"
	default:
		return "Linux"
	}
}

// deleteSession ends the session: the runner is offline at once.
func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rn := token.runner
	ends := rn.ends(rn.ending, s.now())
	if rn.removed && !ends {
		return brokerError(http.StatusNotFound, kindRunnerNotFound, "The runner's registration has been deleted from the server.")
	}
	if strings.HasPrefix(r.URL.Path, pathPipelines) {
		w.WriteHeader(http.StatusOK) // the old flow's session held nothing
		return nil
	}
	if ends {
		rn.ending = ""
		rn.signal()
	} else {
		s.endSessionLocked(rn)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endSessionLocked takes a runner offline; a job it has not acquired is queued again.
func (s *Server) endSessionLocked(rn *runner) {
	rn.session = nil
	s.settleRunnerLocked(rn)
	rn.signal()
	if j := rn.job; j != nil && j.state == jobAssigned {
		s.unassignLocked(j, endSession)
		s.requeueLocked(j)
	}
	s.changedLocked()
}

// migrateMessage answers a poll of the old flow that ignored the session's answer.
func (s *Server) migrateMessage(w http.ResponseWriter, _ *http.Request, _ *runnerToken) error {
	body, err := json.Marshal(map[string]string{"brokerBaseUrl": s.opts.URL + pathBroker})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"messageId": 1, "messageType": "BrokerMigration", "iv": "", "body": string(body)})
	return nil
}

func (s *Server) deleteMessage(w http.ResponseWriter, _ *http.Request, _ *runnerToken) error {
	w.WriteHeader(http.StatusOK)
	return nil
}
