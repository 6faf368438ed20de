package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// An autoscaled pool, so that the autoscaler has something to show.
const scaledPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: scaled, namespace: bullpen-runners, finalizers: [bullpen.dev/runner-pool-drain]}
spec:
  platform: linux
  labels: [scaled]
  autoscaling: {enabled: true, minIdle: 0, maxReplicas: 2}
  resources: {cpu: 100m, memory: 64Mi}
  template: {image: bullpen, command: [bullpen, dev, runner, --work, /bullpen/work]}
`

// monitoring has a real Prometheus scrape the fleet: the dashboard's queries all have an answer, each alert's expression is one that
// Prometheus evaluates, and of a fleet that is well none fires.
func monitoring(t *testing.T, w *where) {
	applied, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, "scaled.yaml", scaledPool))
	require.NoError(t, err, applied)
	address := prometheus(t, w)
	listed(t, w)

	query := func(expression string) (series int) {
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		fetch(t, address+"/api/v1/query?"+url.Values{"query": {expression}}.Encode(), &answer)
		return len(answer.Data.Result)
	}
	source, err := os.ReadFile("../../charts/bullpen/monitoring/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(source, &dashboard))
	asked := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			asked++
			expression := strings.NewReplacer("$namespace", ".*", "$pool", ".*").Replace(target.Expr)
			require.Eventually(t, func() bool { return query(expression) > 0 }, patience, interval, "panel %q is empty: %s", panel.Title, expression)
		}
	}
	require.Greater(t, asked, 20)

	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, State, LastError string }
			}
		}
	}
	alerts := 0
	require.Eventually(t, func() bool {
		alerts = 0
		fetch(t, address+"/api/v1/rules", &rules)
		for _, group := range rules.Data.Groups {
			for _, rule := range group.Rules {
				if rule.Health == "unknown" {
					return false
				}
				alerts++
			}
		}
		return alerts > 0
	}, patience, interval, "the alerts were never evaluated")
	require.GreaterOrEqual(t, alerts, 25)
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			require.Equal(t, "ok", rule.Health, "%s: %s", rule.Name, rule.LastError)
			require.NotEqual(t, "firing", rule.State, rule.Name)
		}
	}
}

// listed compares what the server and the controller export with the page that lists it.
func listed(t *testing.T, w *where) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	for _, part := range []string{"server", "controller"} {
		response, err := await.HTTP.Get(w.Metrics[part]) //nolint:gosec // of the fleet that the test has started
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		exported := regexp.MustCompile(`(?m)^# TYPE (bullpen_\w+) (\w+)$`).FindAllStringSubmatch(string(text), -1)
		require.Greater(t, len(exported), 10, part)
		for _, one := range exported {
			require.Contains(t, string(page), "| `"+one[1]+"` | "+one[2]+" |", "the %s exports it: run make generate", part)
		}
	}
}

func fetch(t *testing.T, address string, into any) {
	t.Helper()
	response, err := await.HTTP.Get(address) //nolint:gosec // Prometheus, which the test has started
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, address)
	require.NoError(t, json.NewDecoder(response.Body).Decode(into))
}

// prometheus starts one that scrapes the server and the controller and evaluates the alerts, and returns its address.
func prometheus(t *testing.T, w *where) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	require.NoError(t, err, "run scripts/prerequisites.sh prometheus")
	dir := t.TempDir()
	rules, err := filepath.Abs("../../charts/bullpen/monitoring/alerts.yaml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for _, part := range []string{"server", "controller"} {
		target, err := url.Parse(w.Metrics[part])
		require.NoError(t, err)
		config += fmt.Sprintf("  - job_name: %s\n    static_configs: [{targets: [%q], labels: {namespace: bullpen-system}}]\n", part, target.Host)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listen := free.Addr().String()
	require.NoError(t, free.Close())
	//nolint:gosec // of the system
	command := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = await.Call(t, command.Wait, "Prometheus exits") // its exit does not matter
		if t.Failed() {
			t.Log(output.String())
		}
	})
	address := "http://" + listen
	require.Eventually(t, func() bool {
		response, err := await.HTTP.Get(address + "/-/ready") //nolint:gosec // Prometheus
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, interval, "Prometheus was never ready")
	return address
}
