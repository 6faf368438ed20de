package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/githubapp"
)

func newGitHubAppCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "github-app",
		Short: "Create the GitHub App that Bullpen works as",
		Long: `The server and the controller call GitHub as a GitHub App, which you own. The App has a private key and a webhook secret, which the
chart reads from a Secret.`,
		Example: "  bullpen github-app create --organization acme --webhook-url https://bullpen.example.com",
	}
	cmd.AddCommand(newGitHubAppCreateCommand())
	return cmd
}

// githubAppConfig is the command line of bullpen github-app create.
type githubAppConfig struct {
	conn      cli.Connection
	github    githubFlags
	format    cli.Format
	app       githubapp.App
	listen    string
	timeout   time.Duration
	request   time.Duration
	open      bool
	outputDir string
	namespace string
	secret    string
}

func newGitHubAppCreateCommand() *cobra.Command {
	cfg := githubAppConfig{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a GitHub App in the browser, and store its credentials in the cluster",
		Long: `Creates a GitHub App with the permissions and events that Bullpen needs. The command prints a URL of this machine. Open it in a browser
that is logged in to GitHub, check what is shown there, and confirm the App at GitHub. GitHub sends a code back to this command, which
exchanges it for the App's private key and webhook secret, and stores both:

- in a Secret of the cluster of your kubeconfig, under the names that the chart reads; or
- with --output-dir, in the files private-key.pem and webhook-secret, which only you can read.

Neither is printed. An existing Secret or file is not overwritten. GitHub shows the private key once, so whether it can be stored is
checked first.

Without --webhook-url the server polls GitHub, for a cluster that GitHub cannot reach. Without --organization you own the App yourself.

When this machine has no browser, choose a port and forward it: bullpen github-app create --listen 127.0.0.1:8765 there, and
ssh -L 8765:127.0.0.1:8765 HOST on the machine with the browser.`,
		Example: `  bullpen github-app create --organization acme --webhook-url https://bullpen.example.com
  bullpen github-app create --organization acme --output-dir app
  bullpen github-app create --organization acme --github-url https://ghes.example.com --github-ca-file ca.crt --webhook-url https://bullpen.example.com`,
		Args: cobra.NoArgs,
		RunE: cfg.run,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.app.Organization, "organization", "", "organization that owns the App (default: you)")
	f.StringVar(&cfg.app.Name, "name", "", "name of the App, unique at GitHub, at most 34 characters (default: bullpen-ORGANIZATION)")
	f.StringVar(&cfg.app.WebhookURL, "webhook-url", "", "URL at which GitHub reaches the server; /webhooks/github is added when it has no path (default: none, the server polls)")
	f.BoolVar(&cfg.app.Public, "public", false, "let accounts other than the owner install the App")
	f.BoolVar(&cfg.app.RerunLostJobs, "rerun-lost-jobs", false, "request Actions: write, which server.catchUp.rerunLostJobs needs")
	cfg.github.register(f)
	f.StringVar(&cfg.outputDir, "output-dir", "", "write the credentials to files in this directory instead of a Secret")
	f.StringVar(&cfg.conn.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster for the Secret (default: same as kubectl)")
	f.StringVar(&cfg.conn.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&cfg.namespace, "system-namespace", "bullpen-system", "namespace of the Secret")
	f.StringVar(&cfg.secret, "secret-name", githubapp.DefaultSecret, "name of the Secret (github.secret.name of the chart)")
	f.StringVar(&cfg.listen, "listen", "127.0.0.1:0", "loopback address for the browser; port 0 is a free one")
	f.DurationVar(&cfg.timeout, "timeout", githubapp.LongestWait, "time to wait for the confirmation at GitHub, at most 1h")
	f.DurationVar(&cfg.request, "request-timeout", 30*time.Second, "timeout of one request to GitHub or the cluster")
	f.BoolVar(&cfg.open, "open", false, "start a browser with the URL")
	cli.OutputFlag(f, &cfg.format)
	return cmd
}

func (cfg *githubAppConfig) run(cmd *cobra.Command, _ []string) error {
	api, err := cfg.github.api()
	if err != nil {
		return err
	}
	transport, _, err := cfg.github.trust(cmd.Context())
	if err != nil {
		return err
	}
	store, err := cfg.store()
	if err != nil {
		return err
	}
	options := githubapp.Options{
		App: cfg.app, API: api, Transport: transport, Store: store, Listen: cfg.listen, Wait: cfg.timeout,
		RequestTimeout: cfg.request, Out: cmd.ErrOrStderr(),
	}
	if cfg.open {
		options.Open = githubapp.OpenBrowser
	}
	result, err := githubapp.Run(cmd.Context(), options)
	if err != nil {
		return err
	}
	if cfg.format == cli.FormatTable || cfg.format == cli.FormatWide {
		return result.Print(cmd.OutOrStdout())
	}
	return cli.Print(cmd.OutOrStdout(), cfg.format, result, cli.Table{})
}

// store is where the credentials go.
func (cfg *githubAppConfig) store() (githubapp.Store, error) {
	if cfg.outputDir != "" {
		return githubapp.InDirectory{Path: cfg.outputDir}, nil
	}
	config, err := cfg.conn.Cluster(cfg.conn.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w. Name a cluster with --kubeconfig or --context, or use --output-dir", err)
	}
	config.Timeout = cfg.request
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return githubapp.InSecret{Client: client, Namespace: cfg.namespace, Name: cfg.secret, Cluster: config.Host}, nil
}
