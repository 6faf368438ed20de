//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// devGitHubFlags are the flags of `bullpen dev github`, as given.
type devGitHubFlags struct {
	listen, url, stateFile                       string
	appID                                        int64
	privateKey                                   string
	generateKey                                  bool
	webhookURL, webhookSecretFile, secretsFile   string
	orgs, users, repos                           []string
	adminTokenFile                               string
	shuffleAssignment, shuffleWebhooks, freshKey bool
	runnerKeys                                   int
	coreLimit, registrationLimit                 int
	lostAfter, acquireWithin                     time.Duration
	verbose                                      bool
}

// newDevGitHubCommand is `bullpen dev github`: the GitHub stand-in by itself.
func newDevGitHubCommand() *cobra.Command {
	var f devGitHubFlags
	cmd := &cobra.Command{
		Use:   "github",
		Short: "Run a local GitHub: App and runner API, webhooks, the runner protocol, workflow files",
		Long: `Run a faithful local GitHub for development, demonstrations and fault tests.

It serves the REST API (bare and under /api/v3), delivers signed webhooks, speaks the runner
protocol, and runs workflow files that are submitted to its admin API under /_standin/. It keeps
its state in memory, and in --state-file if that is set.

GitHub's own runner 2.336.0 ran jobs against it (November 2026), with three responses corrected by a
proxy. They are fixed here since; tests replay what that runner sent, and the runner itself was not
run again. Of steps with "uses", images (docker://) and actions of the workspace (./) run, others
are refused. GitHub's runner drops the port of the URL that it registers with: to register one,
listen on port 80 or 443.
docs/internals/github-stand-in.md has the whole list.`,
		Example: `  # One organization with one repository; make a key for the App on the first start
  bullpen dev github --private-key app.pem --generate-key --repo acme/app \
    --webhook-url http://127.0.0.1:8080/webhooks/github --webhook-secret-file hook.secret

  # Submit a workflow file, then list its jobs
  curl -F file=@ci.yaml -F repo=acme/app http://127.0.0.1:8090/_standin/workflows
  curl http://127.0.0.1:8090/_standin/jobs

  # For GitHub's own runners, which register themselves
  bullpen dev github --private-key app.pem --repo acme/app --listen :80 --url http://github.test

  # Every tenth JIT configuration takes effect, but its response is lost
  curl -d '{"kind":"rest-cut","route":"generate-jitconfig","percent":10}' \
    http://127.0.0.1:8090/_standin/faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDevGitHub(cmd.Context(), f, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8090", "listen address")
	flags.StringVar(&f.url, "url", "", "URL for clients and runners (default: http:// and the listen address)")
	flags.Int64Var(&f.appID, "app-id", 1, "ID of the GitHub App")
	flags.StringVar(&f.privateKey, "private-key", "", "the App's RSA key in PEM; only its public part is used (required)")
	flags.BoolVar(&f.generateKey, "generate-key", false, "create the key file if it does not exist")
	flags.StringVar(&f.webhookURL, "webhook-url", "", "URL to deliver webhooks to")
	flags.StringVar(&f.webhookSecretFile, "webhook-secret-file", "", "file with the webhook secret")
	flags.StringVar(&f.secretsFile, "secrets-file", "", "file with the secrets of workflows, one NAME=VALUE per line")
	flags.StringSliceVar(&f.orgs, "org", nil, "organization with the App installed (can be repeated; owners of --repo are included)")
	flags.StringSliceVar(&f.users, "user", nil, "user with the App installed (can be repeated)")
	flags.StringSliceVar(&f.repos, "repo", nil, "repository, as owner/name (can be repeated)")
	flags.StringVar(&f.adminTokenFile, "admin-token-file", "", "file with the token of the admin API; without it the API needs no authentication")
	flags.StringVar(&f.stateFile, "state-file", "", "file to persist the state in")
	flags.BoolVar(&f.shuffleAssignment, "shuffle-assignment", false, "assign a job to any matching runner instead of the longest idle one")
	flags.BoolVar(&f.shuffleWebhooks, "shuffle-webhooks", false, "deliver webhooks in random order")
	flags.BoolVar(&f.freshKey, "fresh-runner-keys", false, "use a new RSA key for every registration (slow)")
	flags.IntVar(&f.runnerKeys, "runner-keys", 4, "number of RSA keys for runners to generate in advance")
	flags.IntVar(&f.coreLimit, "core-limit", 0, "REST requests per hour and installation (default 5000; -1: unlimited)")
	flags.IntVar(&f.registrationLimit, "registration-limit", 0, "runner registrations per hour and installation (default 10000; -1: unlimited)")
	flags.DurationVar(&f.lostAfter, "lost-after", 0, "time after which a silent runner of a running job is lost (default 10m)")
	flags.DurationVar(&f.acquireWithin, "acquire-within", 0, "timeout for a runner to acquire its job (default 1m)")
	flags.BoolVar(&f.verbose, "verbose", false, "log at debug level")
	return cmd
}

func runDevGitHub(ctx context.Context, f devGitHubFlags, out io.Writer) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listening on %s: %w. Choose another --listen", f.listen, err)
	}
	if opts.URL == "" {
		opts.URL = "http://" + listener.Addr().String()
	}
	server, err := standin.New(opts)
	if err != nil {
		_ = listener.Close() // nothing was served on it
		return err
	}
	fmt.Fprintf(out, "GitHub stand-in at %s (REST also under /api/v3, admin API under /_standin/)\n", opts.URL)
	return standin.Serve(ctx, listener, server)
}

func (f devGitHubFlags) options() (standin.Options, error) {
	opts := standin.Options{
		URL: f.url, AppID: f.appID, WebhookURL: f.webhookURL, StateFile: f.stateFile,
		ShuffleAssignment: f.shuffleAssignment, ShuffleWebhooks: f.shuffleWebhooks,
		FreshKeys: f.freshKey, RunnerKeys: f.runnerKeys, LostAfter: f.lostAfter, AcquireWithin: f.acquireWithin,
		Core: standin.RateLimit{Limit: f.coreLimit}, Registration: standin.RateLimit{Limit: f.registrationLimit},
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	key, err := f.appKey()
	if err != nil {
		return opts, err
	}
	if opts.AppKey, err = standin.ParseAppKey(key); err != nil {
		return opts, fmt.Errorf("reading --private-key %s: %w", f.privateKey, err)
	}
	if opts.WebhookSecret, err = readSecret("--webhook-secret-file", f.webhookSecretFile); err != nil {
		return opts, err
	}
	if opts.AdminToken, err = readSecret("--admin-token-file", f.adminTokenFile); err != nil {
		return opts, err
	}
	if f.secretsFile != "" {
		if opts.Secrets, err = standin.ReadSecrets(f.secretsFile); err != nil {
			return opts, err
		}
	}
	opts.Installations, err = f.installations()
	return opts, err
}

// appKey reads the key file; with --generate-key it makes a missing one, readable by its owner only.
func (f devGitHubFlags) appKey() ([]byte, error) {
	if f.privateKey == "" {
		return nil, errors.New("missing flag --private-key: name the App's key file, and add --generate-key to create it")
	}
	data, err := os.ReadFile(f.privateKey)
	if err == nil {
		return data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading --private-key: %w", err)
	}
	if !f.generateKey {
		return nil, fmt.Errorf("--private-key %s not found. Add --generate-key to create it", f.privateKey)
	}
	_, encoded, err := standin.GenerateAppKey()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(f.privateKey), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of --private-key: %w", err)
	}
	if err := os.WriteFile(f.privateKey, encoded, 0o600); err != nil {
		return nil, fmt.Errorf("writing --private-key: %w", err)
	}
	return encoded, nil
}

func readSecret(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%s %s is empty. Store the secret in it", flag, path)
	}
	return secret, nil
}

// installations groups repositories under their owners, in the order in which they were named.
func (f devGitHubFlags) installations() ([]standin.Installation, error) {
	var list []standin.Installation
	find := func(login, kind string) *standin.Installation {
		at := slices.IndexFunc(list, func(in standin.Installation) bool { return strings.EqualFold(in.Account, login) })
		if at < 0 {
			list = append(list, standin.Installation{Account: login, Type: kind})
			at = len(list) - 1
		}
		return &list[at]
	}
	for _, login := range f.users {
		find(login, "User")
	}
	for _, login := range f.orgs {
		find(login, "Organization")
	}
	for _, full := range f.repos {
		owner, name, ok := strings.Cut(full, "/")
		if !ok || owner == "" || name == "" {
			return nil, fmt.Errorf("--repo must be owner/name, got %q", full)
		}
		in := find(owner, "Organization")
		in.Repositories = append(in.Repositories, name)
	}
	if len(list) == 0 {
		return nil, errors.New("no accounts: give --repo owner/name, --org or --user")
	}
	return list, nil
}
