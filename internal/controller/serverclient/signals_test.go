package serverclient

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

const whole = `{"at":"2026-01-02T03:04:05Z","pools":[{"namespace":"r","name":"a","occupied":3,"claimed":2,"queued":1,
	"blocked":{"account_limit":4,"a newer reason":1},"p95_last_hour":5,"oldest_queued":"2026-01-02T03:04:00Z","newer":{}},
	{"namespace":"r","name":"b"}],"removals":[{"pod":{"namespace":"r","name":"p","uid":"u","pool":"a"},"proof":"it completed"}],"newer":1}`

func TestSignals(t *testing.T) {
	client, _ := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, http.MethodGet, r.Method)
		require.Equal(t, runnerapi.PathSignals, r.URL.Path)
		require.Equal(t, "Bearer first", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(whole))
	}, 0)
	oldest := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	got, err := client.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, runnerapi.Signals{
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Pools: []runnerapi.PoolSignals{{
			Namespace: "r", Name: "a", Occupied: 3, Claimed: 2, Queued: 1, P95LastHour: 5, OldestQueued: &oldest,
			Blocked: map[runnerapi.BlockedReason]int{runnerapi.BlockedLimit: 4, "a newer reason": 1},
		}, {Namespace: "r", Name: "b"}},
		Removals: []runnerapi.Removal{{
			Pod: runnerapi.PodRef{Namespace: "r", Name: "p", UID: "u", Pool: "a"}, Proof: "it completed",
		}},
	}, got)
}

// POOL-8: an answer that is not whole is no answer.
func TestSignals_POOL8_WhatIsNotWholeIsAnError(t *testing.T) {
	pool := func(fields string) string { return `{"at":"2026-01-02T03:04:05Z","pools":[{` + fields + `}]}` }
	for name, body := range map[string]string{
		"nothing":                        ``,
		"a page":                         `<html>log in</html>`,
		"an empty object":                `{}`,
		"no time":                        `{"pools":[]}`,
		"zero time":                      `{"at":"0001-01-01T00:00:00Z","pools":[]}`,
		"no pools":                       `{"at":"2026-01-02T03:04:05Z"}`,
		"null pools":                     `{"at":"2026-01-02T03:04:05Z","pools":null}`,
		"cut off":                        whole[:len(whole)-2],
		"two answers":                    whole + whole,
		"a pool without name":            pool(`"namespace":"r"`),
		"a pool of nowhere":              pool(`"name":"a"`),
		"a pool twice":                   pool(`"namespace":"r","name":"a"},{"namespace":"r","name":"a"`),
		"negative queued":                pool(`"namespace":"r","name":"a","queued":-1`),
		"negative occupied":              pool(`"namespace":"r","name":"a","occupied":-1`),
		"negative claimed":               pool(`"namespace":"r","name":"a","claimed":-1`),
		"negative p95":                   pool(`"namespace":"r","name":"a","p95_last_hour":-1`),
		"negative blocked":               pool(`"namespace":"r","name":"a","blocked":{"suspended":-1}`),
		"more than there can be":         pool(`"namespace":"r","name":"a","queued":9223372036854775807`),
		"more blocked than there can be": pool(`"namespace":"r","name":"a","blocked":{"suspended":9223372036854775807}`),
		"a fraction":                     pool(`"namespace":"r","name":"a","queued":1.5`),
		"a removal of nothing":           `{"at":"2026-01-02T03:04:05Z","pools":[],"removals":[{"proof":"x"}]}`,
		"a removal without proof":        `{"at":"2026-01-02T03:04:05Z","pools":[],"removals":[{"pod":{"namespace":"r","name":"p","uid":"u"}}]}`,
		"larger than any":                `{"at":"2026-01-02T03:04:05Z","pools":[]}` + strings.Repeat(" ", maxAnswer),
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := newClient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }, 0)
			got, err := client.Signals(t.Context())
			require.ErrorIs(t, err, ErrBadAnswer)
			require.Zero(t, got)
		})
	}
	t.Run("refused", func(t *testing.T) {
		client, _ := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":"the ledger could not be asked"}`))
		}, 0)
		_, err := client.Signals(t.Context())
		var refused *StatusError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusServiceUnavailable, refused.Status)
		require.ErrorContains(t, err, "the ledger could not be asked")
	})
	t.Run("sent elsewhere", func(t *testing.T) {
		client, _ := newClient(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, 0)
		_, err := client.Signals(t.Context())
		require.Error(t, err)
	})
	t.Run("nobody there, no token", func(t *testing.T) {
		client, token := newClient(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0)
		_, err := client.Signals(context.Background())
		require.ErrorContains(t, err, "asking the server")
		require.NoError(t, os.Remove(token))
		_, err = client.Signals(t.Context())
		require.ErrorContains(t, err, "reading the server token")
	})
}

func FuzzSignals(f *testing.F) {
	for _, seed := range []string{whole, `{}`, `{"at":"2026-01-02T03:04:05Z","pools":[]}`, `[]`, `{"pools":[{"queued":-1}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		signals, err := decodeSignals(content)
		if err != nil {
			require.Zero(t, signals)
			return
		}
		require.False(t, signals.At.IsZero())
		require.NotNil(t, signals.Pools)
		for _, p := range signals.Pools {
			require.NotEmpty(t, p.Name)
			require.GreaterOrEqual(t, min(p.Occupied, p.Claimed, p.Queued, p.P95LastHour), 0)
			for _, n := range p.Blocked {
				require.GreaterOrEqual(t, n, 0)
			}
		}
		for _, r := range signals.Removals {
			require.NotEmpty(t, r.Pod.UID)
			require.NotEmpty(t, r.Proof)
		}
	})
}
