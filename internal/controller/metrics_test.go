package controller_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// Each controller metric that the chart's alerts and dashboard and the runbooks name is exported; a test of cmd/bullpen checks all
// metrics.
func TestMetrics_ThatTheChartNamesExist(t *testing.T) {
	b := newBench(t)
	options := b.options()
	registry := prometheus.NewRegistry()
	options.Registry = registry
	options.Macs = &controller.MacOptions{Bootstrapper: machost.SSH{}, BinarySHA256: "none", SecretsNamespace: "none"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // they are registered before anything runs
	require.NoError(t, controller.Run(ctx, options))
	descriptions := make(chan *prometheus.Desc, 1000)
	registry.Describe(descriptions)
	close(descriptions)
	var exported []string
	for d := range descriptions { // bounded: it is closed above
		exported = append(exported, d.String())
	}
	names, err := helmchart.MetricNames()
	require.NoError(t, err)
	inRunbooks, err := helmchart.MetricNamesIn(os.DirFS("../../docs/runbooks"), "*.md")
	require.NoError(t, err)
	looked := 0
	for _, name := range append(names, inRunbooks...) {
		if strings.HasPrefix(name, "bullpen_runnerpool_") || strings.HasPrefix(name, "bullpen_autoscaler_") || strings.HasPrefix(name, "bullpen_machost_") {
			looked++
			require.True(t, helmchart.Exports(exported, name), "the chart or a runbook names %s, and the controller does not export it", name)
		}
	}
	require.NotZero(t, looked)
}
