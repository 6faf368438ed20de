package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/lib/logfile"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/tart"
)

// Names of sandboxes, as given by --sandbox and shown in the node's label.
const (
	sandboxProcess   = "process"
	sandboxSynthetic = "synthetic"
	sandboxTart      = "tart"
)

// logLook is the interval of checking the log's file.
const logLook = 10 * time.Second

// nodeFlags are the command line of bullpen node.
type nodeFlags struct {
	sandbox, name, stateDir string
	kubeconfig, bootstrap   string
	cpu, memory, disk, ip   string
	pods                    int64
	labels, taints          []string
	tart                    tartFlags
	kubelet                 kubeletFlags
	metrics                 string
	logFile                 string
	minDiskFree             string
}

func newNodeCommand() *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Register this machine as a Kubernetes node and run the pods bound to it",
		Long: `Register this machine as a Kubernetes node, and run the pods bound to it in a sandbox.

With --bootstrap-kubeconfig, whose token can only request certificates, the node requests a client certificate of its own
(kubernetes.io/kube-apiserver-client-kubelet), waits for its approval, keeps it in the state directory, and renews it long before it
expires. The token is needed once. With --kubeconfig you manage the identity: it must be system:node:NAME in the group system:nodes.
See docs/guides/credentials.md for both, and for providers that sign no such certificates.

kubectl logs and kubectl exec go through the API server, which connects to the node at --kubelet-port. It authenticates with a client
certificate of an authority in --client-ca-file or with a token, and needs the right nodes/proxy. The node serves with a certificate
that it requests (kubernetes.io/kubelet-serving; approve it: kubectl get csr), or with --tls-cert-file.

Pods survive this process, even if it is killed: the next one with the same --state-dir continues with them. "bullpen node cleanup"
stops them. (Under systemd set KillMode=process, otherwise systemd stops them too. A launchd job needs AbandonProcessGroup.)

Sandboxes:
  process    Containers are processes of this machine, of the user who runs this command. ISOLATION: NONE. Images are
             ignored, and each container needs a command. A volume's mountPath is replaced by the real directory in
             command, args, env and workingDir. For one-machine mode and tests; never for untrusted code.
  synthetic  No processes: containers exist in memory until this process exits. For load tests.
  tart       On a Mac: the runner of each pod is a macOS virtual machine of Tart (https://tart.run), which you install; at most
             two at a time, as Apple's licence allows. Other containers are processes of this machine. See docs/guides/macos.md.`,
		Example: `  bullpen node --sandbox process --name mac-1 --bootstrap-kubeconfig bootstrap.kubeconfig --state-dir /var/lib/bullpen-node
  bullpen node --sandbox process --name ci-1 --kubeconfig node.kubeconfig --state-dir /srv/bullpen \
    --cpu 16 --memory 32Gi --pods 50 --label pool=ci --taint dedicated=ci:NoSchedule
  bullpen node --sandbox tart --name mac-1 --kubeconfig node.kubeconfig --state-dir /Users/ci/bullpen --tart /opt/homebrew/bin/tart`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.sandbox == sandboxTart && !cmd.Flags().Changed("pods") {
				f.pods = int64(f.tart.slots)
			}
			return runNode(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.sandbox, "sandbox", sandboxProcess, "sandbox of the pods: process, synthetic or tart")
	flags.StringVar(&f.name, "name", "", "name of the node (default: the host name)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig to authenticate with, as system:node:NAME")
	flags.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig with a bootstrap token, to request a certificate for --name")
	flags.StringVar(&f.stateDir, "state-dir", "", "directory for pods, volumes and logs (required)")
	flags.StringVar(&f.cpu, "cpu", "", "CPU capacity, such as 8 or 7500m (default: the machine's)")
	flags.StringVar(&f.memory, "memory", "", "memory capacity, such as 16Gi (default: the machine's)")
	flags.StringVar(&f.disk, "ephemeral-storage", "", "disk capacity, such as 500Gi; pods that write more are not evicted (default: the size of the state directory's file system)")
	flags.Int64Var(&f.pods, "pods", 110, "maximum number of pods (default with --sandbox tart: --vm-slots)")
	flags.StringVar(&f.minDiskFree, "min-disk-free", node.DefaultDiskReserve.String(),
		"free disk space below which the node accepts no new pods, such as 10%, 20Gi, or 10%,20Gi for the smaller of the two (running pods continue)")
	f.tart.add(flags)
	flags.StringVar(&f.ip, "node-ip", "", "IP address of the node and its pods (default 127.0.0.1)")
	flags.StringVar(&f.metrics, "metrics-listen", "", "listen address for the metrics over plain HTTP, such as 127.0.0.1:9091; empty: disabled")
	flags.StringVar(&f.logFile, "log-file", "", "append the log to this file instead of standard error; a renamed file is replaced by a new one")
	flags.StringArrayVar(&f.labels, "label", nil, "label of the node, KEY=VALUE (can be repeated)")
	flags.StringArrayVar(&f.taints, "taint", nil, "taint of the node at its registration, KEY[=VALUE]:EFFECT (can be repeated)")
	f.kubelet.add(flags)
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	cobra.CheckErr(cmd.MarkFlagRequired("state-dir"))
	cmd.MarkFlagsOneRequired("kubeconfig", "bootstrap-kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("kubeconfig", "bootstrap-kubeconfig")
	cmd.AddCommand(newNodeStatusCommand(), newNodeCleanupCommand(), newNodeShimCommand(), newNodeEnterCommand())
	return cmd
}

// runNode wires and runs the agent.
func runNode(ctx context.Context, f nodeFlags) error {
	if f.logFile != "" {
		stop, err := logfile.Follow(os.Stderr, f.logFile, logLook)
		if err != nil {
			return err
		}
		defer stop()
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	unlock, err := process.Lock(opts.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	if opts.Sandbox, err = f.openSandbox(opts.StateDir, opts.Log); err != nil {
		return err
	}
	if closer, ok := opts.Sandbox.(interface{ Close() }); ok {
		defer closer.Close()
	}
	if err := opts.CheckName(ctx); err != nil {
		return err
	}
	if f.bootstrap != "" {
		own, err := f.ownIdentity(ctx, opts)
		if err != nil {
			return err
		}
		defer own.Close()
		opts.Config = own.Config()
	}
	opts.KubeletPort = f.kubelet.port
	agent, err := node.New(opts)
	if err != nil {
		return err
	}
	stopMetrics, err := serveNodeMetrics(ctx, f.metrics, agent)
	if err != nil {
		return err
	}
	defer stopMetrics()
	return f.kubelet.run(ctx, opts, agent)
}

// options reads the flags; the sandbox is still to be opened.
func (f nodeFlags) options() (node.Options, error) {
	opts := node.Options{
		Name: f.name, SandboxName: f.sandbox, IP: f.ip, Version: version,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if opts.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return opts, fmt.Errorf("reading the host name: %w. Use --name", err)
		}
		opts.Name = strings.ToLower(host)
	}
	var err error
	if opts.StateDir, err = filepath.Abs(f.stateDir); err != nil {
		return opts, fmt.Errorf("resolving --state-dir: %w", err)
	}
	if err := os.MkdirAll(opts.StateDir, 0o700); err != nil {
		return opts, fmt.Errorf("creating the state directory: %w", err)
	}
	if f.kubeconfig != "" {
		if opts.Config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig); err != nil {
			return opts, fmt.Errorf("reading --kubeconfig: %w", err)
		}
	}
	if opts.Capacity, err = f.capacity(opts.StateDir); err != nil {
		return opts, err
	}
	if opts.Labels, err = parseLabels(f.labels); err != nil {
		return opts, err
	}
	if opts.MinDiskFree, err = node.ParseDiskReserve(f.minDiskFree); err != nil {
		return opts, fmt.Errorf("--min-disk-free %w", err)
	}
	opts.Taints, err = parseTaints(f.taints)
	return opts, err
}

// ownIdentity gets the node a certificate, or takes up the one that it has.
func (f nodeFlags) ownIdentity(ctx context.Context, opts node.Options) (*identity.Identity, error) {
	bootstrap, err := clientcmd.BuildConfigFromFlags("", f.bootstrap)
	if err != nil {
		return nil, fmt.Errorf("reading --bootstrap-kubeconfig: %w", err)
	}
	return identity.Open(ctx, identity.Options{Name: opts.Name, Bootstrap: bootstrap, Dir: identity.Dir(opts.StateDir), Log: opts.Log})
}

func (f nodeFlags) openSandbox(stateDir string, log *slog.Logger) (sandbox.Sandbox, error) {
	switch f.sandbox {
	case sandboxProcess:
		return process.New(process.Options{StateDir: stateDir, Log: log})
	case sandboxSynthetic:
		return synthetic.New(synthetic.NewMachine(nil)), nil
	case sandboxTart:
		return f.tart.open(stateDir, log)
	}
	return nil, fmt.Errorf("--sandbox must be process, synthetic or tart, got %q", f.sandbox)
}

func (f nodeFlags) capacity(stateDir string) (corev1.ResourceList, error) {
	if f.pods <= 0 {
		return nil, fmt.Errorf("--pods must be 1 or more, got %d", f.pods)
	}
	list, err := node.HostCapacity(stateDir, f.pods)
	if err != nil {
		return nil, err
	}
	for name, text := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: f.cpu, corev1.ResourceMemory: f.memory, corev1.ResourceEphemeralStorage: f.disk,
	} {
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() <= 0 {
			return nil, fmt.Errorf("--%s must be a positive quantity such as 8, 7500m or 16Gi, got %q", name, text)
		}
		list[name] = q
	}
	return list, nil
}

func parseLabels(items []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, item := range items {
		key, value, ok := strings.Cut(item, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--label must be KEY=VALUE, got %q", item)
		}
		labels[key] = value
	}
	return labels, nil
}

func parseTaints(items []string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for _, item := range items {
		subject, effect, ok := strings.Cut(item, ":")
		key, value, _ := strings.Cut(subject, "=")
		t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			ok = false
		}
		if !ok || key == "" {
			return nil, fmt.Errorf("--taint must be KEY[=VALUE]:EFFECT with EFFECT NoSchedule, PreferNoSchedule or NoExecute, got %q", item)
		}
		taints = append(taints, t)
	}
	return taints, nil
}

func newNodeCleanupCommand() *cobra.Command {
	var stateDir string
	var machines tartFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Stop every process and virtual machine of a node agent's state directory",
		Long: `Stop every process of the process sandbox in a state directory, and stop and delete every virtual machine of the Tart sandbox. Logs and
base images are kept. It fails while a node agent uses the directory.`,
		Example: `  bullpen node cleanup --state-dir /var/lib/bullpen-node
  bullpen node cleanup --state-dir /Users/ci/bullpen --tart /opt/homebrew/bin/tart`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(stateDir)
			if err != nil {
				return fmt.Errorf("resolving --state-dir: %w", err)
			}
			pods, err := cleanUp(cmd.Context(), dir, machines)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "stopped %d pods in %s\n", pods, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "the node agent's state directory (required)")
	machines.addProgram(cmd.Flags())
	cobra.CheckErr(cmd.MarkFlagRequired("state-dir"))
	return cmd
}

// cleanUp stops what the state directory owns, of any sandbox.
func cleanUp(ctx context.Context, stateDir string, machines tartFlags) (int, error) {
	if !tart.Used(stateDir) {
		return process.Cleanup(ctx, stateDir)
	}
	opts, err := machines.options(stateDir, nil)
	if err != nil {
		return 0, err
	}
	return tart.Cleanup(ctx, opts)
}

// newNodeShimCommand is not for people: the process sandbox starts it, one for each container.
func newNodeShimCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "shim CONTAINER-DIRECTORY",
		Short:  "Supervise one container (started by the node agent)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return process.RunShim(args[0]) },
	}
}

// newNodeEnterCommand is not for people: the shim of a container with an enclosure starts it, and it becomes the container.
func newNodeEnterCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "enter CONTAINER-DIRECTORY [-- COMMAND...]",
		Short:  "Become a container of the process sandbox (started by the node agent)",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return notStarted{process.RunEnter(args[0], args[1:])}
		},
	}
}

// notStarted ends a container whose program could not be started with the code that container runtimes give it.
type notStarted struct{ error }

func (notStarted) ExitCode() int { return 128 }
