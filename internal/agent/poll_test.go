package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	jitText  = "c2VjcmV0LWppdA=="
	jitReply = `{"jit_config":"` + jitText + `","runner_name":"bp-x-1","generation":7}`
)

// dispatcher returns the given answers to polls one after the other, then 204, and remembers the requests.
type dispatcher struct {
	*httptest.Server
	mu      sync.Mutex
	answers []http.HandlerFunc
	polls   int
	tokens  []string
	numbers []int64
	acks    []int64
	ack     http.HandlerFunc
}

func newDispatcher(t *testing.T, answers ...http.HandlerFunc) *dispatcher {
	t.Helper()
	d := &dispatcher{answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+runnerapi.PathDispatch, d.poll)
	mux.HandleFunc("POST "+runnerapi.PathAcknowledge, d.acknowledge)
	d.Server = httptest.NewServer(mux)
	t.Cleanup(d.Close)
	return d
}

func (d *dispatcher) poll(w http.ResponseWriter, r *http.Request) {
	var body runnerapi.Poll
	_ = json.NewDecoder(r.Body).Decode(&body)
	_, _ = io.Copy(io.Discard, r.Body)
	d.mu.Lock()
	d.numbers = append(d.numbers, body.Sequence)
	d.tokens = append(d.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	answer := reply(http.StatusNoContent, "")
	if d.polls < len(d.answers) {
		answer = d.answers[d.polls]
	}
	d.polls++
	d.mu.Unlock()
	answer(w, r)
}

func (d *dispatcher) acknowledge(w http.ResponseWriter, r *http.Request) {
	var body runnerapi.Acknowledge
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	d.acks = append(d.acks, body.Generation)
	answer := d.ack
	d.mu.Unlock()
	if answer == nil {
		answer = reply(http.StatusNoContent, "")
	}
	answer(w, r)
}

func reply(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// seen is what the server was asked so far.
func (d *dispatcher) seen() (polls int, tokens []string, acks []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.polls, slices.Clone(d.tokens), slices.Clone(d.acks)
}

func (d *dispatcher) pollCount() int        { polls, _, _ := d.seen(); return polls }
func (d *dispatcher) acknowledged() []int64 { _, _, acks := d.seen(); return acks }

// pod is a poller's surroundings, whose waiting times are recorded instead of waited for.
type pod struct {
	options PollOptions
	waits   []time.Duration
	log     bytes.Buffer
}

func newPod(t *testing.T, d *dispatcher) *pod {
	t.Helper()
	dir := t.TempDir()
	p := &pod{}
	p.options = PollOptions{
		URL: d.URL, TokenFile: filepath.Join(dir, "token"), JITFile: filepath.Join(dir, "jitconfig"),
		RunnerUID: -1, RunnerGID: -1, Timeout: 10 * time.Second, Random: func() float64 { return 0 },
		Now: func() time.Time { return time.Unix(0, 0) },
		Log: slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Sleep: func(ctx context.Context, d time.Duration) error {
			p.waits = append(p.waits, d)
			return ctx.Err()
		},
	}
	require.NoError(t, os.WriteFile(p.options.TokenFile, []byte("token-one\n"), 0o600))
	touch(filesIn(p.options.JITFile, "").idle) // the supervisor waits
	return p
}

func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func TestPoll_StagesAcknowledgesAndNeverAsksAgain(t *testing.T) {
	d := newDispatcher(t, reply(204, ""), reply(200, jitReply))
	p := newPod(t, d)
	require.NoError(t, Poll(t.Context(), p.options))
	staged, err := os.ReadFile(p.options.JITFile)
	require.NoError(t, err)
	require.Equal(t, jitText, string(staged))
	info, err := os.Stat(p.options.JITFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Equal(t, []int64{7}, d.acknowledged())
	require.Equal(t, 2, d.pollCount())

	require.NoError(t, Poll(t.Context(), p.options), "started again")
	require.NoError(t, os.Rename(p.options.JITFile, p.options.JITFile+".taken"))
	require.NoError(t, Poll(t.Context(), p.options), "started again, after the runner took it")
	require.Equal(t, 2, d.pollCount())
}

func TestPoll_CLAIM7_LostAndBrokenAnswersArePolledForAgain(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "500")
		_, _ = io.WriteString(w, jitReply[:20])
	}
	d := newDispatcher(t,
		cut,
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		reply(200, ``), reply(200, `<html>`), reply(200, `{}`), reply(200, `{"jit_config":"not base64!"}`),
		reply(200, `{"jit_config":"`+strings.Repeat("A", maxJIT)+`"}`),
		reply(500, `{"error":"x"}`), reply(404, ``), reply(201, jitReply),
		reply(200, jitReply),
	)
	p := newPod(t, d)
	require.NoError(t, Poll(t.Context(), p.options))
	require.Equal(t, 11, d.pollCount())
	require.Equal(t, []int64{7}, d.acknowledged(), "only what was staged is acknowledged")
	staged, err := os.ReadFile(p.options.JITFile)
	require.NoError(t, err)
	require.Equal(t, jitText, string(staged))
}

func TestPoll_StatusesThatEndIt(t *testing.T) {
	for status, want := range map[int]int{410: 0, 401: 1, 403: 1} {
		d := newDispatcher(t, reply(204, ""), reply(status, `{"error":"no"}`))
		p := newPod(t, d)
		require.Equal(t, want, code(t, Poll(t.Context(), p.options)))
		staged, err := os.ReadFile(p.options.JITFile)
		require.NoError(t, err, "the runner's container has to end too")
		require.Empty(t, staged)
		require.Equal(t, 2, d.pollCount())
		require.Empty(t, d.acknowledged())
	}
}

// CLAIM-7: the server knows by its number which of two requests came first: also when the clock stands still or goes back,
// and across a restart of the poller.
func TestPoll_CLAIM7_EachRequestHasALargerNumber(t *testing.T) {
	now := time.UnixMicro(1_800_000_000_000_000)
	clock := []time.Duration{0, 0, -time.Hour, 0, time.Second, time.Second}
	var numbers []int64
	for range 2 {
		answers := make([]http.HandlerFunc, 5)
		for i := range answers {
			answers[i] = reply(204, "")
		}
		d := newDispatcher(t, append(answers, reply(401, ""))...)
		p := newPod(t, d)
		p.options.Now = func() time.Time {
			polls := d.pollCount()
			return now.Add(clock[min(polls, len(clock)-1)])
		}
		require.Error(t, Poll(t.Context(), p.options))
		numbers = append(numbers, d.numbers...)
		now = now.Add(time.Minute)
	}
	require.Len(t, numbers, 12)
	require.True(t, slices.IsSortedFunc(numbers, func(a, b int64) int {
		if a < b {
			return -1
		}
		return 1
	}), "%v", numbers)
}

func TestPoll_ReadsTheTokenAgain(t *testing.T) {
	var p *pod
	rotate := func(w http.ResponseWriter, _ *http.Request) {
		_ = os.WriteFile(p.options.TokenFile, []byte("token-two"), 0o600)
		w.WriteHeader(204)
	}
	vanish := func(w http.ResponseWriter, _ *http.Request) {
		_ = os.Remove(p.options.TokenFile)
		w.WriteHeader(204)
	}
	d := newDispatcher(t, rotate, vanish, reply(410, ""))
	p = newPod(t, d)
	sleeps := 0
	p.options.Sleep = func(context.Context, time.Duration) error {
		if sleeps++; sleeps == 3 { // after the poll that found no token
			return os.WriteFile(p.options.TokenFile, []byte("token-three"), 0o600)
		}
		return nil
	}
	require.NoError(t, Poll(t.Context(), p.options))
	_, tokens, _ := d.seen()
	require.Equal(t, []string{"token-one", "token-two", "token-three"}, tokens)
}

func TestPoll_StagingThatFailsIsVisibleAndNotAcknowledged(t *testing.T) {
	d := newDispatcher(t, reply(200, jitReply))
	p := newPod(t, d)
	// A directory in its place: rename onto it fails, for root too.
	blocked := filepath.Join(filepath.Dir(p.options.JITFile), "gone", "jitconfig")
	p.options.JITFile = blocked
	require.NoError(t, os.MkdirAll(filepath.Dir(blocked), 0o700))
	touch(filesIn(blocked, "").idle)
	d.answers[0] = func(w http.ResponseWriter, r *http.Request) {
		_ = os.RemoveAll(filepath.Dir(blocked))
		reply(200, jitReply)(w, r)
	}
	err := Poll(t.Context(), p.options)
	require.Equal(t, 1, code(t, err))
	require.ErrorContains(t, err, "storing the server's response")
	require.Empty(t, d.acknowledged())
	require.Equal(t, 1, d.pollCount())
	require.NotContains(t, err.Error(), jitText)
}

// Without an empty file the runner's container would wait forever, and a pod whose poller has ended is never removed.
func TestPoll_StagingThatFailsEndsThePod(t *testing.T) {
	d := newDispatcher(t, nil)
	p := newPod(t, d)
	d.answers[0] = func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{p.options.JITFile, filesIn(p.options.JITFile, "").staged} {
			_ = os.MkdirAll(filepath.Join(name, "in the way"), 0o700) // a rename onto it fails, for root too
		}
		reply(200, jitReply)(w, r)
	}
	p.options.Sleep = func(_ context.Context, wait time.Duration) error {
		p.waits = append(p.waits, wait)
		return os.RemoveAll(p.options.JITFile)
	}
	require.Equal(t, 1, code(t, Poll(t.Context(), p.options)))
	staged, err := os.ReadFile(p.options.JITFile)
	require.NoError(t, err)
	require.Empty(t, staged)
	require.Equal(t, []time.Duration{endPause}, p.waits)
	require.Empty(t, d.acknowledged())
}

// signWriter says when a text has been written.
type signWriter struct {
	text string
	seen chan struct{}
}

func (s signWriter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(s.text)) {
		s.seen <- struct{}{}
	}
	return len(line), nil
}

// A job fetched for a container that is still being pulled, or has ended, would never run.
func TestPoll_AsksOnlyWhileTheRunnersContainerWaits(t *testing.T) {
	asked := make(chan struct{}, 4)
	var idle string
	d := newDispatcher(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = os.Remove(idle) // the supervisor ends
		asked <- struct{}{}
		w.WriteHeader(204)
	}, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(410)
	})
	p := newPod(t, d)
	waits := signWriter{text: "waiting for the runner's container", seen: make(chan struct{}, 4)}
	p.options.Log = slog.New(slog.NewTextHandler(waits, nil))
	idle = filesIn(p.options.JITFile, "").idle
	require.NoError(t, os.Remove(idle))
	ended := make(chan error, 1)
	go func() { ended <- Poll(t.Context(), p.options) }()
	for range 2 {
		select {
		case <-waits.seen:
		case <-asked:
			t.Fatal("it asked for work that nobody would run")
		case <-time.After(await.Limit):
			t.Fatal("it does not wait for the runner's container")
		}
		touch(idle)
		await.Receive(t, asked, "the agent asks for work")
	}
	require.NoError(t, await.Receive(t, ended, "the poller returns"))
}

func TestPoll_StopWhileItWaitsForTheRunnersContainer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newDispatcher(t)
	p := newPod(t, d)
	require.NoError(t, os.Remove(filesIn(p.options.JITFile, "").idle))
	ended := make(chan error, 1)
	go func() { ended <- Poll(ctx, p.options) }()
	cancel()
	require.Equal(t, 143, code(t, await.Receive(t, ended, "the poller returns")))
	require.Zero(t, d.pollCount())
}

func TestPoll_AcknowledgementIsBestEffort(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"fails": reply(500, ""), "cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDispatcher(t, reply(200, jitReply))
			d.ack = answer
			p := newPod(t, d)
			require.NoError(t, Poll(t.Context(), p.options))
			require.Len(t, d.acknowledged(), ackAttempts)
			require.FileExists(t, p.options.JITFile)
		})
	}
	for _, final := range []int{409, 410} {
		d := newDispatcher(t, reply(200, jitReply))
		d.ack = reply(final, "")
		require.NoError(t, Poll(t.Context(), newPod(t, d).options))
		require.Len(t, d.acknowledged(), 1, "a later answer has replaced it, asking again changes nothing")
	}
}

func TestPoll_Waits(t *testing.T) {
	d := newDispatcher(t,
		reply(204, ""), reply(503, "", "Retry-After", "7"), reply(429, "", "Retry-After", "86400"), reply(503, ""),
		reply(500, ""), reply(204, ""), reply(500, ""), reply(410, ""))
	p := newPod(t, d)
	p.options.Random = func() float64 { return 0.5 }
	require.NoError(t, Poll(t.Context(), p.options))
	ms := time.Millisecond
	require.Equal(t, []time.Duration{
		510 * ms,        // 204 at once: spaced
		7500 * ms,       // as asked, spread
		60500 * ms,      // as asked, within reason
		10*ms + 500*ms,  // half of 250 ms · 2²
		10*ms + 1000*ms, // twice that
		510 * ms,        // an answer ends the row of failures
		10*ms + 125*ms,
	}, p.waits)
}

func TestPoll_HeldPollIsRepeatedAtOnce(t *testing.T) {
	d := newDispatcher(t, reply(204, ""), reply(410, ""))
	p := newPod(t, d)
	now := time.Unix(0, 0)
	p.options.Now = func() time.Time { now = now.Add(25 * time.Second); return now }
	require.NoError(t, Poll(t.Context(), p.options))
	require.Equal(t, []time.Duration{0}, p.waits)
}

func TestPause_NeverBeyondItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &poller{failures: rapid.IntRange(0, 1<<30).Draw(t, "failures")}
		p.Log = slog.New(slog.DiscardHandler)
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		p.Random = func() float64 { return random }
		kind := rapid.SampledFrom([]answerKind{answerFailed, answerNone, answerLater}).Draw(t, "kind")
		after := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "after"))
		wait := p.pause(result{kind: kind, after: after}, time.Duration(rapid.Int64().Draw(t, "took")))
		if wait < 0 || wait > longestAsked+time.Second {
			t.Fatalf("a pause of %s", wait)
		}
	})
}

func TestPoll_FollowsNoRedirect(t *testing.T) {
	var leaked []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked = append(leaked, r.Header.Get("Authorization"))
		reply(200, jitReply)(w, r)
	}))
	t.Cleanup(other.Close)
	d := newDispatcher(t, reply(307, "", "Location", other.URL), reply(302, "", "Location", other.URL), reply(410, ""))
	p := newPod(t, d)
	require.NoError(t, Poll(t.Context(), p.options))
	require.Empty(t, leaked)
	require.Equal(t, 3, d.pollCount())
}

func TestPoll_StopBeforeAnAnswerStagesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newDispatcher(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	p := newPod(t, d)
	require.Equal(t, 143, code(t, Poll(ctx, p.options)), "its end must not look like an answer that was delivered")
	require.NoFileExists(t, p.options.JITFile)
	require.Equal(t, 1, d.pollCount())
}

func TestPoll_StopAfterAnAnswerStillDeliversIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newDispatcher(t, reply(200, jitReply))
	d.ack = func(w http.ResponseWriter, r *http.Request) {
		cancel()
		w.WriteHeader(500)
	}
	p := newPod(t, d)
	require.NoError(t, Poll(ctx, p.options))
	require.FileExists(t, p.options.JITFile)
	require.Len(t, d.acknowledged(), ackAttempts)
}

func TestPoll_NET3_ShowsNeitherTokenNorConfiguration(t *testing.T) {
	d := newDispatcher(t, reply(200, `{"jit_config":"!`+jitText+`"}`), reply(200, jitText), reply(500, jitText), reply(200, jitReply))
	d.ack = reply(500, jitText)
	p := newPod(t, d)
	require.NoError(t, Poll(t.Context(), p.options))
	require.NotContains(t, p.log.String(), jitText)
	require.NotContains(t, p.log.String(), "token-one")
	require.Contains(t, p.log.String(), "bp-x-1")
	entries, err := os.ReadDir(filepath.Dir(p.options.JITFile))
	require.NoError(t, err)
	require.Len(t, entries, 3, "the token, the supervisor's sign and the staged file, no copy beside them")
}

func TestPoll_BadOptionsAreExplained(t *testing.T) {
	d := newDispatcher(t)
	for want, change := range map[string]func(*PollOptions){
		"server URL": func(o *PollOptions) { o.URL = "bullpen:80" },
		"token":      func(o *PollOptions) { o.TokenFile = "" },
		"shared":     func(o *PollOptions) { o.JITFile = "" },
	} {
		options := newPod(t, d).options
		change(&options)
		err := Poll(t.Context(), options)
		require.Equal(t, 1, code(t, err))
		require.ErrorContains(t, err, want)
	}
	require.Zero(t, d.pollCount())
}
