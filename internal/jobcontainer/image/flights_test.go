package image

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

func TestFlights_APanicIsAnErrorOfOneImage(t *testing.T) {
	f := newFlights()
	defer f.close()
	k := flightKey{tenant: "acme", key: key{name: imagename.Name{Registry: "ghcr.io", Repository: "acme/app", Tag: "1"}}}
	_, err := f.do(t.Context(), k, time.Time{}, time.Second, func(context.Context) (cached, error) {
		digests := strings.Fields("one")
		return cached{digest: digests[len(digests)]}, nil
	})
	explained := explain(err, "ghcr.io/acme/app:1", k.key.name, false, time.Second)
	var problem *Error
	require.ErrorAs(t, explained, &problem)
	require.Equal(t, ResponseInvalid, problem.Reason)
	require.EqualError(t, problem, "Image 'ghcr.io/acme/app:1' could not be pulled: registry 'ghcr.io' sent a response that is not understood.")
	require.Contains(t, problem.Detail, "index out of range", "the controller's log has the cause")

	found, err := f.do(t.Context(), k, time.Time{}, time.Second, func(context.Context) (cached, error) { return cached{digest: "next"}, nil })
	require.NoError(t, err)
	require.Equal(t, "next", found.digest)
	require.Empty(t, f.current)
}

func TestFlights_TenantsDoNotShareARequest(t *testing.T) {
	f := newFlights()
	started, release := make(chan string), make(chan struct{})
	results := make(chan error, 2)
	for _, tenant := range []string{"a", "b"} {
		go func() {
			_, err := f.do(t.Context(), flightKey{tenant: tenant}, time.Time{}, time.Second, func(ctx context.Context) (cached, error) {
				started <- tenant
				select {
				case <-release:
				case <-ctx.Done():
				}
				return cached{}, ctx.Err()
			})
			results <- err
		}()
	}
	require.ElementsMatch(t, []string{"a", "b"}, []string{await.Receive(t, started, "a request"), await.Receive(t, started, "another request")},
		"a request may wait for the turn of its tenant")
	close(release)
	for range 2 {
		require.NoError(t, await.Receive(t, results, "a result"))
	}
	await.Return(t, f.close, "the end")
}
