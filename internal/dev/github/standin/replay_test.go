package standin_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// replayOf is what happened beside the requests of a recording, and where what was answered then was wrong.
type replayOf struct {
	jobs []string // the workflow's jobs; one run each
	// expected overrides the status that was recorded.
	expected map[string]int
	// skipped are requests that did not go to GitHub's services: those for archives, which a proxy served, and those of the recording's author.
	skipped []string
	// fault is in force when the recording begins.
	fault standin.FaultKind
}

// anonymous: the runner asks for connectionData without a token first. At GitHub it is anonymous; the recorded 401 sent the runner for a token.
var anonymous = map[string]int{"GET /_services/pipelines/_apis/connectionData": http.StatusOK}

var replays = map[string]replayOf{
	"jit-one-job": {jobs: []string{`
    outputs: {word: "${{ steps.m.outputs.w }}"}
    env: {COLOUR: green}
    steps: [{name: greet, run: echo}, {id: m, run: echo}, {run: exit 3}, {if: always(), run: echo last}]`}, expected: anonymous},
	"jit-cancelled":       {jobs: []string{`steps: [{run: echo started; sleep 60}, {if: always(), run: echo cleanup}]`}, expected: anonymous},
	"jit-long":            {jobs: []string{`steps: [{run: sleep 130}]`}, expected: anonymous},
	"jit-idle-term":       {expected: anonymous},
	"jit-version-refused": {fault: standin.FaultVersionRefused, expected: anonymous},
	"jit-uses": {
		jobs: []string{`steps: [{run: env}, {run: env}, {run: env}, {run: env}]`},
		// The stand-in has no actions, and says so as the launch service does; the archives came from the proxy, and the log was asked
		// for by who recorded.
		expected: map[string]int{
			"GET /_services/pipelines/_apis/connectionData": http.StatusOK, "POST runnerresolve/actions": http.StatusUnprocessableEntity,
		},
		skipped: []string{"GET /tar/acme/hello", "GET /tar/acme/comp", "GET /_services/results/logs/85565775001"},
	},
	"registered-two-jobs": {jobs: []string{`steps: [{run: echo one}]`, `steps: [{run: echo two}]`}, expected: anonymous},
	// GitHub takes a removal token here.
	"registered-remove": {expected: map[string]int{"DELETE /api/v3/repos/acme/app/actions/runners/{runner}": http.StatusNoContent}},
}

// Every request that GitHub's runner made is answered as in the recording: with that status, with each member of the
// recorded answer, of that kind, and with no member that the runner's own contracts do not declare.
func TestReplay_EveryRecordingOfGitHubsRunner(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, len(replays))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		what, known := replays[name]
		require.True(t, known, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t, name, what)
			p.play()
		})
	}
}

// player sends a recording to a stand-in.
type player struct {
	*testing.T
	replayOf
	world *world
	clock *stepClock
	began time.Time
	list  []exchange
	tr    translation

	key                   *rsa.PrivateKey
	clientID              string
	registration          string // a registration or removal token
	runnerToken, jobToken string
	submitted             int
	run                   standin.RunView
	open                  map[int]*openRequest // by their place in the list
	sessionEnded          bool
}

// openRequest is one that is not answered yet.
type openRequest struct {
	answer chan answered
	giveUp context.CancelFunc
}

type answered struct {
	status int
	body   []byte
	err    error
}

func newPlayer(t *testing.T, name string, what replayOf) *player {
	clock := newStepClock()
	w := newWorld(t, func(o *standin.Options) { o.Now, o.After = clock.Now, clock.After })
	w.clock = nil // this world has the other clock
	p := &player{
		T: t, replayOf: what, world: w, clock: clock, began: clock.Now(), list: readRecording(t, name), open: map[int]*openRequest{},
		tr: translation{"http://github.example": w.in.URL},
	}
	if what.fault != "" {
		_, err := w.in.AddFault(standin.Fault{Kind: what.fault, Times: 1})
		require.NoError(t, err)
	}
	if strings.HasPrefix(name, "jit-") || strings.HasSuffix(name, "-remove") {
		p.mint()
	} else {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		p.key = key
	}
	create := w.org.Actions.CreateRegistrationToken
	var token interface{ GetToken() string }
	token, _, err := create(w.ctx, "acme", "app")
	if strings.HasSuffix(name, "-remove") {
		token, _, err = w.org.Actions.CreateRemoveToken(w.ctx, "acme", "app")
	}
	require.NoError(t, err)
	p.registration = token.GetToken()
	p.submit()
	return p
}

var recordedName = regexp.MustCompile(`"name": ?"([^"]+)", "version"`)

// mint registers the runner of the recording, under its name.
func (p *player) mint() {
	p.Helper()
	name := "one"
	for _, one := range p.list {
		if m := recordedName.FindSubmatch(one.Request.Body); m != nil {
			name = string(m[1])
		}
	}
	config, _, err := p.world.org.Actions.GenerateRepoJITConfig(p.world.ctx, "acme", "app", &github.GenerateJITConfigRequest{
		Name: name, RunnerGroupID: 1, Labels: []string{"self-hosted", "linux"},
	})
	require.NoError(p, err)
	r := newRunner(p, config)
	require.EqualValues(p, 20001, r.id, "as recorded")
	p.key, p.clientID = r.key, r.clientID
}

// submit queues the next job of the recording, if there is one.
func (p *player) submit() {
	p.Helper()
	if p.submitted == len(p.jobs) {
		return
	}
	job := p.jobs[p.submitted]
	p.submitted++
	p.run = p.world.submit("on: push\njobs:\n  t:\n    runs-on: [self-hosted, linux]\n    " + strings.TrimSpace(job) + "\n")
}

// event is a request that is made, or the answer of one that was held.
type event struct {
	at    float64
	index int
	end   bool
}

// play sends the requests in their order. One that was held is sent without waiting for its answer, which is checked at the time of the recording.
func (p *player) play() {
	var events []event
	for i, one := range p.list {
		events = append(events, event{at: one.At, index: i})
		if one.held() {
			events = append(events, event{at: one.At + one.Answer.After, index: i, end: true})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, next := range events {
		one := p.list[next.index]
		if slices.Contains(p.skipped, one.route()) {
			continue
		}
		p.clock.moveTo(p.began.Add(time.Duration(next.at * float64(time.Second))))
		switch {
		case next.end:
			p.end(next.index)
		case one.held():
			p.begin(next.index)
		default:
			p.check(one, p.send(p.Context(), one))
		}
		if one.route() == removal {
			return // the runner asked twice more, because it was refused
		}
	}
	p.finish()
}

const removal = "DELETE /api/v3/repos/acme/app/actions/runners/{runner}"

// begin sends a request that will be held.
func (p *player) begin(index int) {
	ctx, cancel := context.WithCancel(p.Context())
	open := &openRequest{answer: make(chan answered, 1), giveUp: cancel}
	p.open[index] = open
	pending := p.clock.pending(pollHold)
	request := p.request(ctx, p.list[index])
	go func() { open.answer <- do(request) }()
	p.clock.awaitTimers(p, pending+1, pollHold)
}

// pollHold is how long a poll is held.
const pollHold = 50 * time.Second

// end makes what the answer was about happen, and checks the answer. What ended with the session stays open until then.
func (p *player) end(index int) {
	one := p.list[index]
	switch {
	case one.answers("JobCancellation"):
		require.NoError(p, p.world.in.CancelRun(p.run.ID))
	case one.answers("RunnerJobRequest"):
		p.submit()
	case one.status() != http.StatusAccepted:
		return
	}
	p.check(one, await.Receive(p.T, p.open[index].answer, "the answer of a held poll"))
	delete(p.open, index)
}

// finish deletes the session, as every listener does at its end, and as it could not where its registration seemed gone. Polls were held until
// then: they must not tell a listener whose worker is still ending that its registration is gone.
func (p *player) finish() {
	if !p.sessionEnded {
		p.endSession(func() answered { return p.sendTo(http.MethodDelete, "/_services/broker/session") })
	}
	for index, open := range p.open {
		one := p.list[index]
		if one.Answer.Status == nil { // the listener gave it up
			open.giveUp()
		}
		answer := await.Receive(p.T, open.answer, "the answer of a poll whose session has ended")
		if one.Answer.Status != nil {
			p.check(one, answer)
		}
	}
}

func (p *player) endSession(send func() answered) answered {
	p.Helper()
	for _, open := range p.open {
		require.Empty(p, open.answer, "a poll was answered before its session was deleted")
	}
	p.sessionEnded = true
	answer := send()
	require.Equal(p, http.StatusNoContent, answer.status, "%s", answer.body)
	return answer
}

func (p *player) sendTo(method, path string) answered {
	request, err := http.NewRequestWithContext(p.Context(), method, p.world.in.URL+path, nil)
	require.NoError(p, err)
	request.Header.Set("Authorization", "Bearer "+p.runnerToken)
	return do(request)
}

func (p *player) send(ctx context.Context, one exchange) answered {
	if one.route() == "DELETE /_services/broker/session" {
		return p.endSession(func() answered { return do(p.request(ctx, one)) })
	}
	return do(p.request(ctx, one))
}

func do(request *http.Request) answered {
	response, err := await.HTTP.Do(request)
	if err != nil {
		return answered{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answered{status: response.StatusCode, body: body, err: err}
}

// request is the recorded one with today's ids, addresses and tokens.
func (p *player) request(ctx context.Context, one exchange) *http.Request {
	p.Helper()
	request, err := http.NewRequestWithContext(ctx, one.Request.Method, p.world.in.URL+p.tr.text(one.Request.Path), bytes.NewReader(p.body(one)))
	require.NoError(p, err)
	for name, value := range one.Request.Headers {
		request.Header.Set(name, value)
	}
	switch one.Request.Headers["authorization"] {
	case "":
	case "RemoteAuth":
		request.Header.Set("Authorization", "RemoteAuth "+p.registration)
	case "Bearer":
		token := p.runnerToken
		if p.jobToken != "" && ofTheJob.MatchString(one.Request.Path) {
			token = p.jobToken
		}
		request.Header.Set("Authorization", "Bearer "+token)
	default:
		require.Fail(p, "unknown authorization scheme", one.Request.Headers["authorization"])
	}
	return request
}

// ofTheJob are the calls that carry the job's token.
var ofTheJob = regexp.MustCompile(`^/_services/results/|^/_services/run/(renew|complete)job|^/actions/build/`)

var (
	recordedKey       = regexp.MustCompile(`<RSAKeyValue>.*</RSAKeyValue>`)
	recordedAssertion = regexp.MustCompile(`client_assertion=JWT`)
)

func (p *player) body(one exchange) []byte {
	text := string(one.Request.Body)
	switch {
	case text == "" || text == "null":
		return nil
	case strings.HasPrefix(text, `"`):
		var plain string
		require.NoError(p, json.Unmarshal(one.Request.Body, &plain))
		text = plain
	}
	text = p.tr.text(text)
	text = recordedKey.ReplaceAllString(text, p.publicKey())
	return []byte(recordedAssertion.ReplaceAllLiteralString(text, "client_assertion="+p.assertion()))
}

func (p *player) publicKey() string {
	number := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	return "<RSAKeyValue><Modulus>" + number(p.key.N) + "</Modulus><Exponent>" + number(big.NewInt(int64(p.key.E))) + "</Exponent></RSAKeyValue>"
}

func (p *player) assertion() string {
	now := p.clock.Now()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodPS256, jwt.RegisteredClaims{
		Subject: p.clientID, Issuer: p.clientID, Audience: jwt.ClaimStrings{p.world.in.URL + "/_services/token"}, ID: "x",
		NotBefore: jwt.NewNumericDate(now), IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute)),
	}).SignedString(p.key)
	require.NoError(p, err)
	return signed
}

// check compares an answer with the recorded one, and learns today's ids from it.
func (p *player) check(one exchange, answer answered) {
	p.Helper()
	require.NoError(p, answer.err)
	want, changed := p.expected[one.route()]
	if !changed {
		want = one.status()
	}
	if one.route() == "DELETE /_services/broker/session" {
		want = http.StatusNoContent // 404 was recorded where the registration had gone before the session
	}
	require.Equal(p, want, answer.status, "%s %s: %s", one.Request.Method, one.Request.Path, answer.body)
	if len(answer.body) == 0 && want == http.StatusAccepted {
		return
	}
	into := decodeStrictly(p.T, one.route(), answer.status, answer.body)
	if want == one.status() && into != nil {
		var recorded, now any
		require.NoError(p, json.Unmarshal(one.Answer.Body, &recorded))
		require.NoError(p, json.Unmarshal(answer.body, &now))
		p.tr.learn(p.T, one.route(), p.asGitHubSaid(one, recorded), now)
	}
	p.remember(into)
}

// asGitHubSaid leaves out of a recorded answer what GitHub's runner does not read, and what a proxy had put there.
func (p *player) asGitHubSaid(one exchange, recorded any) any {
	if one.route() != "POST /_services/run/acquirejob" {
		return recorded
	}
	job := recorded.(map[string]any)
	variables := job["variables"].(map[string]any)
	for name := range variables {
		if !slices.Contains(runnerVariables, name) && !slices.Contains(ownNames, name) {
			delete(variables, name)
		}
	}
	if len(p.skipped) > 0 { // of a job with actions: the stand-in's has scripts in their place
		for _, step := range job["steps"].([]any) {
			for name := range step.(map[string]any) {
				if name != "id" {
					delete(step.(map[string]any), name)
				}
			}
		}
	}
	for _, endpoint := range job["resources"].(map[string]any)["endpoints"].([]any) {
		delete(endpoint.(map[string]any)["data"].(map[string]any), "GenerateIdTokenUrl") // this job has not the permission
	}
	return job
}

// remember keeps what the next requests need.
func (p *player) remember(into any) {
	p.Helper()
	switch answer := into.(type) {
	case *oauthToken:
		require.Equal(p, "bearer", answer.TokenType)
		require.Positive(p, answer.ExpiresIn)
		p.runnerToken = answer.AccessToken
	case *registeredRunner:
		p.clientID = string(answer.Authorization.ClientID)
	case *agentMessage:
		kinds := map[string]any{"RunnerJobRequest": new(jobRequestRef), "JobCancellation": new(jobCancelMessage)}
		require.Contains(p, kinds, answer.Type)
		decoder := json.NewDecoder(strings.NewReader(answer.Body))
		decoder.DisallowUnknownFields()
		require.NoError(p, decoder.Decode(kinds[answer.Type]), answer.Body)
	case *jobMessage:
		p.rememberJob(answer)
	case *gitHubAuth:
		require.True(p, answer.UseV2Flow)
	}
}

func (p *player) rememberJob(job *jobMessage) {
	p.Helper()
	require.Len(p, job.Resources.Endpoints, 1)
	endpoint := job.Resources.Endpoints[0]
	require.Equal(p, "SystemVssConnection", endpoint.Name)
	require.Equal(p, "OAuth", endpoint.Authorization.Scheme)
	p.jobToken = string(endpoint.Authorization.Parameters.AccessToken)
	require.NotEmpty(p, endpoint.Data.ResultsServiceURL)
	require.NotEmpty(p, endpoint.Data.CacheServerURL)
	feed, err := url.Parse(string(endpoint.Data.FeedStreamURL))
	require.NoError(p, err)
	require.Equal(p, "ws", feed.Scheme, "GitHub's runner takes the scheme as it is")
	require.Empty(p, endpoint.Data.GenerateIDTokenURL, "the job has not the permission")
	claims, err := claimsOf(p.jobToken)
	require.NoError(p, err)
	require.Equal(p, job.Variables["system.orchestrationId"].Value, claims["orch_id"])
	for name := range job.Variables {
		require.True(p, slices.Contains(runnerVariables, name) || slices.Contains(ownNames, name), "unknown variable %s", name)
	}
	for _, name := range runnerVariables {
		require.Contains(p, job.Variables, name)
	}
}

// ownNames are the names on the wire that neither a recording nor a contract of GitHub's runner holds.
var ownNames = []string{
	"bullpen.job_timeout_minutes", "RunnerSessionConflict", "RunnerSessionRefused", "Unauthorized", "BadRequest",
}

// The documentation lists them.
func TestReplay_OwnNamesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	for _, name := range ownNames {
		require.Contains(t, string(page), "`"+name+"`")
	}
}
