package standin_test

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v88/github"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// runner is a tiny client of the runner protocol, written from the JIT blob on.
type runner struct {
	t        testing.TB
	id       int64
	name     string
	settings struct {
		AgentName, ServerURL, ServerURLV2 string
		UseV2Flow                         bool
	}
	clientID, authURL string
	key               *rsa.PrivateKey
	token             string
	broker            string
	session           string
	run, request      string
	job               map[string]any
	jobToken          string
	planID, jobID     string
	results           string
}

func newRunner(t testing.TB, config *github.JITRunnerConfig) *runner {
	t.Helper()
	r := &runner{t: t, id: config.GetRunner().GetID(), name: config.GetRunner().GetName()}
	raw, err := base64.StdEncoding.DecodeString(config.GetEncodedJITConfig())
	require.NoError(t, err)
	var files map[string][]byte
	require.NoError(t, json.Unmarshal(raw, &files))
	require.NoError(t, json.Unmarshal(files[".runner"], &r.settings))
	var credentials struct {
		Scheme string
		Data   struct{ ClientID, AuthorizationURL string }
	}
	require.NoError(t, json.Unmarshal(files[".credentials"], &credentials))
	require.Equal(t, "OAuth", credentials.Scheme)
	r.clientID, r.authURL = credentials.Data.ClientID, credentials.Data.AuthorizationURL
	var p struct{ D, P, Q, Modulus, Exponent []byte }
	require.NoError(t, json.Unmarshal(files[".credentials_rsaparams"], &p))
	number := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
	r.key = &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: number(p.Modulus), E: int(number(p.Exponent).Int64())},
		D:         number(p.D), Primes: []*big.Int{number(p.P), number(p.Q)},
	}
	require.NoError(t, r.key.Validate())
	r.broker = strings.TrimRight(r.settings.ServerURLV2, "/")
	return r
}

// authorize trades a signed assertion for a token, as of the given time.
func (r *runner) authorize(method jwt.SigningMethod, now time.Time) int {
	r.t.Helper()
	status, err := r.tryAuthorize(method, now)
	require.NoError(r.t, err)
	return status
}

func (r *runner) tryAuthorize(method jwt.SigningMethod, now time.Time) (int, error) {
	r.t.Helper()
	assertion, err := jwt.NewWithClaims(method, jwt.RegisteredClaims{
		Subject: r.clientID, Issuer: r.clientID, Audience: jwt.ClaimStrings{r.authURL}, ID: "x",
		NotBefore: jwt.NewNumericDate(now), IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute)),
	}).SignedString(r.key)
	require.NoError(r.t, err)
	response, err := await.HTTP.PostForm(r.authURL, url.Values{
		"grant_type":            {"client_credentials"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {assertion},
	})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Token string `json:"access_token"`
		Error string
	}
	require.NoError(r.t, json.NewDecoder(response.Body).Decode(&answer))
	r.token = answer.Token
	return response.StatusCode, nil
}

func (r *runner) call(method, address, token string, in, out any) int {
	status, err := r.tryCall(r.t.Context(), method, address, token, in, out)
	require.NoError(r.t, err)
	return status
}

func (r *runner) tryCall(ctx context.Context, method, address, token string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := await.HTTP.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && out != nil && len(data) > 0 {
		err = json.Unmarshal(data, out)
	}
	return response.StatusCode, err
}

func (r *runner) openSession() int {
	var answer struct{ SessionID string }
	status := r.call("POST", r.broker+"/session", r.token, map[string]any{
		"ownerName": "RUNNER", "agent": map[string]any{"id": r.id, "name": r.name, "osDescription": "Linux 6"},
	}, &answer)
	if status == http.StatusOK {
		r.session = answer.SessionID
	}
	return status
}

// start authorizes and opens a session: the runner is online afterwards.
func (r *runner) start(now time.Time) *runner {
	r.t.Helper()
	require.Equal(r.t, http.StatusOK, r.authorize(jwt.SigningMethodPS256, now))
	require.Equal(r.t, http.StatusOK, r.openSession())
	return r
}

type message struct {
	MessageID   int64
	MessageType string
	Body        string
}

func (r *runner) poll(status string) (message, int) {
	r.t.Helper()
	var m message
	code := r.call("GET", r.broker+"/message?"+url.Values{"sessionId": {r.session}, "status": {status}, "os": {"Linux"}}.Encode(), r.token, nil, &m)
	if m.MessageType == "RunnerJobRequest" {
		var body struct {
			Request string `json:"runner_request_id"`
			Run     string `json:"run_service_url"`
			Ack     bool   `json:"should_acknowledge"`
		}
		require.NoError(r.t, json.Unmarshal([]byte(m.Body), &body))
		require.True(r.t, body.Ack)
		r.request, r.run = body.Request, body.Run
	}
	return m, code
}

func (r *runner) acknowledge() int {
	return r.call("POST", r.broker+"/acknowledge", r.token, map[string]string{"runnerRequestId": r.request}, nil)
}

func (r *runner) acquire() int {
	r.t.Helper()
	r.job = nil
	code := r.call("POST", r.run+"acquirejob", r.token, map[string]string{"jobMessageId": r.request, "runnerOS": "Linux"}, &r.job)
	if code != http.StatusOK {
		return code
	}
	r.jobID = r.job["jobId"].(string)
	r.planID = r.job["plan"].(map[string]any)["planId"].(string)
	endpoint := r.job["resources"].(map[string]any)["endpoints"].([]any)[0].(map[string]any)
	require.Equal(r.t, r.run, endpoint["url"])
	r.jobToken = endpoint["authorization"].(map[string]any)["parameters"].(map[string]any)["AccessToken"].(string)
	var claims struct { // GitHub's runner reads the token before it starts a worker
		jwt.RegisteredClaims
		Orchestration string `json:"orch_id"`
		Scope         string `json:"scp"`
	}
	_, _, err := jwt.NewParser().ParseUnverified(r.jobToken, &claims)
	require.NoError(r.t, err)
	require.Equal(r.t, r.planID+"."+r.jobID, claims.Orchestration)
	require.Equal(r.t, "Actions.Results:"+r.planID+":"+r.jobID, claims.Scope)
	r.results = r.job["variables"].(map[string]any)["system.github.results_endpoint"].(map[string]any)["value"].(string)
	return code
}

// take waits for a job, acknowledges and acquires it.
func (r *runner) take() *runner {
	r.t.Helper()
	m, code := r.poll("Online")
	require.Equal(r.t, http.StatusOK, code)
	require.Equal(r.t, "RunnerJobRequest", m.MessageType)
	require.Equal(r.t, http.StatusOK, r.acknowledge())
	require.Equal(r.t, http.StatusOK, r.acquire())
	return r
}

func (r *runner) renew() int {
	return r.call("POST", r.run+"renewjob", r.jobToken, map[string]string{"planId": r.planID, "jobId": r.jobID}, nil)
}

func (r *runner) complete(conclusion string, outputs map[string]string) int {
	values := map[string]any{}
	for name, value := range outputs {
		values[name] = map[string]string{"value": value}
	}
	return r.call("POST", r.run+"completejob", r.jobToken, map[string]any{
		"planId": r.planID, "jobId": r.jobID, "conclusion": conclusion, "outputs": values,
		"stepResults": []map[string]any{{"external_id": "s1", "number": 1, "name": "step", "status": "Completed", "conclusion": conclusion}},
	}, nil)
}

// jobName is the display name in the job message.
func (r *runner) jobName() string { return fmt.Sprint(r.job["jobDisplayName"]) }

// oldFlow begins as a client does that ignores UseV2Flow: connectionData, a session there, and the broker it names.
func (r *runner) oldFlow(now time.Time) {
	r.t.Helper()
	base := strings.TrimRight(r.settings.ServerURL, "/")
	require.Equal(r.t, http.StatusOK, r.authorize(jwt.SigningMethodRS256, now))
	var data struct {
		InstanceID          uuid.UUID `json:"instanceId"`
		LocationServiceData struct {
			ServiceDefinitions []struct{ Identifier, ServiceType, DisplayName, RelativePath string }
		}
	}
	require.Equal(r.t, http.StatusOK, r.call("GET", base+"/_apis/connectionData", "", nil, &data), "it is shown to any client")
	require.NotZero(r.t, data.InstanceID)
	resolve := func(id string) string {
		for _, d := range data.LocationServiceData.ServiceDefinitions {
			if d.Identifier == id {
				filled := strings.NewReplacer("{area}", d.ServiceType, "{resource}", d.DisplayName, "{poolId}", "1").Replace(d.RelativePath)
				return base + path.Join("/", regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(filled, ""))
			}
		}
		require.Failf(r.t, "service is missing", "%s", id)
		return ""
	}
	require.NotEmpty(r.t, resolve("c3a054f6-7a8a-49c0-944e-3a8e5d7adfd7"))
	var session struct {
		BrokerMigrationMessage struct{ BrokerBaseURL string }
	}
	require.Equal(r.t, http.StatusOK, r.call("POST", resolve("134e239e-2df3-4794-a6f6-24f1f19ec8dc"), r.token,
		map[string]any{"ownerName": "RUNNER", "agent": map[string]any{"id": r.id}}, &session))
	r.broker = session.BrokerMigrationMessage.BrokerBaseURL
	require.False(r.t, strings.HasSuffix(r.broker, "/"))
	require.Equal(r.t, http.StatusOK, r.openSession())
}

// upload writes a log the way runners do: sign, create an append blob, append block after block.
func (r *runner) upload(call, step string, blocks ...string) {
	r.t.Helper()
	var signed struct {
		LogsURL string `json:"logs_url"`
	}
	require.Equal(r.t, http.StatusOK, r.call("POST", r.results+"twirp/results.services.receiver.Receiver/"+call, r.jobToken, map[string]string{
		"workflow_job_run_backend_id": r.jobID, "workflow_run_backend_id": r.planID, "step_backend_id": step,
	}, &signed))
	put := func(address, body string) {
		request, err := http.NewRequestWithContext(r.t.Context(), "PUT", address, strings.NewReader(body))
		require.NoError(r.t, err)
		request.Header.Set("x-ms-blob-type", "AppendBlob")
		response, err := await.HTTP.Do(request)
		require.NoError(r.t, err)
		require.NoError(r.t, response.Body.Close())
		require.Equal(r.t, http.StatusCreated, response.StatusCode)
	}
	put(signed.LogsURL, "")
	for i, block := range blocks {
		seal := ""
		if i == len(blocks)-1 {
			seal = "&seal=true"
		}
		put(signed.LogsURL+"&comp=appendblock"+seal, block)
	}
}

func download(t testing.TB, address string) string {
	t.Helper()
	response, err := await.HTTP.Get(address)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(data)
}

var ps256 = jwt.SigningMethodPS256

// move follows a stand-in to another address.
func (r *runner) move(from, to string) {
	for _, address := range []*string{&r.broker, &r.authURL, &r.run, &r.results} {
		*address = strings.Replace(*address, from, to, 1)
	}
}
