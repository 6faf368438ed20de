package main

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/poolertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// A server whose notifications a connection pooler would drop does not start, and says what to set.
func TestServer_NET9_NeedsAWayForNotifications(t *testing.T) {
	direct := postgrestest.NewDatabase(t, nil)
	through := poolertest.Start(t, direct, poolertest.Options{Servers: 2}).URL(t, direct)
	var cfg serverConfig
	cfg.flags(pflag.NewFlagSet("", pflag.ContinueOnError)) // the defaults
	r := &replica{cfg: cfg, log: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry()}

	t.Setenv(envListenDatabaseURL, "")
	err := r.openLedger(t.Context(), through)
	require.ErrorIs(t, err, ledger.ErrNotHeard)
	require.ErrorContains(t, err, envListenDatabaseURL)
	state, err := ledger.InspectSchema(t.Context(), direct)
	require.NoError(t, err)
	require.Zero(t, state.Has, "the database is as it was")

	t.Setenv(envListenDatabaseURL, direct)
	require.NoError(t, r.openLedger(t.Context(), through))
	t.Cleanup(r.store.Close)
	require.NotEqual(t, ledger.RouteDirect, r.store.Route())
}
