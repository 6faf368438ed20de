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
	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
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
	jobContainers   bool
	registries      registryFlags
}

func newControllerCommand() *cobra.Command {
	var flags controllerFlags
	command := &cobra.Command{
		Use:   "controller",
		Short: "Reconcile the pods of every RunnerPool",
		Long: `Reconcile the pods of every RunnerPool with its number of replicas and its template.

The controller creates a pod and a ServiceAccount for each idle runner, replaces exited ones, and
is the only part of Bullpen that deletes runner pods. It deletes a running pod only with the
server's approval; while the server cannot be reached, no idle runner is deleted.

It needs the role bullpen-controller. It authenticates to the server with a token for the audience
bullpen-server, which it reloads before each request.`,
		Example: `  # In a cluster
  bullpen controller --server-url http://bullpen-dispatch.bullpen-system.svc \
    --server-token-file /var/run/secrets/bullpen/token \
    --dispatch-url http://bullpen-dispatch.bullpen-system.svc --agent-image ghcr.io/bullpen-ci/bullpen:v1

  # On a developer's machine
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
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig (default: the pod's ServiceAccount)")
	set.StringVar(&o.Namespace, "namespace", "bullpen-runners", "namespace of the pools and their pods")
	set.StringVar(&f.serverURL, "server-url", "", "base URL of the server for the controller")
	set.StringVar(&f.serverTokenFile, "server-token-file", "", "file with the token for the server; reloaded before each request")
	set.StringVar(&o.Pod.DispatchURL, "dispatch-url", "", "base URL of the server for runner pods (default: --server-url)")
	set.StringVar(&o.Pod.AgentImage, "agent-image", "", "image with bullpen-agent")
	set.StringVar(&o.Pod.AgentCommand, "agent-command", "", "path of bullpen-agent in that image (default "+runnerpod.DefaultAgentCommand+")")
	set.StringSliceVar(&o.Pod.MicroVMClasses, "microvm-runtime-classes", runnerpod.DefaultMicroVMClasses(),
		"runtime classes that run each pod in a microVM: only these can have a Docker daemon or a host path; the\n"+
			"admission policy bullpen-runner-privileges must have the same list")
	set.StringSliceVar(&o.DisruptionTaints, "disruption-taints", nodes.DefaultDisruptionTaints(),
		"taints that mark a node before its removal, as KEY or KEY=VALUE, where KEY can end in *: idle runners are removed\n"+
			"from such a node unless they tolerate the taint; PreferNoSchedule is ignored. Empty: none")
	set.StringVar(&o.MetricsAddress, "metrics-addr", ":9090", "listen address for /metrics; empty: disabled")
	set.StringVar(&o.HealthAddress, "health-addr", ":8081", "listen address for /healthz and /readyz; empty: disabled")
	set.BoolVar(&o.LeaderElect, "leader-elect", true, "elect a leader among several controllers")
	set.StringVar(&o.LeaseNamespace, "leader-elect-namespace", "bullpen-system", "namespace of the Lease")
	set.IntVar(&o.Workers, "workers", 0, "concurrent requests per kind (default 16)")
	f.egress.register(set)
	f.registering.register(set)
	f.macs.register(set)
	set.BoolVar(&f.jobContainers, "job-containers", false,
		"add the containers, services and container actions of jobs to the pods of runners with jobContainers; needs the\n"+
			"Secret "+jobcontainers.KeySecret+" in --leader-elect-namespace")
	f.registries.register(set)
	set.BoolVar(&f.verbose, "verbose", false, "log at debug level")
	for _, name := range []string{"server-url", "server-token-file", "agent-image"} {
		_ = command.MarkFlagRequired(name) // fails only for a flag that does not exist
	}
}

func (f *controllerFlags) prepare(ctx context.Context) (controller.Options, error) {
	o := f.options
	if o.Pod.DispatchURL == "" {
		o.Pod.DispatchURL = f.serverURL
	}
	var err error
	if o.Pod.MacDispatchURL, err = f.macs.dispatch(); err != nil {
		return o, err
	}
	if err := controller.CheckAddress("metrics-addr", o.MetricsAddress); err != nil {
		return o, err
	}
	if err := controller.CheckAddress("health-addr", o.HealthAddress); err != nil {
		return o, err
	}
	if o.Pod.Egress, err = f.egress.options(); err != nil {
		return o, err
	}
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
	if f.jobContainers {
		registries, err := f.registries.resolver()
		if err != nil {
			return o, err
		}
		o.JobContainers = &controller.JobContainersOptions{KeyNamespace: o.LeaseNamespace, Images: registries}
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
			return nil, fmt.Errorf("no API server: %w. Use --kubeconfig, or run in a pod", err)
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
