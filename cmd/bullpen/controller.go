package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// controllerFlags is the command line of bullpen controller.
type controllerFlags struct {
	kubeconfig      string
	serverURL       string
	serverTokenFile string
	verbose         bool
	options         controller.Options
	macs            macFlags
	registering     registeringFlags
	egress          egressFlags
}

func newControllerCommand() *cobra.Command {
	var flags controllerFlags
	command := &cobra.Command{
		Use:   "controller",
		Short: "Keep the pods of every RunnerPool at their number and template",
		Long: `Keep the pods of every RunnerPool at their number and template.

The controller creates a pod and a ServiceAccount for each warm runner, replaces those that have
ended, and is the only part of Bullpen that deletes runner pods. It deletes one that has not ended
only if the server grants it; while the server cannot be asked, nothing idle is deleted.

It runs under the role bullpen-controller and speaks to the server with a token for the audience
bullpen-server, which it reads again before each request.`,
		Example: `  # in a cluster
  bullpen controller --server-url http://bullpen-dispatch.bullpen-system.svc \
    --server-token-file /var/run/secrets/bullpen/token \
    --dispatch-url http://bullpen-dispatch.bullpen-system.svc --agent-image ghcr.io/bullpen-ci/bullpen:v1

  # on a developer's machine
  bullpen controller --kubeconfig controller.kubeconfig --server-url http://127.0.0.1:8080 \
    --server-token-file controller.token --dispatch-url http://127.0.0.1:8080 \
    --agent-image bullpen --agent-command "$(command -v bullpen-agent)" --leader-elect=false`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options, err := flags.prepare(command.Context())
			if err != nil {
				return err
			}
			return controller.Run(command.Context(), options)
		},
	}
	flags.register(command)
	return command
}

func (f *controllerFlags) register(command *cobra.Command) {
	set := command.Flags()
	o := &f.options
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the API server (default: the pod's own ServiceAccount)")
	set.StringVar(&o.Namespace, "namespace", "bullpen-runners", "namespace of the pools and their pods")
	set.StringVar(&f.serverURL, "server-url", "", "base URL of the server, as the controller reaches it")
	set.StringVar(&f.serverTokenFile, "server-token-file", "", "file with the token for the server; read again before each request")
	set.StringVar(&o.Pod.DispatchURL, "dispatch-url", "", "base URL of the server, as runner pods reach it (default: --server-url)")
	set.StringVar(&o.Pod.AgentImage, "agent-image", "", "image that holds bullpen-agent")
	set.StringVar(&o.Pod.AgentCommand, "agent-command", "", "path of bullpen-agent in that image (default "+runnerpod.DefaultAgentCommand+")")
	set.StringSliceVar(&o.Pod.MicroVMClasses, "microvm-runtime-classes", runnerpod.DefaultMicroVMClasses(),
		"runtime classes that put each pod into a microVM: only these may have a Docker daemon or a folder of the host; the\n"+
			"admission policy bullpen-runner-privileges must name the same")
	set.StringSliceVar(&o.DisruptionTaints, "disruption-taints", nodes.DefaultDisruptionTaints(),
		"taints by which other tools say that they are about to remove a node, as KEY or KEY=VALUE, where a KEY may end in *: idle\n"+
			"runners leave a node with one of them, unless they tolerate it; PreferNoSchedule never counts. Empty for none")
	set.StringVar(&o.MetricsAddress, "metrics-addr", ":9090", "address that serves /metrics; empty for none")
	set.StringVar(&o.HealthAddress, "health-addr", ":8081", "address that serves /healthz and /readyz; empty for none")
	set.BoolVar(&o.LeaderElect, "leader-elect", true, "of several controllers, let one work at a time")
	set.StringVar(&o.LeaseNamespace, "leader-elect-namespace", "bullpen-system", "namespace of the Lease")
	set.IntVar(&o.Workers, "workers", 0, "requests of one kind under way at once (default 16)")
	f.egress.register(set)
	f.registering.register(set)
	f.macs.register(set)
	set.BoolVar(&f.verbose, "verbose", false, "log more")
	for _, name := range []string{"server-url", "server-token-file", "agent-image"} {
		_ = command.MarkFlagRequired(name) // fails only for a flag that does not exist
	}
}

func (f *controllerFlags) prepare(ctx context.Context) (controller.Options, error) {
	o := f.options
	if o.Pod.DispatchURL == "" {
		o.Pod.DispatchURL = f.serverURL
	}
	if err := controller.CheckAddress("metrics-addr", o.MetricsAddress); err != nil {
		return o, err
	}
	if err := controller.CheckAddress("health-addr", o.HealthAddress); err != nil {
		return o, err
	}
	egress, err := f.egress.options()
	if err != nil {
		return o, err
	}
	o.Pod.Egress = egress
	server, err := serverclient.New(serverclient.Options{BaseURL: f.serverURL, TokenFile: f.serverTokenFile})
	if err != nil {
		return o, err
	}
	o.Server = server
	if o.Config, err = clusterConfig(f.kubeconfig); err != nil {
		return o, err
	}
	if o.Macs, err = f.macs.prepare(o.LeaseNamespace); err != nil {
		return o, err
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	controller.SetLibraryLog(o.Log)
	o.SelfRegistering, err = f.registering.prepare(ctx, controller.DefaultRegistry(), o.Log)
	return o, err
}

// restConfig reads the kubeconfig, or what a pod is given.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no API server: name a file with --kubeconfig, or run in a pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// clusterConfig is restConfig for a part of the fleet: the API server is reached directly, for a proxy in the environment is there for GitHub
// (NET-12). A kubeconfig's own proxy-url counts.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err == nil && config.Proxy == nil {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	}
	return config, err
}
