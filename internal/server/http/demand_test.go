package http_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
)

func (w *world) demand(bearer string, targets ...runnerapi.DemandTarget) (int, string) {
	w.t.Helper()
	return w.call(w.internal.URL, runnerapi.PathDemand, bearer, runnerapi.DemandRequest{Targets: targets})
}

func acme(key string) runnerapi.DemandTarget {
	return runnerapi.DemandTarget{Key: key, Organization: "acme", Labels: []string{"gpu"}, Most: 10}
}

// NET-5: only the controller's principal gets the list of queued jobs.
func TestDemand_NET5_OnlyTheControllersPrincipal(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("workflow_job", strings.Replace(queued(1), "linux-4cpu", "gpu", 1))
	require.Equal(t, http.StatusOK, status)
	w.pod("linux-a")
	w.tokens["somebody"] = token{runnerapi.AudienceServer, cluster.Identity{Username: principal + "-2"}}
	for bearer, want := range map[string]int{
		"": http.StatusUnauthorized, "token-of-linux-a": http.StatusUnauthorized, "somebody": http.StatusForbidden,
	} {
		status, text := w.demand(bearer, acme("a"))
		require.Equal(t, want, status, "as %q", bearer)
		require.NotContains(t, text, "queued", "as %q", bearer)
	}
	status, _ = w.call(w.public.URL, runnerapi.PathDemand, "controller", runnerapi.DemandRequest{})
	require.Equal(t, http.StatusNotFound, status)
	status, _ = w.get(runnerapi.PathDemand, "controller")
	require.Equal(t, http.StatusMethodNotAllowed, status)

	status, text := w.demand("controller", acme("a"))
	require.Equal(t, http.StatusOK, status, text)
	var response runnerapi.DemandResponse
	require.NoError(t, json.Unmarshal([]byte(text), &response))
	require.Len(t, response.Targets, 1)
	require.True(t, response.Targets[0].Sees)
	require.Equal(t, int64(1), response.Targets[0].Queued[0].ID)
}

// Invalid or impossibly large requests are refused with a sentence.
func TestDemand_BadRequests(t *testing.T) {
	w := newWorld(t)
	change := func(f func(*runnerapi.DemandTarget)) []runnerapi.DemandTarget {
		target := acme("a")
		f(&target)
		return []runnerapi.DemandTarget{target}
	}
	many := make([]runnerapi.DemandTarget, runnerapi.MostDemandTargets+1)
	for i := range many {
		many[i] = acme(fmt.Sprint(i))
	}
	status, _ := w.demand("controller", many...)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	for sentence, targets := range map[string][]runnerapi.DemandTarget{
		"needs a unique key":              {acme("a"), acme("a")},
		"unique key":                      change(func(d *runnerapi.DemandTarget) { d.Key = "" }),
		"exactly one":                     change(func(d *runnerapi.DemandTarget) { d.Repository = "acme/app" }),
		"exactly one of":                  change(func(d *runnerapi.DemandTarget) { d.Organization = "" }),
		"owner/name":                      change(func(d *runnerapi.DemandTarget) { d.Organization, d.Repository = "", "acme" }),
		"are for enterprise targets only": change(func(d *runnerapi.DemandTarget) { d.Repositories = []string{"acme/app"} }),
		"100 labels":                      change(func(d *runnerapi.DemandTarget) { d.Labels = make([]string, 101) }),
		"20000 jobs that were":            change(func(d *runnerapi.DemandTarget) { d.Seen = make([]int64, runnerapi.MostDemandSeen+1) }),
	} {
		status, text := w.demand("controller", targets...)
		require.Equal(t, http.StatusBadRequest, status, sentence)
		require.Contains(t, text, sentence)
	}
	status, _ = w.call(w.internal.URL, runnerapi.PathDemand, "controller", "junk")
	require.Equal(t, http.StatusBadRequest, status)
}

// POOL-8, CLAIM-17: while the watch, the ledger or its epoch cannot be trusted the answer is an error, and not zero demand.
func TestDemand_POOL8_NothingIsKnownOrEverything(t *testing.T) {
	w := newWorld(t)
	w.unready = errors.New("the watch has not delivered its first list yet")
	status, text := w.demand("controller", acme("a"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "first list")
	w.unready = nil
	w.gate.set("a backup was restored")
	status, text = w.demand("controller", acme("a"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "a backup was restored")
	w.gate.set("")
	w.store.Close()
	status, text = w.demand("controller", acme("a"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotContains(t, text, "closed pool", "the cause is for the log")
	require.Contains(t, w.log.String(), "closed pool")
}

// The controller's own client understands what the server says: a job that no pool serves, through its life.
func TestDemand_66_ToTheControllersClient(t *testing.T) {
	w := newWorld(t)
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("controller"), 0o600))
	client, err := serverclient.New(serverclient.Options{BaseURL: w.internal.URL, TokenFile: tokenFile})
	require.NoError(t, err)
	hook := func(action, more string) {
		t.Helper()
		body := strings.NewReplacer("linux-4cpu", "gpu", `"action":"queued"`, `"action":"`+action+`"`, `"name":"build"`, `"name":"build"`+more).Replace(queued(7))
		status, text := w.hook("workflow_job", body)
		require.Equal(t, http.StatusOK, status, text)
	}
	ask := func() runnerapi.TargetDemand {
		t.Helper()
		target, other := acme("a"), acme("b")
		other.Organization, target.Seen = "elsewhere", []int64{7}
		answers, err := client.Demand(t.Context(), []runnerapi.DemandTarget{other, target})
		require.NoError(t, err)
		require.Equal(t, runnerapi.TargetDemand{Key: "b", Queued: []runnerapi.DemandJob{}, Running: []runnerapi.DemandJob{}}, answers[0])
		return answers[1]
	}
	hook("queued", "")
	hook("queued", "") // under another delivery id
	require.Len(t, ask().Queued, 1)
	hook("in_progress", `,"runner_name":"ci-1"`)
	require.Empty(t, ask().Queued)
	require.Equal(t, "ci-1", ask().Running[0].RunnerName)
	hook("completed", `,"runner_name":"ci-1","conclusion":"success"`)
	require.Empty(t, ask().Running)
	require.Equal(t, []int64{7}, ask().Settled)
}

// 6.2, 6.3: a skipped job, and the end of one that was neither queued nor run, change nothing; nor does what GitHub did not
// sign, which is refused. A job that no runner fits is accepted with 200.
func TestDemand_62_63_WhatChangesNothing(t *testing.T) {
	w := newWorld(t)
	event := func(action string, id int64, more string) string {
		return strings.NewReplacer("linux-4cpu", "gpu", `"action":"queued"`, `"action":"`+action+`"`, `"name":"build"`, `"name":"build"`+more).Replace(queued(id))
	}
	ids := func() (all []int64) {
		t.Helper()
		status, text := w.demand("controller", acme("a"))
		require.Equal(t, http.StatusOK, status, text)
		var response runnerapi.DemandResponse
		require.NoError(t, json.Unmarshal([]byte(text), &response))
		require.Empty(t, response.Targets[0].Running)
		for _, job := range response.Targets[0].Queued {
			all = append(all, job.ID)
		}
		return all
	}
	status, _ := w.hook("workflow_job", event("queued", 1, ""))
	require.Equal(t, http.StatusOK, status, "no worker is there for it yet")
	require.Equal(t, []int64{1}, ids())
	for id, more := range map[int64]string{2: `,"conclusion":"skipped"`, 3: `,"conclusion":"success","runner_id":null,"runner_name":null`} {
		status, _ = w.hook("workflow_job", event("completed", id, more))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, []int64{1}, ids())
	}
	status, _ = w.hook("workflow_job", event("queued", 4, ""), func(r *http.Request) { r.Header.Set(github.HeaderSignature, "sha256=00") })
	require.GreaterOrEqual(t, status, 400, "NET-6")
	require.Equal(t, []int64{1}, ids())
	status, _ = w.hook("workflow_job", event("completed", 1, `,"conclusion":"success"`))
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, ids(), "6.2: it frees that job")
}
