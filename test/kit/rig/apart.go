package rig

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// Process is a part of the fleet that has a process of its own (Options.Binary).
type Process struct {
	Name    string
	PID     int
	Metrics string // URL of what it tells Prometheus
}

// Processes are the parts that run as processes of their own, in the order of their start.
func (f *Fleet) Processes() []Process { return f.processes }

// startApart runs the server and the controller as processes, with the identities and the arguments of an installation.
func (f *Fleet) startApart() {
	f.tb.Helper()
	listen := f.addresses(6)
	public, internal, admin := listen[0], listen[1], listen[2]
	f.public, f.internal = "http://"+public, "http://"+internal
	f.startProcess(Server, listen[3], "http://"+public+"/readyz", onebox.Server{
		Listen: public, Internal: internal, Admin: admin, Metrics: listen[3],
		DatabaseURLFile: f.secret("database", f.options.Database), Kubeconfig: f.kubeconfig(serverName), RunnerNamespace: f.Namespace,
		GitHubURL: f.GitHub.URL + "/api/v3", AppID: 1, AppKeyFile: f.secret("app.pem", string(f.GitHub.AppKeyPEM)),
		WebhookSecretFile: f.secret("webhook", hookSecret),
	}.Args()...)
	f.startProcess(Controller, listen[4], "http://"+listen[5]+"/readyz", onebox.Controller{
		Kubeconfig: f.kubeconfig(controllerName), ServerURL: f.internal, ServerTokenFile: f.controllerToken(), DispatchURL: f.internal,
		AgentImage: "agent:1", Health: listen[5], Metrics: listen[4], Flags: []string{"--namespace=" + f.Namespace},
	}.Args()...)
}

// startProcess runs the binary until the fleet ends, and waits until it is ready.
func (f *Fleet) startProcess(name, metrics, ready string, args ...string) {
	f.tb.Helper()
	log := filepath.Join(f.tb.TempDir(), name+".log")
	command := exec.Command(f.options.Binary, args...) //nolint:noctx,gosec // its part ends it; the arguments are ours
	command.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + f.tb.TempDir()}
	child, err := childproc.StartLogged(command, log, syscall.SIGKILL)
	require.NoError(f.tb, err)
	f.processes = append(f.processes, Process{Name: name, PID: child.PID(), Metrics: "http://" + metrics + "/metrics"})
	f.parts.Go(func() {
		select {
		case <-f.ctx.Done():
			child.Stop(context.Background(), syscall.SIGTERM, 30*time.Second)
		case <-child.Done():
			text, _ := os.ReadFile(log)
			f.tb.Errorf("the %s has ended: %s\n%s", name, child.Outcome(), text[max(0, len(text)-2000):])
		}
	})
	answers := onebox.Answers(ready)
	require.Eventually(f.tb, func() bool { return answers(f.ctx) == nil }, time.Minute, 50*time.Millisecond, "the %s never got ready", name)
}

// addresses are loopback addresses without a listener.
func (f *Fleet) addresses(n int) []string {
	var found []string
	for range n {
		listener, err := new(net.ListenConfig).Listen(f.ctx, "tcp", "127.0.0.1:0")
		require.NoError(f.tb, err)
		defer listener.Close() // once all are there, so that they differ
		found = append(found, listener.Addr().String())
	}
	return found
}

// secret writes text into a file of its own.
func (f *Fleet) secret(name, text string) string {
	path := filepath.Join(f.tb.TempDir(), name)
	require.NoError(f.tb, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// kubeconfig is that of one of the product's ServiceAccounts, with the rights that the chart gives it.
func (f *Fleet) kubeconfig(account string) string {
	config := f.options.Cluster.As(f.tb, serviceAccounts+account, "system:serviceaccounts", "system:authenticated")
	path := filepath.Join(f.tb.TempDir(), account+".kubeconfig")
	require.NoError(f.tb, controlplane.WriteKubeconfig(path, config))
	return path
}
