package github_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func mint(ctx context.Context, client *github.Client, installation int64, name string) error {
	scope := fleet.Scope{Owner: "acme"}
	if installation == 43 {
		scope = fleet.Scope{Owner: "someone", Repo: "toy"}
	}
	_, err := client.Mint(ctx, installation, fleet.MintRequest{Scope: scope, Name: name, Labels: []string{"bullpen"}, WorkFolder: "_work"})
	return err
}

// An App has two keys while one is rotated. GitHub's answer decides when the new one is used, and no call fails in
// between.
func TestUseKey_NET3_RotatesWithoutAFailedCall(t *testing.T) {
	t.Parallel()
	local, client, _ := world(t)
	first, err := standin.ParseAppKey(local.AppKeyPEM)
	require.NoError(t, err)
	second, secondPEM, err := standin.GenerateAppKey()
	require.NoError(t, err)
	require.NoError(t, mint(t.Context(), client, 42, "bp-a-1"))

	// Not one of the App's (yet): the one in use stays, and serves an installation that has no token yet.
	require.ErrorIs(t, client.UseKey(t.Context(), secondPEM), github.ErrKeyRefused)
	require.NoError(t, mint(t.Context(), client, 43, "bp-b-1"))

	local.SetAppKeys(first, second)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.Installations(t.Context()); err != nil {
					t.Errorf("a call under way: %v", err)
					return
				}
			}
		})
	}
	require.NoError(t, client.UseKey(t.Context(), secondPEM))
	require.NoError(t, client.UseKey(t.Context(), local.AppKeyPEM))
	require.NoError(t, client.UseKey(t.Context(), secondPEM))
	cancel()
	await.Return(t, calls.Wait, "the concurrent calls return")

	local.SetAppKeys(second) // the old one is deleted in the App's settings
	_, err = client.Installations(t.Context())
	require.NoError(t, err)
	require.NoError(t, mint(t.Context(), client, 42, "bp-a-2"), "tokens outlive the key that asked for them")
	require.ErrorIs(t, client.UseKey(t.Context(), local.AppKeyPEM), github.ErrKeyRefused)
	_, err = client.Installations(t.Context())
	require.NoError(t, err)
}

func TestUseKey_WhatCannotBeProvenIsNotUsed(t *testing.T) {
	t.Parallel()
	local, _, _ := world(t)
	var down bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down && r.URL.Path == "/api/v3/app" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		local.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	client, err := github.New(github.Options{BaseURL: front.URL + "/api/v3", AppID: 1, PrivateKey: local.AppKeyPEM})
	require.NoError(t, err)

	for _, broken := range []string{"", "hunter2", "-----BEGIN RSA PRIVATE KEY-----\naHVudGVyMg==\n-----END RSA PRIVATE KEY-----\n"} {
		err := client.UseKey(t.Context(), []byte(broken))
		require.Error(t, err)
		require.NotErrorIs(t, err, github.ErrKeyRefused)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "aHVudGVyMg")
	}
	_, stranger, err := standin.GenerateAppKey()
	require.NoError(t, err)
	down = true
	require.ErrorIs(t, client.UseKey(t.Context(), stranger), fleet.ErrUncertain)
	require.NoError(t, client.UseKey(t.Context(), local.AppKeyPEM), "the key in use needs no proof")
	_, err = client.Installations(t.Context())
	require.NoError(t, err)
}
