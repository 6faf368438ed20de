package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// TestMain lets the test binary also be the commands of a model Mac, as the real one is, and the shim of a container.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "node" && os.Args[2] == "shim" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	if code, answered := actAnotherPart(); answered {
		os.Exit(code)
	}
	os.Exit(postgrestest.Run(func() int { return mactest.Main(m.Run) }))
}

// Every command line of the chart is one that the program understands, and every kind of recovery that can be switched off
// in it exists.
func TestChart_CommandLinesAreTheProgramsOwn(t *testing.T) {
	var kinds []any
	for _, kind := range recovery.Kinds() {
		kinds = append(kinds, string(kind))
	}
	manifests, err := helmchart.Render(helmchart.Release{Upgrade: true, Values: map[string]any{
		"github": map[string]any{"appID": 1.0, "pointsPerMinute": 5.0},
		"database": map[string]any{"tls": map[string]any{
			"caSecret": map[string]any{"name": "ca"}, "clientSecret": map[string]any{"name": "own"},
		}},
		"server": map[string]any{
			"repositoryCaps": true, "restoreHold": "2m", "defaultLimits": map[string]any{"linux": "jobs=1", "macos": "jobs=1"},
			"recovery": map[string]any{"patience": "1m", "every": "1m", "off": kinds},
			"keep":     map[string]any{"jobs": "1h", "tombstones": "1h", "sessions": "1h", "deliveries": "1h"},
			"catchUp":  map[string]any{"every": "1m", "queuedAskAfter": "1h", "queuedStaleAfter": "1h", "rerunLostJobs": 1.0},
		},
		"controller": map[string]any{"workers": 3.0, "verbose": true},
	}})
	require.NoError(t, err)
	objects, err := helmchart.Objects(manifests)
	require.NoError(t, err)
	looked := map[string]bool{}
	for _, object := range objects {
		for _, path := range [][]string{{"spec", "containers"}, {"spec", "template", "spec", "containers"}} {
			containers, _, _ := unstructured.NestedSlice(object.Object, path...)
			for _, container := range containers {
				fields, ok := container.(map[string]any)
				require.True(t, ok)
				require.Equal(t, []any{"/usr/local/bin/bullpen"}, fields["command"], object.GetName())
				args, _, err := unstructured.NestedStringSlice(fields, "args")
				require.NoError(t, err)
				cmd, rest, err := newRootCommand().Find(args)
				require.NoError(t, err, args)
				require.NoError(t, cmd.ParseFlags(rest), args)
				require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), args)
				require.NoError(t, cmd.ValidateRequiredFlags(), args)
				looked[cmd.CommandPath()] = true
			}
		}
	}
	require.Equal(t, map[string]bool{
		"bullpen server": true, "bullpen controller": true, "bullpen chart crds": true, "bullpen chart drain": true, "bullpen chart test": true,
	}, looked)
}

// Each metric that the chart's alerts and dashboard and the runbooks name is exported by the server, or by a controller with all optional
// parts.
func TestChart_NamesMetricsThatExist(t *testing.T) {
	exported := serverMetrics(t)
	for _, metric := range controllerMetrics(t) {
		exported = append(exported, `fqName: "`+metric.Name+`"`)
	}
	names, err := helmchart.MetricNames()
	require.NoError(t, err)
	inRunbooks, err := helmchart.MetricNamesIn(os.DirFS(runbooksDir), "*.md")
	require.NoError(t, err)
	looked := 0
	for _, name := range append(names, inRunbooks...) {
		looked++
		require.True(t, helmchart.Exports(exported, name), "the chart or a runbook names %s, and neither the server nor the controller exports it", name)
	}
	require.NotZero(t, looked)
	require.False(t, helmchart.Exports(exported, "bullpen_nothing_total"))
}

// wired is a server that serves no requests yet, with its files in a directory of its own.
func wired(t *testing.T, change func(cfg *serverConfig, file func(name, content string) string)) *replica {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	_, key, err := standin.GenerateAppKey()
	require.NoError(t, err)
	var cfg serverConfig
	cfg.flags(pflag.NewFlagSet("", pflag.ContinueOnError)) // the defaults
	cfg.webhooks.mode = webhooksPoll
	cfg.database.urlFile = file("url", postgrestest.NewDatabase(t, nil))
	cfg.kubeconfig = file("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n")
	cfg.keyFile = file("app.pem", string(key))
	cfg.appID = 1
	if change != nil {
		change(&cfg, file)
	}
	r := &replica{cfg: cfg, log: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry()}
	t.Cleanup(r.close)
	require.NoError(t, r.wire(t.Context()))
	return r
}

// serverMetrics are what a server would export.
func serverMetrics(t *testing.T) []string {
	t.Helper()
	r := wired(t, nil)
	descriptions := make(chan *prometheus.Desc, 1000)
	r.registry.Describe(descriptions)
	close(descriptions)
	var exported []string
	for d := range descriptions { // bounded: it is closed above
		exported = append(exported, d.String())
	}
	return exported
}

// Every kind of recovery has an alert, as docs/reference/recovery.md says.
func TestChart_EveryKindOfRecoveryHasAnAlert(t *testing.T) {
	var expressions strings.Builder
	for _, one := range readAlerts(t) {
		expressions.WriteString(strings.NewReplacer(`"`, "|").Replace(one.Expr))
	}
	for _, kind := range recovery.Kinds() {
		require.Contains(t, expressions.String(), "|"+string(kind)+"|")
	}
}

// A pass that an alert names exists, and runs often enough for the alert: a renamed pass would never be overdue.
func TestChart_AlertsNamePassesThatExist(t *testing.T) {
	every := map[string]time.Duration{}
	push := func(cfg *serverConfig, file func(name, content string) string) {
		cfg.webhooks.mode, cfg.webhooks.secretFile = webhooksPush, file("webhook-secret", "secret")
	}
	for _, pass := range slices.Concat(wired(t, nil).passList(), wired(t, push).passList()) {
		every[pass.Name] = pass.Every
	}
	named := regexp.MustCompile(`pass=~?"([^"]+)"`)
	looked := 0
	for _, one := range readAlerts(t) {
		for _, found := range named.FindAllStringSubmatch(one.Expr, -1) {
			for _, pass := range strings.Split(found[1], "|") {
				looked++
				require.Contains(t, every, pass, one.Alert)
				require.LessOrEqual(t, every[pass], time.Minute, "%s fires after minutes without %s", one.Alert, pass)
			}
		}
	}
	require.GreaterOrEqual(t, looked, 6)
}
