package http_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// NET-6: a bad signature is refused before anything of the body is trusted, and nothing is stored.
func TestWebhook_NET6_BadSignatureStoresNothing(t *testing.T) {
	w := newWorld(t)
	for name, signature := range map[string]string{
		"none": "", "another secret": github.Sign("guess", []byte(queued(1))), "no hex": "sha256=zz", "sha1": "sha1=00",
	} {
		status, text := w.hook("workflow_job", queued(1), func(r *http.Request) {
			r.Header.Del(github.HeaderSignature)
			if signature != "" {
				r.Header.Set(github.HeaderSignature, signature)
			}
		})
		require.Equal(t, http.StatusUnauthorized, status, "%s: %s", name, text)
	}
	// Not even parsed: junk with a bad signature is answered like everything else with one.
	status, _ := w.hook("workflow_job", `{"trunc`, func(r *http.Request) { r.Header.Set(github.HeaderSignature, "sha256=00") })
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, fleet.JobAbsent, w.state(1))
}

// NET-6: while a secret is rotated no webhook is refused, whichever of the two GitHub knows, and a metric shows when the previous one is no
// longer used.
func TestWebhook_NET6_SecretIsRotatedWithoutALostWebhook(t *testing.T) {
	w := newWorld(t)
	next := int64(0)
	send := func(with string) int {
		next++
		body := queued(next)
		status, _ := w.hook("workflow_job", body, func(r *http.Request) {
			r.Header.Set(github.HeaderSignature, github.Sign(with, []byte(body)))
		})
		if status == http.StatusOK {
			require.Equal(t, fleet.JobQueued, w.state(next))
		} else {
			require.Equal(t, fleet.JobAbsent, w.state(next))
		}
		return status
	}
	signed := func() map[string]float64 {
		families, err := w.metrics.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, metric := range families[0].GetMetric() {
			got[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
		}
		return got
	}
	require.Equal(t, map[string]float64{"current": 0, "previous": 0}, signed())
	require.Equal(t, http.StatusOK, send(secret))
	require.Equal(t, http.StatusUnauthorized, send("next"))

	require.NoError(t, w.secrets.Set("next", secret)) // the Secret has both, GitHub still uses the old one
	require.Equal(t, http.StatusOK, send(secret))
	require.Equal(t, http.StatusOK, send("next")) // now it has
	require.Equal(t, http.StatusUnauthorized, send("guess"))
	require.Equal(t, map[string]float64{"current": 2, "previous": 1}, signed())

	require.NoError(t, w.secrets.Set("next", ""))
	require.Equal(t, http.StatusUnauthorized, send(secret))
	require.Equal(t, http.StatusOK, send("next"))
	require.NotContains(t, w.log.String(), "next")
}

func TestWebhook_BadInputGetsItsStatusAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	status, text := w.hook("star", `{"action":"created"}`)
	require.Equal(t, http.StatusAccepted, status)
	require.Contains(t, text, "ignored")

	status, _ = w.hook("workflow_job", queued(1)[:40])
	require.Equal(t, http.StatusBadRequest, status)

	status, _ = w.hook("workflow_job", strings.Repeat("x", github.MaxWebhookBody+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)

	status, _ = w.hook("workflow_job", strings.Replace(queued(1), `"queued"`, `"deleted"`, 1))
	require.Equal(t, http.StatusAccepted, status)
	status, _ = w.hook("workflow_job", strings.Replace(queued(1), `"installation":{"id":101}`, `"x":1`, 1))
	require.Equal(t, http.StatusAccepted, status)
	status, _ = w.hook("workflow_job", queued(1), func(r *http.Request) { r.Header.Del(github.HeaderDelivery) })
	require.Equal(t, http.StatusBadRequest, status)
	// A value that no index and no notification can carry would fail at every redelivery.
	long := `"` + strings.Repeat(rand.Text(), 400) + `"`
	status, text = w.hook("workflow_job", strings.Replace(queued(1), `"labels":[`, `"labels":[`+long+`,`, 1))
	require.Equal(t, http.StatusAccepted, status, text)
	require.Contains(t, text, "labels")
	require.Equal(t, fleet.JobAbsent, w.state(1))

	status, _ = w.hook("ping", `{"zen":"x"}`)
	require.Equal(t, http.StatusOK, status)
}

// A webhook's settings offer two content types. The signature is of the body as it is sent, and both hold the same payload.
func TestWebhook_R12_AFormIsTakenAsJSONIs(t *testing.T) {
	w := newWorld(t)
	form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
	status, text := w.hook("workflow_job", url.Values{"payload": {queued(1)}}.Encode(), form)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, fleet.JobQueued, w.state(1))
	for _, body := range []string{"payload=%zz", "other=1", queued(2)} {
		status, text = w.hook("workflow_job", body, form)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, text, "payload")
	}
	status, text = w.hook("workflow_job", url.Values{"payload": {queued(2)}}.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
	})
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "content type")
	require.Equal(t, fleet.JobAbsent, w.state(2))
}

// A webhook whose transaction fails is not acknowledged, and its redelivery makes it good.
func TestWebhook_NotCommittedIsNotAcknowledged(t *testing.T) {
	w := newWorld(t)
	w.intake.err = errors.New("the database went away")
	same := func(r *http.Request) { r.Header.Set(github.HeaderDelivery, "one-guid") }
	status, text := w.hook("workflow_job", queued(1), same)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotContains(t, text, "went away", "the cause is for the log")
	w.intake.err = nil
	status, _ = w.hook("workflow_job", queued(1), same)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, fleet.JobQueued, w.state(1))
	status, text = w.hook("workflow_job", queued(1), same)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "before")
}

// NET-6: a server that GitHub cannot reach has no secret to verify anything with, and accepts no webhook.
func TestWebhook_NET6_WithoutASecretThereIsNoWebhook(t *testing.T) {
	w := newWorld(t)
	payloads, err := intake.New(intake.Options{Store: w.intake})
	require.NoError(t, err)
	options := server.Options{
		Dispatcher: w.dispatcher, Intake: payloads, Identities: w, ControllerPrincipal: principal,
		Ready: func(context.Context) error { return nil },
	}
	_, err = server.New(options)
	require.ErrorContains(t, err, "secret")
	options.NoWebhooks = true
	srv, err := server.New(options)
	require.NoError(t, err)
	for _, signature := range []string{"", github.Sign("", []byte(queued(1)))} {
		request := httptest.NewRequest(http.MethodPost, "/webhooks/github", strings.NewReader(queued(1)))
		request.Header.Set(github.HeaderSignature, signature)
		request.Header.Set(github.HeaderEvent, "workflow_job")
		request.Header.Set(github.HeaderDelivery, "guid")
		answer := httptest.NewRecorder()
		srv.Public().ServeHTTP(answer, request)
		require.Equal(t, http.StatusNotFound, answer.Code)
	}
	require.Equal(t, fleet.JobAbsent, w.state(1))
}

func TestWebhook_InstallationMakesAnAccount(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("installation",
		`{"action":"created","installation":{"id":101,"account":{"id":1,"login":"acme","type":"Organization"}}}`)
	require.Equal(t, http.StatusOK, status)
	status, _ = w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	pod := w.pod("linux-a")
	status, text := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-"+pod.Name, struct{}{})
	require.Equal(t, http.StatusOK, status, text)
}

// TEN-3: what cannot be GitHub's is answered from its headers: its body never comes.
func TestWebhook_TEN3_IsRefusedByItsHeaders(t *testing.T) {
	w := newWorld(t)
	const large = "26214400" // 25 MiB
	signature := github.Sign("guess", nil)
	for name, c := range map[string]struct {
		headers map[string]string
		want    int
	}{
		"no signature":                {map[string]string{github.HeaderEvent: "workflow_job", "Content-Length": large}, http.StatusUnauthorized},
		"no signature, small":         {map[string]string{github.HeaderEvent: "workflow_job", "Content-Length": "10"}, http.StatusUnauthorized},
		"no length":                   {map[string]string{github.HeaderEvent: "workflow_job", "Transfer-Encoding": "chunked"}, http.StatusUnauthorized},
		"another algorithm":           {map[string]string{github.HeaderEvent: "workflow_job", github.HeaderSignature: "sha1=00", "Content-Length": large}, http.StatusUnauthorized},
		"a cut signature":             {map[string]string{github.HeaderEvent: "workflow_job", github.HeaderSignature: signature[:60], "Content-Length": large}, http.StatusUnauthorized},
		"too large":                   {map[string]string{github.HeaderEvent: "workflow_job", github.HeaderSignature: signature, "Content-Length": "26214401"}, http.StatusRequestEntityTooLarge},
		"an event of no use":          {map[string]string{github.HeaderEvent: "push", github.HeaderSignature: signature, "Content-Length": "65537"}, http.StatusRequestEntityTooLarge},
		"one of no use and no length": {map[string]string{github.HeaderEvent: "push", github.HeaderSignature: signature, "Transfer-Encoding": "chunked"}, http.StatusRequestEntityTooLarge},
		"no event":                    {map[string]string{github.HeaderSignature: signature, "Content-Length": large}, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, w)
			require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			require.NoError(t, begin(conn, c.headers))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			require.Equal(t, c.want, response.StatusCode)
		})
	}
}

// TEN-3: bodies of unknown senders share one bound. Past it a sender has to retry, and GitHub's own payloads, which are small, are accepted
// nevertheless.
func TestWebhook_TEN3_ManyLargeBodiesTakeNoRoomFromSmallOnes(t *testing.T) {
	w := newWorld(t)
	const size, senders = 8 << 20, 12 // 96 MiB
	answers := make(chan *http.Response, senders)
	var conns []net.Conn
	piece := make([]byte, size-1) // all but the last byte
	for range senders {
		conn := dial(t, w)
		conns = append(conns, conn)
		go func() { // ends with the connection
			if begin(conn, map[string]string{
				github.HeaderEvent: "workflow_job", github.HeaderSignature: github.Sign("guess", nil), "Content-Length": strconv.Itoa(size),
			}) == nil {
				_, _ = conn.Write(piece) // a refused one ends early
			}
			if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				answers <- response
			}
		}()
	}
	for range 4 { // 28 MiB are room for at most three
		response := await.Receive(t, answers, "a sender is refused")
		require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
		require.NotEmpty(t, response.Header.Get("Retry-After"))
		_ = response.Body.Close()
	}
	status, text := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status, text)

	for _, conn := range conns {
		_ = conn.Close()
	}
	body := strings.Replace(queued(2), `"name":"build"`, `"name":"build","padding":"`+strings.Repeat("x", size)+`"`, 1)
	require.Eventually(t, func() bool {
		status, _ := w.hook("workflow_job", body)
		return status == http.StatusOK
	}, await.Limit, 50*time.Millisecond, "there is room again")
	require.Equal(t, fleet.JobQueued, w.state(2))
}

// TEN-3: strangers that stall keep GitHub's payloads out for the second in which an honest body arrives, and not until their timeout.
func TestWebhook_TEN3_StalledBodiesGiveWay(t *testing.T) {
	w := newWorld(t)
	start := time.Now()
	w.stopped.Store(&start)
	body := strings.Replace(queued(1), `"name":"build"`, `"name":"build","padding":"`+strings.Repeat("x", 60<<10)+`"`, 1)
	const most = 400
	refused := make(chan *http.Response, most)
	for sent, full := 0, 0; full < 3; sent++ {
		require.Less(t, sent, most, "there is still room")
		conn := dial(t, w)
		go func() { // ends with the connection
			if begin(conn, map[string]string{
				github.HeaderEvent: "workflow_job", github.HeaderSignature: github.Sign("guess", nil), "Content-Length": "65536",
			}) == nil {
				_, _ = conn.Write(make([]byte, 32<<10+1)) // the server makes room for twice as much
			}
			if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_ = response.Body.Close()
				refused <- response
			}
		}()
		if status, _ := w.hook("workflow_job", body); status == http.StatusServiceUnavailable {
			full++ // by bodies that may yet arrive in time
		} else {
			full = 0
		}
	}
	for len(refused) > 0 {
		await.Receive(t, refused, "there was no room for this one")
	}

	later := start.Add(2 * time.Second)
	w.stopped.Store(&later)
	status, text := w.hook("workflow_job", body)
	require.Equal(t, http.StatusOK, status, text)
	response := await.Receive(t, refused, "a stalled sender is refused")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Retry-After"))
}

// TEN-3: strangers that take all connections of the public listener and send no bodies keep GitHub's webhooks out for a moment only.
func TestWebhook_TEN3_StalledConnectionsGiveWay(t *testing.T) {
	w := newWorld(t)
	front := httptest.NewUnstartedServer(w.public.Config.Handler)
	server, listener, err := httpserver.Public(front.Config.Handler, front.Listener)
	require.NoError(t, err)
	front.Config, front.Listener = server, listener
	front.Start()
	t.Cleanup(front.Close)
	w.public = front
	stall := func() {
		require.NoError(t, begin(dial(t, w), map[string]string{
			github.HeaderEvent: "workflow_job", github.HeaderSignature: github.Sign("guess", nil), "Content-Length": "10",
		}))
	}
	for range 300 { // of 256
		stall()
	}
	before := time.Now()
	status, text := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status, text)
	require.Less(t, time.Since(before), bodyTimeout/2)
}

// bodyTimeout is that of the server, for which a stalled body keeps its connection if no other client needs it.
const bodyTimeout = 20 * time.Second

func dial(t *testing.T, w *world) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.public.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(await.Limit)))
	return conn
}

// begin sends the headers of a webhook, and nothing of its body.
func begin(conn net.Conn, headers map[string]string) error {
	var text strings.Builder
	text.WriteString("POST /webhooks/github HTTP/1.1\r\nHost: bullpen\r\n" + github.HeaderDelivery + ": one-guid\r\n")
	for name, value := range headers {
		text.WriteString(name + ": " + value + "\r\n")
	}
	_, err := io.WriteString(conn, text.String()+"\r\n")
	return err
}
