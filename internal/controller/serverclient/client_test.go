package serverclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

func newClient(t *testing.T, handler http.HandlerFunc, batch int) (*Client, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("first\n"), 0o600))
	client, err := New(Options{BaseURL: server.URL + "/", TokenFile: token, Timeout: 5 * time.Second, Batch: batch})
	require.NoError(t, err)
	return client, token
}

func refs(uids ...string) []lifecycle.RunnerRef {
	var made []lifecycle.RunnerRef
	for _, uid := range uids {
		made = append(made, lifecycle.RunnerRef{Namespace: "ns", Name: "name-" + uid, UID: uid, Owner: "pool"})
	}
	return made
}

func verdicts(answers []lifecycle.Answer) []lifecycle.Verdict {
	var made []lifecycle.Verdict
	for _, a := range answers {
		made = append(made, a.Verdict)
	}
	return made
}

func TestAsk_AnswersInOrderAndInBatches(t *testing.T) {
	var requests atomic.Int32
	client, token := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		require.Equal(t, runnerapi.PathRetire, r.URL.Path)
		var request runnerapi.RetireRequest
		require.NoError(t, json.NewDecoder(r.Body).Decode(&request))
		require.LessOrEqual(t, len(request.Pods), 2)
		if requests.Load() == 1 {
			require.Equal(t, "Bearer first", r.Header.Get("Authorization"))
			require.Equal(t, runnerapi.PodRef{Namespace: "ns", Name: "name-a", UID: "a", Pool: "pool"}, request.Pods[0])
		}
		var response runnerapi.RetireResponse
		for i := range request.Pods { // backwards: the UID decides, not the place
			pod := request.Pods[len(request.Pods)-1-i]
			verdict := map[string]runnerapi.Verdict{"a": runnerapi.Granted, "b": runnerapi.Busy, "c": "maybe"}[pod.UID]
			response.Answers = append(response.Answers, runnerapi.RetireAnswer{UID: pod.UID, Verdict: verdict, Owner: "acme", State: "executing"})
		}
		require.NoError(t, json.NewEncoder(w).Encode(response))
	}, 2)
	answers := client.Ask(context.Background(), refs("a", "b", "c"))
	require.Equal(t, []lifecycle.Verdict{lifecycle.Granted, lifecycle.Busy, lifecycle.Unknown}, verdicts(answers))
	require.Contains(t, answers[1].Detail, "acme")
	require.EqualValues(t, 2, requests.Load())
	require.NoError(t, os.Remove(token))
	require.Equal(t, []lifecycle.Verdict{lifecycle.Unknown}, verdicts(client.Ask(context.Background(), refs("a"))), "EXCL-3: no token")
}

func TestAsk_EXCL3_WhateverGoesWrongIsUnknown(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"500":            answer(500, `{"error":"no database"}`),
		"401":            answer(401, `{"error":"wrong audience"}`),
		"404":            answer(404, "404 page not found"),
		"truncated":      answer(200, `{"answers":[{"uid":"a","verdict":"gran`),
		"nothing":        answer(200, `{}`),
		"another runner": answer(200, `{"answers":[{"uid":"b","verdict":"granted"}]}`),
		"another word":   answer(200, `{"answers":[{"uid":"a","verdict":"GRANTED"}]}`),
		"hangs up":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := newClient(t, handler, 0)
			answers := client.Ask(context.Background(), refs("a"))
			require.Equal(t, []lifecycle.Verdict{lifecycle.Unknown}, verdicts(answers))
			require.NotEmpty(t, answers[0].Detail)
		})
	}
	t.Run("and why, where the server says", func(t *testing.T) {
		client, _ := newClient(t, answer(200, `{"answers":[{"uid":"a","verdict":"unknown","reason":"the ledger is held"}]}`), 0)
		require.Equal(t, []lifecycle.Answer{{Verdict: lifecycle.Unknown, Detail: "the ledger is held"}}, client.Ask(context.Background(), refs("a")))
	})
	t.Run("a runner without UID", func(t *testing.T) {
		client, _ := newClient(t, answer(200, `{"answers":[{"uid":"","verdict":"granted"}]}`), 0)
		require.Equal(t, []lifecycle.Verdict{lifecycle.Unknown}, verdicts(client.Ask(context.Background(), refs(""))))
	})
	t.Run("too late", func(t *testing.T) {
		client, _ := newClient(t, answer(200, `{}`), 0)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.Equal(t, []lifecycle.Verdict{lifecycle.Unknown}, verdicts(client.Ask(ctx, refs("a"))))
	})
}

func TestReportStopped_POOL4_OnlyA2xxIsAReport(t *testing.T) {
	status := http.StatusServiceUnavailable
	client, token := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, runnerapi.PathPodsStopped, r.URL.Path)
		w.WriteHeader(status)
		if status >= 400 {
			_, _ = w.Write([]byte(`{"error":"no database: try again"}`))
		}
	}, 0)
	err := client.ReportStopped(context.Background(), runnerapi.PodStopped{})
	var refused *StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 503, refused.Status)
	require.ErrorContains(t, err, "no database")
	status = http.StatusNoContent
	require.NoError(t, client.ReportStopped(context.Background(), runnerapi.PodStopped{}))
	require.NoError(t, os.Remove(token))
	require.ErrorContains(t, client.ReportStopped(context.Background(), runnerapi.PodStopped{}), "reading the server token")
}

func TestNew_BadOptions(t *testing.T) {
	_, err := New(Options{BaseURL: "server:8080", TokenFile: "x"})
	require.ErrorContains(t, err, "write it like")
	_, err = New(Options{BaseURL: "http://server"})
	require.ErrorContains(t, err, "token file")
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{`{}`, `{"answers":[{"uid":"a","verdict":"granted"}]}`, `{"answers":null}`, `[]`, `{"answers":[{"uid":"a"}]}`} {
		f.Add([]byte(seed))
	}
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	f.Cleanup(server.Close)
	token := filepath.Join(f.TempDir(), "token")
	require.NoError(f, os.WriteFile(token, []byte("t"), 0o600))
	client, err := New(Options{BaseURL: server.URL, TokenFile: token})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, answer []byte) {
		body = answer
		got := client.Ask(context.Background(), refs("a", "b"))
		require.Len(t, got, 2)
		if got[0].Verdict == lifecycle.Granted {
			require.True(t, json.Valid(answer))
		}
	})
}

// EXCL-3: an intermediary may redirect a request; its response is not the server's.
func TestClient_EXCL3_FollowsNoRedirect(t *testing.T) {
	var visits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		client, _ := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(status)
		}, 0)
		require.Error(t, client.ReportStopped(t.Context(), runnerapi.PodStopped{}), "told nobody")
		require.Equal(t, []lifecycle.Verdict{lifecycle.Unknown}, verdicts(client.Ask(t.Context(), refs("a"))))
	}
	require.Zero(t, visits.Load())
}

// NET-5: the token is for the server alone.
func TestClient_UsesNoProxy(t *testing.T) {
	client, _ := newClient(t, nil, 0)
	require.Nil(t, client.http.Transport.(*http.Transport).Proxy)
}

// POOL-7: that a runner is lost reaches the server, and the proof comes back; an answer without one carries none.
func TestAsk_POOL7_LostGoesThereAndProofComesBack(t *testing.T) {
	client, _ := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		var request runnerapi.RetireRequest
		require.NoError(t, json.NewDecoder(r.Body).Decode(&request))
		var response runnerapi.RetireResponse
		for _, pod := range request.Pods {
			answer := runnerapi.RetireAnswer{UID: pod.UID, Verdict: runnerapi.Granted}
			if pod.Lost {
				answer.Proof = "GitHub said so"
			}
			if pod.UID == "c" {
				answer.Verdict, answer.Proof = runnerapi.Unknown, ""
			}
			response.Answers = append(response.Answers, answer)
		}
		require.NoError(t, json.NewEncoder(w).Encode(response))
	}, 10)
	asked := refs("a", "b", "c")
	asked[1].Lost, asked[2].Lost = true, true
	answers := client.Ask(context.Background(), asked)
	require.Equal(t, lifecycle.Answer{Verdict: lifecycle.Granted}, answers[0])
	require.Equal(t, lifecycle.Answer{Verdict: lifecycle.Granted, Proof: "GitHub said so"}, answers[1])
	require.Equal(t, lifecycle.Unknown, answers[2].Verdict)
	require.Contains(t, answers[2].Detail, "is not confirmed yet")
}
