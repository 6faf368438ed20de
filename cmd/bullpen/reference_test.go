package main

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/reference"
)

var updateReference = flag.Bool("update", false, "write the pages of docs/reference that come from the program, as make generate does")

const referenceFolder = "../../docs/reference"

// The pages of the commands are what the program has.
func TestReference_CLI(t *testing.T) {
	for _, variable := range reference.Variables() { // the environment of the generating user must not get into the pages
		t.Setenv(variable.Name, "")
	}
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	var development []string
	for _, cmd := range developmentCommands() {
		development = append(development, cmd.Name())
	}
	pages := reference.CLI(root, func(cmd *cobra.Command) bool { return slices.Contains(development, cmd.Name()) })
	dir := filepath.Join(referenceFolder, "cli")
	if *updateReference {
		require.NoError(t, reference.Write(dir, pages, reference.Others()...))
	}
	there, err := filepath.Glob(filepath.Join(dir, "*.md"))
	require.NoError(t, err)
	require.Len(t, there, len(pages)+len(reference.Others()), "run make generate: a command was added, or has gone")
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	for name, page := range pages {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err, "run make generate")
		require.Equal(t, string(text), page, "%s: run make generate", name)
		require.NotContains(t, page, home+"/", "%s: a page is of every machine", name)
	}
}

// unbounded are labels that name what comes and goes without end.
var unbounded = []string{"job", "job_id", "run", "run_id", "runner", "runner_name", "repository", "repo", "workflow", "branch", "pod", "uid", "node", "host", "user"}

// The page of the metrics is what the three programs register, and no label of theirs has values without end.
func TestReference_Metrics(t *testing.T) {
	traced := func(cfg *serverConfig, _ func(name, content string) string) {
		cfg.traces.endpoint = "http://127.0.0.1:1"
	}
	programs := []reference.Program{
		{Name: "server", Where: "At `--metrics-listen` (`:9090`), `/metrics`. `bullpen_trace_spans_total` is there with `--trace-endpoint`.", Metrics: metricsOf(t, wired(t, traced).registry)},
		{Name: "controller", Where: "At `--metrics-addr` (`:9090`), `/metrics`. Those of `bullpen_runner_owner_*`, `bullpen_runnerscaler_*`, `bullpen_registered_*`, " +
			"`bullpen_registration_*`, `bullpen_github_*` and `bullpen_credential_*` are there with `--self-registering`, those of `bullpen_machost_*` with `--mac-hosts`, those of " +
			"`bullpen_jobcontainers_*` with `--job-containers`.", Metrics: controllerMetrics(t)},
		{Name: "node", Where: "At `--kubelet-port` for clients with the right `nodes/metrics`, and at `--metrics-listen`.", Metrics: nodeAgentMetrics(t)},
	}
	for _, program := range programs {
		require.NotEmpty(t, program.Metrics, program.Name)
		for _, metric := range program.Metrics {
			for _, label := range metric.Labels {
				require.NotContains(t, unbounded, label, "%s of bullpen %s has a label whose values have no end", metric.Name, program.Name)
			}
		}
	}
	page := reference.Metrics(programs)
	file := filepath.Join(referenceFolder, "metrics.md")
	if *updateReference {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err, "run make generate")
	require.Equal(t, string(text), page, "%s: run make generate", file)
}

// metricsOf describes a registry, and compares what it exports already with what the page would say of it.
func metricsOf(t *testing.T, registry *prometheus.Registry) []reference.Metric {
	t.Helper()
	metrics, err := reference.MetricsOf(registry)
	require.NoError(t, err)
	exported, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range exported {
		for _, metric := range metrics {
			if metric.Name == family.GetName() {
				require.Equal(t, metric.Type(), map[string]string{"COUNTER": "counter", "GAUGE": "gauge", "HISTOGRAM": "histogram"}[family.GetType().String()],
					"%s: say in test/kit/reference what it is", metric.Name)
			}
		}
	}
	return metrics
}

// controllerMetrics are those of a controller that is wired whole and ends before it has begun.
func controllerMetrics(t *testing.T) []reference.Metric {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(emptyCluster))
	t.Cleanup(api.Close)
	server, err := serverclient.New(serverclient.Options{BaseURL: api.URL, TokenFile: filepath.Join(t.TempDir(), "token")})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	key := filepath.Join(t.TempDir(), "app.pem")
	writeAppKey(t, key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	registering := registeringFlags{enabled: true, github: githubFlags{url: api.URL}, appID: 1, keyFile: key}
	selfRegistering, err := registering.prepare(ctx, registry, log)
	require.NoError(t, err)
	jobKey, err := letter.NewPrivateKey()
	require.NoError(t, err)
	cancel()
	require.NoError(t, controller.Run(ctx, controller.Options{
		Config: &rest.Config{Host: api.URL}, Namespace: "bullpen-runners", Server: server, Registry: registry, Log: log,
		Pod:             runnerpod.Options{DispatchURL: api.URL, AgentImage: "bullpen"},
		Macs:            &controller.MacOptions{Bootstrapper: machost.SSH{}, BinarySHA256: "none", SecretsNamespace: "none"},
		SelfRegistering: selfRegistering,
		JobContainers:   &controller.JobContainersOptions{Key: jobKey, Images: image.New(image.Options{})},
	}))
	return metricsOf(t, registry)
}

// emptyCluster answers as an API server that has the kinds that a controller reads, and no object of any.
func emptyCluster(w http.ResponseWriter, r *http.Request) {
	kinds := map[string]map[string]string{ // by group and version, what is listed of each
		"v1":                   {"pods": "Pod", "serviceaccounts": "ServiceAccount", "nodes": "Node", "secrets": "Secret"},
		"apps/v1":              {"daemonsets": "DaemonSet", "statefulsets": "StatefulSet"},
		"bullpen.dev/v1alpha1": {"runnerpools": "RunnerPool", "runners": "Runner", "runnerreplicasets": "RunnerReplicaSet", "runnerdeployments": "RunnerDeployment", "runnersets": "RunnerSet", "machosts": "MacHost"},
	}
	group := func(name, version string) map[string]any {
		gv := map[string]string{"groupVersion": name + "/" + version, "version": version}
		return map[string]any{"name": name, "versions": []any{gv}, "preferredVersion": gv}
	}
	var answer any
	path := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis"), "/api"), "/")
	switch below, known := kinds[path]; {
	case r.URL.Path == "/api":
		answer = map[string]any{"kind": "APIVersions", "versions": []string{"v1"}}
	case r.URL.Path == "/apis":
		answer = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group("bullpen.dev", "v1alpha1"), group("apps", "v1")}}
	case known:
		var resources []any
		for plural, kind := range below {
			resources = append(resources, map[string]any{"name": plural, "kind": kind, "namespaced": kind != "Node", "verbs": []string{"list", "watch"}})
		}
		answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path, "resources": resources}
	case r.URL.Query().Get("sendInitialEvents") != "":
		http.Error(w, "list first", http.StatusBadRequest)
		return
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush() // nothing ever happens
		<-r.Context().Done()
		return
	default:
		parts := strings.Split(path, "/")
		version := strings.Join(parts[:max(len(parts)-1, 0)], "/")
		if at := slices.Index(parts, "namespaces"); at > 0 {
			version = strings.Join(parts[:at], "/")
		}
		answer = map[string]any{"kind": kinds[version][parts[len(parts)-1]] + "List", "apiVersion": version, "metadata": map[string]string{"resourceVersion": "1"}, "items": []any{}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client sees
}

func writeAppKey(t *testing.T, file string) {
	t.Helper()
	_, key, err := standin.GenerateAppKey()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, key, 0o600))
}

// nodeAgentMetrics are those of a node agent that has not begun, with its kubelet's listener.
func nodeAgentMetrics(t *testing.T) []reference.Metric {
	t.Helper()
	agent, err := node.New(node.Options{
		Name: "node-1", Config: &rest.Config{Host: "http://127.0.0.1:1"}, Sandbox: synthetic.New(synthetic.NewMachine(nil)), SandboxName: "synthetic", StateDir: t.TempDir(),
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("2")},
	})
	require.NoError(t, err)
	registry, err := nodeMetrics(agent)
	require.NoError(t, err)
	return metricsOf(t, registry)
}
