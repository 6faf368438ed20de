package runner

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// service is the other side of the protocol: token service, broker, run service and Results service in one.
type service struct {
	t    testing.TB
	http *httptest.Server
	key  *rsa.PrivateKey

	mu          sync.Mutex
	faults      map[string][]fault // by path, used up one by one
	calls       map[string]int
	bodies      map[string][]string
	queries     []string // of polls
	tokens      int
	session     string
	job         *workflow.Message
	completed   *completion
	blobs       map[string]*blob
	metadata    map[string]map[string]any // finished logs and summaries, by method and step
	steps       map[string]stepUpdate
	order       float64
	messages    chan message
	changed     chan struct{} // closed and replaced at each call
	emptyAtOnce bool
	// unheard is a job message that was sent and not acknowledged. While repeat is set it is sent again, as GitHub
	// does: a poll may have been given up just as its answer left.
	repeat  bool
	unheard *message
}

// fault is one wrong answer; status 0 breaks the connection off.
type fault struct {
	status       int
	source, kind string
}

type blob struct {
	data   []byte
	kind   string
	pieces int
	sealed bool
}

var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newService(t testing.TB) *service {
	s := &service{
		t: t, key: testKey(), faults: map[string][]fault{}, calls: map[string]int{}, bodies: map[string][]string{}, blobs: map[string]*blob{},
		metadata: map[string]map[string]any{}, steps: map[string]stepUpdate{}, messages: make(chan message, 10), changed: make(chan struct{}),
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

func number(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }

func (s *service) files() map[string]any {
	k := s.key
	return map[string]any{
		".runner": map[string]any{
			"AgentId": "7", "AgentName": "warm-1", "PoolId": 1, "ServerUrl": s.http.URL + "/old", "ServerUrlV2": s.http.URL + "/broker/",
			"UseV2Flow": "True", "GitHubUrl": s.http.URL, "WorkFolder": "_work", "Ephemeral": true, "DisableUpdate": "true",
		},
		".credentials": map[string]any{"Scheme": "OAuth", "Data": map[string]any{
			"ClientId": "client-7", "AuthorizationUrl": s.http.URL + "/token", "RequireFipsCryptography": "True"}},
		".credentials_rsaparams": map[string]any{
			"exponent": number(big.NewInt(int64(k.E))), "modulus": number(k.N), "d": number(k.D), "p": number(k.Primes[0]), "q": number(k.Primes[1]),
			"dp": number(k.Precomputed.Dp), "dq": number(k.Precomputed.Dq), "inverseQ": number(k.Precomputed.Qinv),
		},
	}
}

func encodeJIT(files map[string]any) string {
	outer := map[string]string{}
	for name, content := range files {
		data, _ := json.Marshal(content)
		outer[name] = base64.StdEncoding.EncodeToString(data)
	}
	data, _ := json.Marshal(outer)
	return base64.StdEncoding.EncodeToString(data)
}

func (s *service) jit() string { return encodeJIT(s.files()) }

// queue offers a job, the first of a workflow file whose jobs are given as YAML.
func (s *service) queue(jobs string) {
	wf, err := workflow.Load("ci.yml", []byte("on: push\njobs:\n"+jobs))
	require.NoError(s.t, err)
	run, err := workflow.NewRun(wf, workflow.Event{Name: "push", GitHub: workflow.NewObject(
		"repository", "acme/shop", "sha", "abc123", "run_id", "42", "event", workflow.NewObject("ref", "refs/heads/main"))})
	require.NoError(s.t, err)
	msg, err := workflow.JobMessage(run.Next()[0], workflow.MessageParams{
		PlanID: uuid.NewString(), TimelineID: uuid.NewString(), JobID: uuid.NewString(), ServiceURL: s.http.URL + "/run",
		ResultsURL: s.http.URL + "/results", AccessToken: "job-token", GitHubToken: "ghs_token", Secrets: map[string]string{"PASSWORD": "hunter22"},
	})
	require.NoError(s.t, err)
	s.mu.Lock()
	s.job = msg
	s.mu.Unlock()
	s.offer()
}

// offer announces the job that is queued, again if need be.
func (s *service) offer() {
	s.messages <- message{ID: 1, Type: messageJob, Body: fmt.Sprintf(
		`{"id":"1","runner_request_id":"req-1","run_service_url":%q,"billing_owner_id":"o","should_acknowledge":true}`, s.http.URL+"/run")}
}

func (s *service) cancel(timeout string) {
	s.messages <- message{ID: 2, Type: messageCancel, Body: fmt.Sprintf(`{"jobId":%q,"timeout":%q}`, s.job.JobID, timeout)}
}

// fail makes the next calls of a path fail.
func (s *service) fail(path string, faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[path] = append(s.faults[path], faults...)
}

func (s *service) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[path]
}

// await blocks until a condition holds, looking after every call.
func (s *service) await(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			require.FailNow(s.t, "this never happened: "+what)
		}
	}
}

// awaitLog blocks until a step's or the job's log, as uploaded so far, has a text.
func (s *service) awaitStep(name, status string) {
	s.t.Helper()
	s.await("step "+name+" is "+status, func() bool {
		for _, u := range s.steps {
			if u.Name == name && u.Status == stepStatus[status] {
				return true
			}
		}
		return false
	})
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	key := r.URL.Path
	if r.Method == http.MethodDelete {
		key = "DELETE " + key
	}
	s.calls[key]++
	s.bodies[key] = append(s.bodies[key], string(body))
	if strings.HasSuffix(key, "/message") {
		s.queries = append(s.queries, r.URL.RawQuery)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	if list := s.faults[key]; len(list) > 0 {
		f := list[0]
		s.faults[key] = list[1:]
		s.mu.Unlock()
		if f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(f.status)
		fmt.Fprintf(w, `{"source":%q,"errorKind":%q,"error":%q,"errorMessage":"told to fail"}`, f.source, f.kind, f.kind)
		return
	}
	s.mu.Unlock()
	switch path := r.URL.Path; {
	case path == "/token":
		s.serveToken(w, string(body))
	case path == "/old/_apis/connectionData":
		answer(w, map[string]any{"instanceId": uuid.NewString(), "deploymentType": "hosted"})
	case strings.HasPrefix(path, "/broker/"):
		s.serveBroker(w, r)
	case strings.HasPrefix(path, "/run/"):
		s.serveRun(w, r, body)
	case strings.HasPrefix(path, "/results/"):
		s.serveResults(w, r, body)
	case strings.HasPrefix(path, "/blob/"):
		s.serveBlob(w, r, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (s *service) serveToken(w http.ResponseWriter, form string) {
	_, rest, _ := strings.Cut(form, "client_assertion=")
	signed, _, _ := strings.Cut(rest, "&")
	_, err := jwt.Parse(signed, func(*jwt.Token) (any, error) { return &s.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"PS256"}), jwt.WithAudience(s.http.URL+"/token"), jwt.WithIssuer("client-7"), jwt.WithSubject("client-7"))
	if err != nil && !strings.Contains(err.Error(), "expired") && !strings.Contains(err.Error(), "not valid yet") {
		s.t.Errorf("the client assertion: %v", err)
	}
	s.mu.Lock()
	s.tokens++
	n := s.tokens
	s.mu.Unlock()
	answer(w, map[string]any{"access_token": fmt.Sprintf("runner-token-%d", n), "token_type": "bearer", "expires_in": 3600})
}

func (s *service) authorized(w http.ResponseWriter, r *http.Request, prefix string) bool {
	if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "+prefix) {
		return true
	}
	s.t.Errorf("%s %s: wrong token", r.Method, r.URL.Path)
	w.WriteHeader(http.StatusUnauthorized)
	return false
}

func (s *service) serveBroker(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(w, r, "runner-token-") {
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /broker/session":
		s.mu.Lock()
		s.session = uuid.NewString()
		answer(w, map[string]any{"sessionId": s.session, "ownerName": "x"})
		s.mu.Unlock()
	case "DELETE /broker/session":
	case "POST /broker/acknowledge":
		s.mu.Lock()
		s.unheard = nil
		s.mu.Unlock()
	case "GET /broker/message":
		s.serveMessage(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveMessage holds a poll until there is a message. One that a poll has got which was given up by then is for the next poll, also if that is held
// already.
func (s *service) serveMessage(w http.ResponseWriter, r *http.Request) {
	for {
		s.mu.Lock()
		if r.URL.Query().Get("sessionId") != s.session {
			s.t.Errorf("poll with another session")
		}
		atOnce, unheard, changed := s.emptyAtOnce, s.unheard, s.changed
		s.mu.Unlock()
		if unheard != nil {
			answer(w, unheard)
			return
		}
		if atOnce {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		select {
		case m := <-s.messages:
			s.mu.Lock()
			if s.repeat {
				s.unheard = &m
			}
			s.mu.Unlock()
			answer(w, m)
			return
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *service) serveRun(w http.ResponseWriter, r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/run/acquirejob":
		if s.authorized(w, r, "runner-token-") {
			answer(w, s.job)
		}
	case "/run/renewjob":
		if s.authorized(w, r, "job-token") {
			answer(w, map[string]any{"lockedUntil": "2030-01-01T00:00:00Z"})
		}
	case "/run/completejob":
		if s.authorized(w, r, "job-token") {
			var c completion
			if err := json.Unmarshal(body, &c); err != nil {
				s.t.Errorf("completejob: %v", err)
			}
			s.completed = &c
		}
	}
}

func (s *service) serveResults(w http.ResponseWriter, r *http.Request, body []byte) {
	if !s.authorized(w, r, "job-token") {
		return
	}
	var in map[string]any
	if err := json.Unmarshal(body, &in); err != nil {
		s.t.Errorf("results: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in["workflow_run_backend_id"] != s.job.Plan.PlanID || in["workflow_job_run_backend_id"] != s.job.JobID {
		s.t.Errorf("%s names another job", r.URL.Path)
	}
	step, _ := in["step_backend_id"].(string)
	method := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	address := fmt.Sprintf("%s/blob/%s/%s?sig=secret", s.http.URL, strings.TrimPrefix(method, "Get"), step)
	switch {
	case strings.HasSuffix(method, "LogsSignedBlobURL"):
		answer(w, map[string]any{"logs_url": address, "blob_storage_type": azureBlob})
	case strings.HasSuffix(method, "SummarySignedBlobURL"):
		answer(w, map[string]any{"summary_url": address, "blob_storage_type": azureBlob, "soft_size_limit": "1048576"})
	case strings.HasPrefix(method, "Create"):
		s.metadata[method+"/"+step] = in
		answer(w, map[string]any{"ok": true})
	case method == "WorkflowStepsUpdate":
		if order := in["change_order"].(float64); order > s.order {
			s.order = order
		} else {
			s.t.Errorf("change_order does not grow")
		}
		var update struct{ Steps []stepUpdate }
		_ = json.Unmarshal(body, &update)
		for _, u := range update.Steps {
			s.steps[u.ExternalID] = u
		}
		answer(w, map[string]any{"ok": true})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *service) serveBlob(w http.ResponseWriter, r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if r.Method != http.MethodPut || q.Get("sig") != "secret" || r.Header.Get("Authorization") != "" {
		s.t.Errorf("%s %s: not as a blob is stored", r.Method, r.URL)
	}
	b := s.blobs[r.URL.Path]
	if q.Get("comp") != "appendblock" {
		b = &blob{kind: r.Header.Get("x-ms-blob-type")}
		s.blobs[r.URL.Path] = b
	} else if b == nil || b.kind != "AppendBlob" || b.sealed {
		s.t.Errorf("appending to %s, which is no open append blob", r.URL.Path)
		w.WriteHeader(http.StatusConflict)
		return
	}
	b.data, b.pieces = append(b.data, body...), b.pieces+1
	b.sealed = q.Get("seal") == "true"
	w.WriteHeader(http.StatusCreated)
}

// stepID finds the step's id by the name that was displayed last.
func (s *service) stepID(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.steps {
		if u.Name == name {
			return id
		}
	}
	require.FailNow(s.t, "no step "+name, "%v", s.steps)
	return ""
}

func (s *service) stepLog(name string) string {
	id := s.stepID(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs["/blob/StepLogsSignedBlobURL/"+id]
	require.NotNil(s.t, b, "no log of %s", name)
	return string(b.data)
}

func (s *service) jobLog() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs["/blob/JobLogsSignedBlobURL/"]
	require.NotNil(s.t, b)
	return string(b.data)
}

// conclusions are those reported at completion, by step name.
func (s *service) conclusions() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotNil(s.t, s.completed, "the job was never completed")
	out := map[string]string{}
	for _, r := range s.completed.StepResults {
		out[r.Name] = r.Conclusion
	}
	return out
}
