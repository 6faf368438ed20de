package github

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// CLAIM-19: when calls to one repository fail, only that repository is left alone; the installation's other calls continue.
// Where a second one fails, it is the installation.
func TestCircuit_CLAIM19_OneRepositorysAddressIsNoInstallation(t *testing.T) {
	clock := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(oneRunner))
	})
	c := newTestClient(t, f, func(o *Options) { o.Now = clock.read; o.Jitter = func() float64 { return 1 } })
	bad, worse, good := fleet.Scope{Owner: "acme", Repo: "bad"}, fleet.Scope{Owner: "acme", Repo: "bad-too"}, fleet.Scope{Owner: "acme", Repo: "good"}
	for range circuitTrips {
		require.ErrorIs(t, c.ControlRead(t.Context(), 42, bad), fleet.ErrUncertain)
	}
	limited := refusal(t, c.ControlRead(t.Context(), 42, bad))
	require.Equal(t, fleet.ResourceRepository, limited.Resource)
	require.Equal(t, clock.after(1), limited.Until)
	for range 2 * circuitTrips {
		require.NoError(t, c.ControlRead(t.Context(), 42, good))
		require.NoError(t, c.ControlRead(t.Context(), 42, fleet.Scope{Owner: "acme"}))
	}
	clock.set(clock.after(1).Add(time.Millisecond))
	require.ErrorIs(t, c.ControlRead(t.Context(), 42, bad), fleet.ErrUncertain, "a probe")
	refusal(t, c.ControlRead(t.Context(), 42, bad))

	for range circuitTrips {
		require.ErrorIs(t, c.ControlRead(t.Context(), 42, worse), fleet.ErrUncertain)
	}
	limited = refusal(t, c.ControlRead(t.Context(), 42, good))
	require.Equal(t, ResourceCircuit, limited.Resource)
}
