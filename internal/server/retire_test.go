package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/dispatchapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// POOL-7: one batch may name pods that are lost and pods that are not. Each is answered by what it is, in the order asked.
func TestRetire_POOL7_LostPodsAndOthersInOneBatch(t *testing.T) {
	w := newWorld(t)
	claimed := make([]dispatch.Pod, 2)
	for i, name := range []string{"linux-lost", "linux-busy"} {
		status, _ := w.hook("workflow_job", queued(int64(i+1)))
		require.Equal(t, http.StatusOK, status)
		claimed[i] = w.pod(name)
		status, text := w.call(w.internal.URL, dispatchapi.PathDispatch, "token-of-"+name, struct{}{})
		require.Equal(t, http.StatusOK, status, text)
	}
	ref := func(pod dispatch.Pod, lost bool) dispatchapi.PodRef {
		return dispatchapi.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: "linux", Lost: lost}
	}
	refs := []dispatchapi.PodRef{ref(w.pod("linux-a"), false), ref(claimed[0], true), ref(claimed[1], false), ref(w.pod("linux-b"), true)}
	status, text := w.call(w.internal.URL, dispatchapi.PathRetire, "controller", dispatchapi.RetireRequest{Pods: refs})
	require.Equal(t, http.StatusOK, status, text)
	var response dispatchapi.RetireResponse
	require.NoError(t, json.Unmarshal([]byte(text), &response))
	require.Len(t, response.Answers, len(refs))
	for i, want := range []dispatchapi.RetireAnswer{
		{Verdict: dispatchapi.Granted, State: string(fleet.ClaimRetired)},
		{Verdict: dispatchapi.Granted, State: string(fleet.ClaimSpent), Proof: dispatch.ProofRegistrationsGone},
		{Verdict: dispatchapi.Busy, State: string(fleet.ClaimMinted), Owner: "acme"},
		{Verdict: dispatchapi.Granted, State: string(fleet.ClaimRetired)},
	} {
		want.UID = refs[i].UID
		require.Equal(t, want, response.Answers[i], refs[i].Name)
	}
}
