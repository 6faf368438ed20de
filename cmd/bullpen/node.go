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

// logLook is how often the log's file is looked at.
const logLook = 10 * time.Second

// nodeFlags are what `bullpen node` is told.
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
		Long: `Registers this machine as a Kubernetes node and runs the pods bound to it in a sandbox.

With --bootstrap-kubeconfig, whose token may do nothing but ask, the node requests a client certificate of its own
(kubernetes.io/kube-apiserver-client-kubelet), waits until that is approved and signed, keeps it in the state folder, and replaces it long
before it expires. The token is needed once. With --kubeconfig somebody else cares for the identity: it must be system:node:NAME in the
group system:nodes. docs/guides/credentials.md has both, and what to do where a provider signs no such certificates.

kubectl logs and kubectl exec work through the API server, which asks the node at --kubelet-port. It is let in by a client certificate
that an authority of --client-ca-file has signed, or by a token, and by its rights to nodes/proxy. The node proves itself with a
certificate that it requests (kubernetes.io/kubelet-serving; somebody has to approve that: kubectl get csr), or with --tls-cert-file.

Ending this process, however it ends, ends no pod:
the next one with the same --state-dir finds them again. "bullpen node cleanup" ends them. (Under systemd say KillMode=process,
or systemd ends them all the same. A launchd job needs AbandonProcessGroup.)

Sandboxes:
  process    Containers are processes of this machine, of the user who runs this command. ISOLATION: NONE. Images are
             ignored, each container needs a command; a volume's mountPath is replaced by the real folder wherever it occurs in
             command, args, env and workingDir. For one-machine mode and tests; never for code of strangers.
  synthetic  No processes at all: containers exist in memory, until this process ends. For load tests.
  tart       On a Mac: the runner of each pod is a macOS virtual machine, made and run by Tart (https://tart.run), which you install; two at a
             time, as Apple's licence allows. Its other containers are processes of this machine. docs/guides/macos.md tells how.`,
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
	flags.StringVar(&f.sandbox, "sandbox", sandboxProcess, "what runs the pods: process, synthetic or tart")
	flags.StringVar(&f.name, "name", "", "name of the node (default: this machine's host name)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the API server, as system:node:NAME")
	flags.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "how to reach the API server with a bootstrap token, to get a certificate for --name")
	flags.StringVar(&f.stateDir, "state-dir", "", "where pods, volumes and logs are kept (required)")
	flags.StringVar(&f.cpu, "cpu", "", "CPUs to offer, such as 8 or 7500m (default: what the machine has)")
	flags.StringVar(&f.memory, "memory", "", "memory to offer, such as 16Gi (default: what the machine has)")
	flags.StringVar(&f.disk, "ephemeral-storage", "", "disk to offer, such as 500Gi ; pods that write more are not evicted (default: the size of the state directory's file system)")
	flags.Int64Var(&f.pods, "pods", 110, "how many pods to offer room for (with --sandbox tart: the default is --vm-slots)")
	flags.StringVar(&f.minDiskFree, "min-disk-free", node.DefaultDiskReserve.String(),
		"what has to be free where the state folder and images are, such as 10%, 20Gi, or 10%,20Gi for the lesser of the two, or no new pods come (those that run go on)")
	f.tart.add(flags)
	flags.StringVar(&f.ip, "node-ip", "", "address of the node and its pods (default 127.0.0.1)")
	flags.StringVar(&f.metrics, "metrics-listen", "", "address for the metrics of --kubelet-port over plain HTTP, such as 127.0.0.1:9091; empty serves none")
	flags.StringVar(&f.logFile, "log-file", "", "write the log to the end of this file instead of standard error, and go on in a new one when it has been renamed")
	flags.StringArrayVar(&f.labels, "label", nil, "label of the node, KEY=VALUE (repeatable)")
	flags.StringArrayVar(&f.taints, "taint", nil, "taint of the node when it is registered, KEY[=VALUE]:EFFECT (repeatable)")
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
	if f.bootstrap != "" {
		own, err := f.ownIdentity(ctx, opts)
		if err != nil {
			return err
		}
		defer own.Close()
		opts.Config = own.Config()
	}
	if opts.Sandbox, err = f.openSandbox(opts.StateDir, opts.Log); err != nil {
		return err
	}
	if closer, ok := opts.Sandbox.(interface{ Close() }); ok {
		defer closer.Close()
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
			return opts, fmt.Errorf("finding this machine's name: %w; give --name", err)
		}
		opts.Name = strings.ToLower(host)
	}
	var err error
	if opts.StateDir, err = filepath.Abs(f.stateDir); err != nil {
		return opts, fmt.Errorf("state folder: %w", err)
	}
	if err := os.MkdirAll(opts.StateDir, 0o700); err != nil {
		return opts, fmt.Errorf("making the state folder: %w", err)
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
	return nil, fmt.Errorf("there is no sandbox %q: use --sandbox process, synthetic or tart", f.sandbox)
}

func (f nodeFlags) capacity(stateDir string) (corev1.ResourceList, error) {
	if f.pods <= 0 {
		return nil, fmt.Errorf("--pods %d: give a positive number", f.pods)
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
			return nil, fmt.Errorf("--%s %q: give a positive quantity such as 8, 7500m or 16Gi", name, text)
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
			return nil, fmt.Errorf("--label %q: write KEY=VALUE", item)
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
			return nil, fmt.Errorf("--taint %q: write KEY[=VALUE]:EFFECT, where EFFECT is NoSchedule, PreferNoSchedule or NoExecute", item)
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
		Short: "End every process and virtual machine that a node agent started in a state folder",
		Long: `Ends every process that the process sandbox started in a state folder, and ends and deletes every virtual machine of the Tart sandbox, and
nothing else. Logs stay, and so do the golden bases of images. It refuses to work while a node agent uses the folder.`,
		Example: `  bullpen node cleanup --state-dir /var/lib/bullpen-node
  bullpen node cleanup --state-dir /Users/ci/bullpen --tart /opt/homebrew/bin/tart`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(stateDir)
			if err != nil {
				return fmt.Errorf("state folder: %w", err)
			}
			pods, err := cleanUp(cmd.Context(), dir, machines)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing of %d pods in %s runs any more\n", pods, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "the node agent's state folder (required)")
	machines.addProgram(cmd.Flags())
	cobra.CheckErr(cmd.MarkFlagRequired("state-dir"))
	return cmd
}

// cleanUp ends what the state folder owns, whichever sandbox that was.
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
		Use:    "shim CONTAINER-FOLDER",
		Short:  "Stand between the node agent and one container (started by the node agent)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return process.RunShim(args[0]) },
	}
}

// newNodeEnterCommand is not for people: the shim of a container with an enclosure starts it, and it becomes the container.
func newNodeEnterCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "enter CONTAINER-FOLDER [-- COMMAND...]",
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
