package http_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// POOL-7: one batch may name pods that are lost and pods that are not. Each is answered by what it is, in the order asked.
func TestRetire_POOL7_LostPodsAndOthersInOneBatch(t *testing.T) {
	w := newWorld(t)
	claimed := make([]dispatch.Pod, 2)
	for i, name := range []string{"linux-lost", "linux-busy"} {
		status, _ := w.hook("workflow_job", queued(int64(i+1)))
		require.Equal(t, http.StatusOK, status)
		claimed[i] = w.pod(name)
		status, text := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-"+name, struct{}{})
		require.Equal(t, http.StatusOK, status, text)
	}
	ref := func(pod dispatch.Pod, lost bool) runnerapi.PodRef {
		return runnerapi.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: "linux", Lost: lost}
	}
	refs := []runnerapi.PodRef{ref(w.pod("linux-a"), false), ref(claimed[0], true), ref(claimed[1], false), ref(w.pod("linux-b"), true)}
	status, text := w.call(w.internal.URL, runnerapi.PathRetire, "controller", runnerapi.RetireRequest{Pods: refs})
	require.Equal(t, http.StatusOK, status, text)
	var response runnerapi.RetireResponse
	require.NoError(t, json.Unmarshal([]byte(text), &response))
	require.Len(t, response.Answers, len(refs))
	for i, want := range []runnerapi.RetireAnswer{
		{Verdict: runnerapi.Granted, State: string(fleet.ClaimRetired)},
		{Verdict: runnerapi.Granted, State: string(fleet.ClaimSpent), Proof: dispatch.ProofRegistrationsGone},
		{Verdict: runnerapi.Busy, State: string(fleet.ClaimMinted), Owner: "acme"},
		{Verdict: runnerapi.Granted, State: string(fleet.ClaimRetired)},
	} {
		want.UID = refs[i].UID
		require.Equal(t, want, response.Answers[i], refs[i].Name)
	}
}
