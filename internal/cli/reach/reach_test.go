package reach_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// get is the error of a real request.
func get(t *testing.T, address string, timeout time.Duration) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	response, err := (&http.Client{Timeout: timeout}).Do(request)
	if err == nil {
		response.Body.Close()
	}
	require.Error(t, err)
	return err
}

func TestProblem_NamesTheReason(t *testing.T) {
	require.Equal(t, "connection refused", reach.Problem(get(t, "http://127.0.0.1:1", time.Minute)))
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	require.Contains(t, reach.Problem(get(t, secure.URL, time.Minute)), "its certificate is not trusted")
	never := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-never:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(never)
	require.Equal(t, "timeout", reach.Problem(get(t, silent.URL, time.Millisecond)))
	require.Equal(t, "unknown host example.invalid", reach.Problem(&url.Error{Op: "Get", URL: "http://example.invalid", Err: &net.DNSError{Name: "example.invalid", IsNotFound: true}}))
	require.Equal(t, "something else", reach.Problem(errors.New("something else")))
}

func TestCluster_SaysWhatFailedAndWhatToDo(t *testing.T) {
	pools := schema.GroupResource{Group: "bullpen.dev", Resource: "runnerpools"}
	for says, err := range map[string]error{
		"reading pool a: not found": apierrors.NewNotFound(pools, "a"),
		"reading pool a: the cluster does not have this kind. Install the chart, or choose another cluster with --kubeconfig or --context":                               apierrors.NewGenericServerResponse(http.StatusNotFound, "get", pools, "", "404 page not found", 0, true),
		"reading pool a: the cluster does not accept your credentials. Log in again, or choose others with --kubeconfig or --context":                                    apierrors.NewUnauthorized("no"),
		"reading pool a: the cluster's API is overloaded or restarting. Try again":                                                                                       apierrors.NewTooManyRequests("slow", 1),
		"reading pool a: cannot reach the cluster at http://127.0.0.1:1: connection refused. Check that it is running, or choose another with --kubeconfig or --context": get(t, "http://127.0.0.1:1/api/v1/pods?limit=5", time.Minute),
	} {
		require.EqualError(t, reach.Cluster("reading pool a", err), says)
		require.ErrorIs(t, reach.Cluster("reading pool a", fmt.Errorf("wrapped: %w", err)), err, "the cause stays in the chain")
	}
	forbidden := reach.Cluster("pausing pool a", apierrors.NewForbidden(pools, "a", errors.New("ada cannot patch it")))
	require.ErrorContains(t, forbidden, "pausing pool a: not allowed: ")
	require.ErrorContains(t, forbidden, "kubectl auth can-i --list")
	require.NoError(t, reach.Cluster("x", nil))
	require.ErrorIs(t, reach.Cluster("x", context.Canceled), context.Canceled)
	require.EqualError(t, reach.Cluster("listing", reach.Cluster("reading a", apierrors.NewUnauthorized("no"))),
		"listing: reading a: the cluster does not accept your credentials. Log in again, or choose others with --kubeconfig or --context", "nothing is translated twice")
}
