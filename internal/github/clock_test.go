package github_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// watched counts the refusals of a client's calls, and keeps the latest JWT that it has sent.
type watched struct {
	refused atomic.Int64
	latest  atomic.Pointer[string]
}

func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	if text, isJWT := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); isJWT {
		w.latest.Store(&text)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		w.refused.Add(1)
	}
	return resp, err
}

// ahead is a client whose host's clock is ahead of GitHub's.
func ahead(t *testing.T, local *standin.Local, by time.Duration) (*github.Client, *watched) {
	t.Helper()
	seen := &watched{}
	client, err := github.New(github.Options{
		BaseURL: local.URL + "/api/v3", AppID: 1, PrivateKey: local.AppKeyPEM, Transport: seen,
		Now: func() time.Time { return time.Now().Add(by) },
	})
	require.NoError(t, err)
	return client, seen
}

// GitHub refuses a JWT that was issued in its future, that has ended, or that ends too far from now. A host's clock may be ten minutes off either
// way: the refusal itself says what time it is, and no caller sees it.
func TestClient_R13_TheHostsClockMayBeTenMinutesOff(t *testing.T) {
	t.Parallel()
	local, _, _ := world(t)
	for minutes := -10; minutes <= 10; minutes++ {
		by := time.Duration(minutes) * time.Minute
		for first, call := range map[string]func(*github.Client) error{
			"read": func(client *github.Client) error {
				_, err := client.App(t.Context())
				return err
			},
			"token": func(client *github.Client) error { // a POST
				return mint(t.Context(), client, 42, fmt.Sprintf("bp-clock-%d", minutes))
			},
		} {
			t.Run(fmt.Sprint(by, " ", first), func(t *testing.T) {
				client, seen := ahead(t, local, by)
				require.NoError(t, call(client))
				_, err := client.Installations(t.Context())
				require.NoError(t, err)
				require.LessOrEqual(t, seen.refused.Load(), int64(1), "GitHub's clock is known after the first answer")
				if by > -8*time.Minute && by < time.Minute {
					require.Zero(t, seen.refused.Load(), "a small difference costs nothing")
				}
				var claims jwt.RegisteredClaims
				_, _, err = jwt.NewParser().ParseUnverified(*seen.latest.Load(), &claims)
				require.NoError(t, err)
				require.WithinDuration(t, time.Now().Add(-time.Minute), claims.IssuedAt.Time, 10*time.Second, "a minute before GitHub's time")
				require.LessOrEqual(t, claims.ExpiresAt.Sub(claims.IssuedAt.Time), 10*time.Minute)
			})
		}
	}
}

// Many concurrent calls that were all signed by the wrong clock are all repeated, whichever answer comes
// first.
func TestClient_R13_CallsAtTheSameTimeAllLearnIt(t *testing.T) {
	t.Parallel()
	local, _, _ := world(t)
	client, _ := ahead(t, local, 10*time.Minute)
	var calls errgroup.Group
	for range 16 {
		calls.Go(func() error {
			_, err := client.App(t.Context())
			return err
		})
	}
	require.NoError(t, await.Call(t, calls.Wait, "all calls return"))
}

// A clock that is corrected, or becomes wrong, while the client works is followed, too.
func TestClient_R13_AClockThatJumpsIsFollowed(t *testing.T) {
	t.Parallel()
	var jump atomic.Int64
	local, err := standin.Start(t.Context(), standin.Options{
		Installations: []standin.Installation{{ID: 42, Account: "acme", Repositories: []string{"app"}}},
		Now:           func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
	})
	require.NoError(t, err)
	t.Cleanup(local.Close)
	client, _ := ahead(t, local, 0)
	for i, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, time.Hour, 0} {
		jump.Store(int64(by))
		_, err := client.App(t.Context())
		require.NoError(t, err, "jump %d", i)
	}
}
