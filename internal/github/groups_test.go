package github

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func TestRunnerGroup_IsLookedUpOnceWhateverItsCase(t *testing.T) {
	clk := newClock()
	var pages sync.Map
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		pages.Store(r.URL.Path+"?"+r.URL.RawQuery, true)
		if r.URL.Query().Get("page") == "2" {
			_, _ = io.WriteString(w, `{"total_count":2,"runner_groups":[{"id":9,"name":"Big Iron"}]}`)
			return
		}
		w.Header().Set("Link", `<https://x/?page=2>; rel="next"`)
		_, _ = io.WriteString(w, `{"total_count":2,"runner_groups":[{"id":1,"name":"Default"}]}`)
	})
	client := newTestClient(t, f, func(o *Options) { o.Now = clk.read })
	for _, name := range []string{"big iron", "Big Iron", "BIG IRON"} {
		id, err := client.RunnerGroup(t.Context(), 42, enterprise, name)
		require.NoError(t, err)
		require.Equal(t, int64(9), id)
	}
	require.Equal(t, int64(2), f.calls.Load())
	_, ok := pages.Load("/api/v3/enterprises/big/actions/runner-groups?page=2&per_page=100")
	require.True(t, ok)
	id, err := client.RunnerGroup(t.Context(), 42, org, "")
	require.NoError(t, err)
	require.Equal(t, int64(1), id, "nothing is asked about the default one")
	require.Equal(t, int64(2), f.calls.Load())

	for range 3 {
		_, err = client.RunnerGroup(t.Context(), 42, org, "no such")
		require.ErrorIs(t, err, fleet.ErrNoRunnerGroup)
	}
	require.Equal(t, int64(4), f.calls.Load(), "one that is missing is not asked for each time")
	clk.set(clk.after(61))
	_, err = client.RunnerGroup(t.Context(), 42, org, "no such")
	require.ErrorIs(t, err, fleet.ErrNoRunnerGroup)
	require.Equal(t, int64(6), f.calls.Load(), "it may have been made since")
	_, err = client.RunnerGroup(t.Context(), 42, repo, "x")
	require.ErrorIs(t, err, fleet.ErrRejected)

	client.ForgetRunnerGroup(42, enterprise, "BIG iron")
	_, err = client.RunnerGroup(t.Context(), 42, enterprise, "big iron")
	require.NoError(t, err)
	require.Equal(t, int64(8), f.calls.Load())
}

// A runner is registered in the group of that name. Where GitHub refuses it, whether the group is there is asked: its answer does not tell.
func TestMint_RunnerGroupByName(t *testing.T) {
	for name, c := range map[string]struct {
		groups string // at the time of the refusal
		status int
		want   error
		not    error
	}{
		"registered":                   {`{"id":9,"name":"Builders"}`, 201, nil, nil},
		"the group is gone":            {`{"id":1,"name":"Default"}`, 404, fleet.ErrNoRunnerGroup, nil},
		"the group is another":         {`{"id":10,"name":"Builders"}`, 422, fleet.ErrNoRunnerGroup, nil},
		"it is something else":         {`{"id":9,"name":"Builders"}`, 422, fleet.ErrRejected, fleet.ErrNoRunnerGroup},
		"the App may not register":     {`{"id":1,"name":"Default"}`, 403, fleet.ErrForbidden, fleet.ErrNoRunnerGroup},
		"there never was such a group": {"", 0, fleet.ErrNoRunnerGroup, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/runner-groups") {
					groups := `{"id":9,"name":"Builders"}`
					if asked++; asked > 1 {
						groups = c.groups
					}
					if c.status == 0 {
						groups = `{"id":1,"name":"Default"}`
					}
					_, _ = io.WriteString(w, `{"total_count":1,"runner_groups":[`+groups+`]}`)
					return
				}
				body, err := io.ReadAll(r.Body)
				if err != nil || !strings.Contains(string(body), `"runner_group_id":9`) {
					t.Errorf("registered with %s (%v)", body, err)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, `{"runner":{"id":5},"encoded_jit_config":"eA=="}`)
			})
			_, err := newTestClient(t, f, nil).Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n", RunnerGroup: "builders"})
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.want)
			require.True(t, fleet.Definite(err))
			if c.not != nil {
				require.NotErrorIs(t, err, c.not)
			}
		})
	}
}

func TestRunnerGroup_AnEmptyAnswerIsNoAbsence(t *testing.T) {
	for _, body := range []string{``, `null`, `{}`} {
		client := newTestClient(t, newForge(t, status(200, body)), nil)
		_, err := client.RunnerGroup(t.Context(), 42, org, "x")
		require.ErrorIs(t, err, fleet.ErrUncertain)
		require.NotErrorIs(t, err, fleet.ErrNoRunnerGroup)
	}
}
