package chart

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// alertTest is a unit test of promtool's: series, one sample a minute, and the alerts that fire at times.
type alertTest struct {
	Interval string        `json:"interval"`
	Series   []alertSeries `json:"input_series"`
	Alerts   []alertAt     `json:"alert_rule_test"`
}

type alertSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type alertAt struct {
	At    string        `json:"eval_time"`
	Alert string        `json:"alertname"`
	Fires []alertLabels `json:"exp_alerts"`
}

type alertLabels struct {
	Labels map[string]string `json:"exp_labels"`
}

// firing are the alerts of that name at a time, each with these labels; none: it does not fire.
func firing(at, alert string, labels ...map[string]string) alertAt {
	expected := alertAt{At: at, Alert: alert, Fires: []alertLabels{}}
	for _, one := range labels {
		expected.Fires = append(expected.Fires, alertLabels{one})
	}
	return expected
}

const (
	steady = "0x60"    // does not change for an hour
	rising = "0+12x60" // a counter
	fresh  = "0+60x60" // the time at which it is read
)

// Alerts fire for the installation that they are rendered for, as soon as its runbook says, although another one is well.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	labels := func(severity string, pairs ...string) map[string]string {
		all := map[string]string{"severity": severity, "namespace": "team-a"}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	neighbour := []alertSeries{
		{`bullpen_ledger_frozen{namespace="bullpen-system"}`, steady},
		{`bullpen_autoscaler_passes_total{namespace="bullpen-system",outcome="decided"}`, rising},
		{`bullpen_pass_last_success_timestamp_seconds{namespace="bullpen-system",pass="blocked_jobs"}`, fresh},
	}
	for name, test := range map[string]alertTest{
		"a well neighbour hides no absence": {Series: neighbour, Alerts: []alertAt{
			firing("4m", "BullpenServerAbsent"), firing("6m", "BullpenServerAbsent", labels("critical")),
			firing("9m", "BullpenControllerAbsent"), firing("15m", "BullpenControllerAbsent", labels("critical")),
			firing("40m", "BullpenDatabaseUnreachable"),
		}},
		"a controller that makes no pass is absent after 15 minutes": {Series: append([]alertSeries{
			{`bullpen_autoscaler_passes_total{namespace="team-a",outcome="decided",pod="a"}`, "0+12x30 372x60"},
			{`bullpen_autoscaler_passes_total{namespace="team-a",outcome="decided",pod="b"}`, steady}, // the one that waits for the lease
		}, neighbour...), Alerts: []alertAt{
			firing("30m", "BullpenControllerAbsent"), firing("40m", "BullpenControllerAbsent"), firing("47m", "BullpenControllerAbsent", labels("critical")),
		}},
		"the database": {Series: append([]alertSeries{
			{`bullpen_pass_last_success_timestamp_seconds{namespace="team-a",pass="blocked_jobs",pod="a"}`, "0+60x30 1800x60"},
			{`bullpen_pass_last_success_timestamp_seconds{namespace="team-a",pass="blocked_jobs",pod="b"}`, "0+60x29 1740x60"},
			{`bullpen_pass_last_success_timestamp_seconds{namespace="team-a",pass="recovery"}`, steady}, // which needs GitHub
		}, neighbour...), Alerts: []alertAt{
			firing("30m", "BullpenDatabaseUnreachable"), firing("35m", "BullpenDatabaseUnreachable"), firing("38m", "BullpenDatabaseUnreachable", labels("critical")),
		}},
		"self-registering runners": {Series: []alertSeries{
			{`bullpen_runnerscaler_no_data{namespace="team-a",kind="RunnerSet",name="gpu"}`, "1x60"},
			{`bullpen_runnerscaler_no_data{namespace="team-a",kind="RunnerSet",name="cpu"}`, steady},
			{`bullpen_registration_rate_remaining{namespace="team-a",secret_namespace="runners",secret="pat",resource="core"}`, "100x60"},
			{`bullpen_registration_rate_remaining{namespace="team-a",secret_namespace="runners",secret="app",resource="core"}`, "4000x60"},
		}, Alerts: []alertAt{
			firing("14m", "BullpenRunnerScalerNoData"), firing("16m", "BullpenRunnerScalerNoData", labels("warning", "kind", "RunnerSet", "name", "gpu")),
			firing("14m", "BullpenRegistrationLimitNear"),
			firing("16m", "BullpenRegistrationLimitNear", labels("warning", "secret_namespace", "runners", "secret", "pat", "resource", "core")),
		}},
		"containers of jobs that fail": {Series: []alertSeries{
			{`bullpen_jobcontainers_failures_total{namespace="team-a"}`, "0+1x60"},
			{`bullpen_jobcontainers_added_total{namespace="team-a",role="job"}`, "0+1x60"},
			{`bullpen_jobcontainers_added_total{namespace="team-a",role="service"}`, "0+2x60"},
			{`bullpen_jobcontainers_failures_total{namespace="few-of-many"}`, "0+1x60"},
			{`bullpen_jobcontainers_added_total{namespace="few-of-many",role="job"}`, "0+6x60"},
			{`bullpen_jobcontainers_failures_total{namespace="one-mistake"}`, "0 0 2x60"},
			{`bullpen_jobcontainers_added_total{namespace="one-mistake",role="job"}`, "0 0 1x60"},
		}, Alerts: []alertAt{firing("10m", "BullpenJobContainerFailures"), firing("50m", "BullpenJobContainerFailures", labels("warning"))}},
	} {
		t.Run(name, func(t *testing.T) {
			test.Interval = "1m"
			checkAlerts(t, test)
		})
	}
}

// checkAlerts has promtool evaluate the rules that the chart renders for a release in the namespace team-a. Annotations are left out: it
// would compare them whole.
func checkAlerts(t *testing.T, test alertTest) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "run scripts/prerequisites.sh prometheus")
	objects := render(t, helmchart.Release{Name: "bullpen", Namespace: "team-a"}, least+"monitoring: {prometheusRule: {enabled: true}}\n")
	spec := at(t, find(t, objects, "PrometheusRule team-a/bullpen"), "spec")
	for _, group := range at(t, spec, "groups").([]any) {
		for _, rule := range at(t, group, "rules").([]any) {
			delete(rule.(map[string]any), "annotations")
		}
	}
	dir := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	write("rules.yaml", spec)
	file := write("test.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": []alertTest{test}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, promtool, "test", "rules", file).CombinedOutput() //nolint:gosec // of the system
	require.NoError(t, err, "%s", output)
}
