package serverclient

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

func TestDemand_POOL8_WhatCannotBeUsedIsNoAnswer(t *testing.T) {
	status, body := http.StatusOK, ""
	var asked runnerapi.DemandRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, runnerapi.PathDemand, r.URL.Path)
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		require.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("secret\n"), 0o600))
	client, err := New(Options{BaseURL: server.URL, TokenFile: tokenFile, Timeout: 5 * time.Second})
	require.NoError(t, err)
	targets := []runnerapi.DemandTarget{
		{Key: "a", Organization: "acme", Labels: []string{"gpu"}, Most: 3}, {Key: "b", Repository: "acme/app", Labels: []string{}, Seen: []int64{7}},
	}

	body = `{"targets":[{"key":"b","sees":false,"queued":[],"running":[],"settled":[7]},{"key":"a","sees":true,"more":true,
		"queued":[{"id":1,"repository":"acme/app","since":"2026-01-02T03:04:05Z","queued_at":"2026-01-02T03:04:05Z"}],"running":[]}]}`
	got, err := client.Demand(t.Context(), targets)
	require.NoError(t, err)
	require.Equal(t, targets, asked.Targets)
	require.Equal(t, []string{"a", "b"}, []string{got[0].Key, got[1].Key}, "in the order asked")
	require.True(t, got[0].More)
	require.Equal(t, int64(1), got[0].Queued[0].ID)
	require.Equal(t, []int64{7}, got[1].Settled)

	for _, bad := range []string{
		``, `[]`, `{}`, `{"targets":[]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]}]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]},{"key":"b","queued":[]}]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]},{"key":"b","running":[]}]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]},{"key":"b","queued":[],"running":[]},{"key":"b","queued":[],"running":[]}]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]},{"key":"b","queued":[{"id":0,"repository":"x"}],"running":[]}]}`,
		`{"targets":[{"key":"a","queued":[],"running":[]},{"key":"b","queued":[],"running":[{"id":4}]}]}`,
	} {
		body = bad
		_, err = client.Demand(t.Context(), targets)
		require.ErrorIs(t, err, ErrBadAnswer, "%s", bad)
	}
	status, body = http.StatusServiceUnavailable, `{"error":"the ledger could not be asked"}`
	_, err = client.Demand(t.Context(), targets)
	var refused *StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "the ledger could not be asked", refused.Message)
}
