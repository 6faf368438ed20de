package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

const modelPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: model, namespace: bullpen-runners, finalizers: [bullpen.dev/runner-pool-drain]}
spec:
  platform: macos
  labels: [model-macos]
  replicas: 1
  resources: {cpu: 2, memory: 4Gi}
  template:
    image: registry.example.com/macos/runner:15
    command: [/bullpen/shared/bullpen, dev, runner, --work, /bullpen/work]
    nodeSelector: {bullpen.dev/mac-pool: models}
    terminationGracePeriodSeconds: 600
`

const modelHost = `
apiVersion: bullpen.dev/v1alpha1
kind: MacHost
metadata: {name: model, namespace: bullpen-runners}
spec:
  address: %s
  port: %s
  pool: models
  sshKeySecretRef: {name: mac-ssh, key: id}
  passwordSecretRef: {name: mac-password, key: password}
  bootstrapKubeconfigSecretRef: {name: mac-kubeconfig, key: kubeconfig}
  configRef: {name: macs}
`

const jobThatWaits = `
on: push
jobs:
  %s:
    runs-on: model-macos
    steps:
      - run: test "$USER" = admin; while [ ! -e '%s' ]; do sleep 0.2; done
`

// fleetOfOne is a model Mac and what brings it into a cluster.
type fleetOfOne struct {
	t   *testing.T
	w   *where
	mac *mactest.Mac
}

func (f *fleetOfOne) kubectl(args ...string) string {
	f.t.Helper()
	output, err := kubectl(f.t, f.w, f.w.Kubeconfig, args...)
	require.NoError(f.t, err, "%v: %s", args, output)
	return output
}

func (f *fleetOfOne) apply(text string) {
	f.t.Helper()
	f.kubectl("apply", "-f", writeFile(f.t, "object.yaml", text))
}

// rights are what the chart grants when macHosts is enabled.
func (f *fleetOfOne) rights() {
	f.t.Helper()
	manifests, err := helmchart.Render(helmchart.Release{Values: map[string]any{
		"github":   map[string]any{"appID": 1.0},
		"macHosts": map[string]any{"enabled": true, "secrets": []any{"mac-ssh", "mac-password", "mac-kubeconfig"}},
	}})
	require.NoError(f.t, err)
	for _, manifest := range helmchart.Under(manifests, "templates/rbac/machosts.yaml", "templates/admission/machosts.yaml") {
		f.apply(manifest.Content)
	}
}

func (f *fleetOfOne) secret(name, key, file string) {
	f.t.Helper()
	f.kubectl("create", "secret", "generic", name, "-n", "bullpen-system", "--from-file="+key+"="+file)
}

func (f *fleetOfOne) config(archive, digest, more string) {
	f.t.Helper()
	text := fmt.Sprintf("user: ci\ntart: {archive: %s, sha256: %s}\nnode: {cpu: \"8\", memory: 16Gi, minDiskFree: 1Gi}\n%s", archive, digest, more)
	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "macs", "namespace": "bullpen-runners"}, "data": map[string]any{"host.yaml": text},
	})
	require.NoError(f.t, err)
	f.apply(string(object))
}

// state is the reason of Ready, and what else a failed wait should say.
func (f *fleetOfOne) state() string {
	reason, _ := look(f.t, f.w, "machosts", "bullpen-runners", "model", `{.status.conditions[?(@.type=="Ready")].reason}`)
	return reason
}

func (f *fleetOfOne) applied() string {
	hash, err := look(f.t, f.w, "machosts", "bullpen-runners", "model", "{.status.appliedHash}")
	require.NoError(f.t, err)
	return hash
}

func (f *fleetOfOne) awaitState(state, notHash string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.state() == state && (notHash == "" || f.applied() != notHash) }, patience, interval, "the MacHost is never %s", state)
}

func (f *fleetOfOne) node(path string) string {
	f.t.Helper()
	said, err := look(f.t, f.w, "nodes.", "", "model", path)
	require.NoError(f.t, err)
	return said
}

// leaves takes the Mac and its pool out of the cluster, which others use after it.
func (f *fleetOfOne) leaves() {
	for _, object := range []string{"runnerpool/model", "machost/model", "node/model"} {
		output, err := exec.CommandContext(await.ContextWithin(f.t, 2*time.Minute), f.w.Kubectl, "--kubeconfig", f.w.Kubeconfig, "-n", "bullpen-runners", "delete", object, "--timeout=90s").CombinedOutput()
		require.NoError(f.t, err, "%s", output)
	}
}

// describe says what there is, for a test that fails.
func (f *fleetOfOne) describe() {
	for _, what := range [][]string{
		{"get", "machost", "model", "-n", "bullpen-runners", "-o", "yaml"}, {"get", "nodes,pods", "-A", "-o", "wide"}, {"get", "events", "-n", "bullpen-runners"},
	} {
		output, _ := exec.CommandContext(await.Context(f.t), f.w.Kubectl, append([]string{"--kubeconfig", f.w.Kubeconfig}, what...)...).CombinedOutput()
		f.t.Logf("%s", output)
	}
	for _, path := range []string{"/usr/local/var/bullpen/log/node.log"} {
		text, _ := os.ReadFile(f.mac.Root.Path(path))
		f.t.Logf("%s:\n%.8000s", path, text)
	}
}

// A MacHost, and nothing else, makes a node of a bare Mac: over SSH, under the chart's own rights; a job runs on it. Its changes end no
// job: the node agent may be replaced under one, and disruptive changes wait for them on a cordoned Node.
func TestMacHosts_HOST1_HOST6_NODE3_FromABareMacToAJob(t *testing.T) {
	deep.Only(t, "TestUp_NODE3_MacOSRunnersOutliveTheirNodeAgent, and TestCommandLine_FromABareMacToNothingToDo of internal/machost/remote")
	short, err := os.MkdirTemp("", "mac-") // sockets below it have short names only
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	mac := mactest.Boot(t, mactest.With(func(o *devmac.Options) { o.Dir = filepath.Join(short, "m") }))
	ssh := mac.SSH(t)
	archive, digest := mactest.TartArchive(t)
	content, err := os.ReadFile(archive)
	require.NoError(t, err)
	mac.WriteFile("/Users/ci/tart.tar.gz", string(content), 0o644)

	s := macsUp(t, string(mac.Root))
	dir, box, w := s.dir, s.box, s.w
	f := &fleetOfOne{t, w, mac}
	t.Cleanup(func() {
		if t.Failed() {
			f.describe()
			return
		}
		f.leaves()
	})
	f.rights()
	f.apply(modelPool)
	f.secret("mac-ssh", "id", writeFile(t, "id", string(ssh.PrivateKey)))
	f.secret("mac-password", "password", writeFile(t, "password", mac.Password))
	f.secret("mac-kubeconfig", "kubeconfig", filepath.Join(dir, "identities", "node-bootstrap.kubeconfig"))
	f.config("/Users/ci/tart.tar.gz", digest, "")
	host, port, err := net.SplitHostPort(ssh.Address)
	require.NoError(t, err)
	f.apply(fmt.Sprintf(modelHost, host, port))

	f.awaitState("Ready", "")
	require.Equal(t, "darwin models bullpen.dev/macos:NoSchedule", f.node(`{.metadata.labels.kubernetes\.io/os} {.metadata.labels.bullpen\.dev/mac-pool} {.spec.taints[0].key}:{.spec.taints[0].effect}`))
	require.Equal(t, ssh.HostKey(), f.kubectl("get", "machost", "model", "-n", "bullpen-runners", "-o", "jsonpath={.status.hostKey}"))
	first := f.applied()

	gate := filepath.Join(t.TempDir(), "gate")
	submit(t, dir, w, fmt.Sprintf(jobThatWaits, "waits", gate))
	box.await(t, "the job", func(e event) bool { return e.Job != nil && e.Job.Name == "waits" && e.Job.Status == "in_progress" })

	f.config("/Users/ci/tart.tar.gz", digest, "logs: {maxMB: 7}\n")
	f.awaitState("Ready", first)
	second := f.applied()
	f.config("/Users/ci/tart.tar.gz", digest, "logs: {maxMB: 7}\nssh: {allowFrom: [10.0.0.0/8, 127.0.0.0/8]}\n")
	f.awaitState("Draining", "")
	require.Eventually(t, func() bool {
		return f.node(`{.spec.unschedulable} {.metadata.annotations.bullpen\.dev/cordoned-by}`) == "true bullpen-runners/model"
	}, patience, interval)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	box.await(t, "the job's success", jobEnded("waits", "success"))
	f.awaitState("Ready", second)
	require.Eventually(t, func() bool { return f.node("{.spec.unschedulable}") == "" }, patience, interval, "it is uncordoned")
	require.Contains(t, mac.Run("root", "/sbin/pfctl", "-a", "bullpen.ssh", "-sr"), "port = 22")

	was := f.node("{.metadata.uid}")
	f.kubectl("delete", "node", "model")
	require.Eventually(t, func() bool {
		uid, err := look(t, w, "nodes.", "", "model", "{.metadata.uid}")
		return err == nil && uid != "" && uid != was
	}, patience, interval, "the Node comes back (NODE-8)")
	submit(t, dir, w, fmt.Sprintf(jobThatWaits, "again", gate))
	box.await(t, "the success of a job on the Mac that came back", jobEnded("again", "success"))

	written := f.kubectl("get", "machosts,events,nodes,configmaps", "-A", "-o", "yaml")
	logs, err := os.ReadFile(filepath.Join(dir, "logs", "controller.log"))
	require.NoError(t, err)
	for _, text := range []string{written, string(logs)} {
		require.NotContains(t, text, mac.Password)
		require.NotContains(t, text, strings.Split(string(ssh.PrivateKey), "\n")[1])
	}
}
