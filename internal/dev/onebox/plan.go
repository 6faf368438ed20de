package onebox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Namespaces, as the chart has them.
const (
	SystemNamespace = "bullpen-system"
	RunnerNamespace = "bullpen-runners"
)

// The parts, by the names that logs and messages use.
const (
	partServer     = "server"
	partController = "controller"
	partNode       = "node"
	partMac        = "node-mac"
	partGitHub     = "github"
	partPostgres   = "postgres"
)

// partName is a part's name in a sentence.
func partName(part string) string {
	switch part {
	case partNode:
		return "node agent"
	case partMac:
		return "macOS agent"
	default:
		return part
	}
}

// NodeName is the name under which this machine appears in the cluster.
const NodeName = "this-machine"

// MacNodeName is the name of the node that is a Mac, or would be one.
const MacNodeName = "local-mac"

// App is a real GitHub App to use instead of the stand-in.
type App struct {
	ID int64
	// KeyFile is the App's private key (PEM), SecretFile its webhook secret.
	KeyFile, SecretFile string
	// URL is GitHub's API. Empty: github.com's.
	URL string
}

const defaultAPI = "https://api.github.com"

func (a App) api() string {
	if a.URL == "" {
		return defaultAPI
	}
	return a.URL
}

// standInRepository is where workflows of the stand-in live.
const standInRepository = "acme/app"

// addresses are where our own processes listen, each as host:port.
type addresses struct {
	Webhooks, Internal, Admin, ServerMetrics, ControllerHealth, ControllerMetrics, Kubelet, MacKubelet, GitHub string
	// Images is where the controller asks for the images that the node has; empty without containers.
	Images string
	// Gate leads to Internal through the network policies; empty: there is none, and runners connect directly.
	Gate string
}

// dispatch is where runners ask for work.
func (a addresses) dispatch() string { return cmp.Or(a.Gate, a.Internal) }

// dispatchFor is the URL at which runners ask for work.
func dispatchFor(containers bool, a addresses) string {
	if containers {
		return dispatchURL
	}
	return a.url(a.dispatch())
}

func (a addresses) port(address string) string {
	_, port, _ := net.SplitHostPort(address) // we made it
	return port
}

func (a addresses) url(address string) string { return "http://" + address }

// setting is what the plan of processes is made from.
type setting struct {
	layout     Layout
	binary     string
	agent      string // bullpen-agent, which the pods of runners start
	addresses  addresses
	app        *App // nil: the stand-in
	poll       bool // GitHub's list of deliveries is read; nothing is delivered
	appID      int64
	capacity   capacity
	env        []string
	containers bool   // runners are containers
	macHosts   string // see Options
	// secretsFile is the file of workflows' secrets at the stand-in; see Options.
	secretsFile string
	traces      []string // the server's flags for its traces
	// clientAuthority is the file of the authority by which the node agent knows the API server.
	clientAuthority string
}

func (b *Box) setting() setting {
	s := setting{
		layout: b.layout, binary: b.opts.Binary, agent: b.opts.agent, addresses: b.addresses, app: b.opts.App, poll: b.opts.Poll, appID: 1,
		capacity: capacity{CPU: 64, Memory: "256Gi", Disk: "4Ti", Pods: 250}, env: baseEnvironment(os.Environ()),
		clientAuthority: b.plane.ClientAuthority(), macHosts: b.opts.MacHosts, secretsFile: b.opts.SecretsFile, containers: b.opts.Containers,
	}
	if b.opts.TraceEndpoint != "" {
		s.traces = []string{"--trace-endpoint=" + b.opts.TraceEndpoint, "--trace-link=" + b.opts.TraceLink}
	}
	if b.opts.App != nil {
		s.appID = b.opts.App.ID
	}
	return s
}

// capacity is what this machine claims to have for runners. Jobs of a demonstration mostly wait, so it may be more than
// the machine's own.
type capacity struct {
	CPU    int
	Memory string
	Disk   string
	Pods   int
}

// baseEnvironment passes on what a process needs of the environment to run at all, and nothing of ours or GitHub's: a
// secret in the user's environment is no business of any part.
func baseEnvironment(environ []string) []string {
	wanted := []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "GOCOVERDIR"}
	wanted = append(wanted, faultpoint.Environment()...)
	var kept []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains(wanted, name) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// standInCommand runs the local GitHub. Its webhooks go to the server.
func (s setting) standInCommand() Command {
	l := s.layout
	command := s.command(partGitHub, 5*time.Second, "dev", "github",
		"--listen="+s.addresses.GitHub,
		"--app-id="+strconv.FormatInt(s.appID, 10),
		"--private-key="+l.secret("app.pem"),
		"--webhook-url="+s.addresses.url(s.addresses.Webhooks)+"/webhooks/github",
		"--webhook-secret-file="+l.secret("webhook-secret"),
		"--admin-token-file="+l.secret("admin-token"),
		"--state-file="+l.githubState(),
		"--repo="+standInRepository,
		// GitHub notices a runner whose machine died after ten minutes, which is too long for a demonstration.
		"--lost-after=2m",
	)
	if s.secretsFile != "" {
		command.Args = append(command.Args, "--secrets-file="+s.secretsFile)
	}
	if s.containers {
		command.Args = append(command.Args, "--url="+standInURL)
	}
	return command
}

// github is GitHub's API, and the files with the App's key and the webhooks' secret.
func (s setting) github() (api, key, secret string) {
	if s.app != nil {
		return s.app.api(), s.app.KeyFile, s.app.SecretFile
	}
	return s.addresses.url(s.addresses.GitHub), s.layout.secret("app.pem"), s.layout.secret("webhook-secret")
}

func (s setting) serverCommand() Command {
	l := s.layout
	github, key, secret := s.github()
	if s.poll {
		secret = ""
	}
	server := Server{
		Listen: s.addresses.Webhooks, Internal: s.addresses.Internal, Admin: s.addresses.Admin, Metrics: s.addresses.ServerMetrics,
		DatabaseURLFile: l.secret("database-url"), Kubeconfig: l.identity("server.kubeconfig"), RunnerNamespace: RunnerNamespace,
		GitHubURL: github, AppID: s.appID, AppKeyFile: key, WebhookSecretFile: secret,
		Flags: append([]string{"--repository-caps"}, s.traces...),
	}
	if s.macHosts != "" {
		server.Flags = append(server.Flags, "--mac-hosts")
	}
	if s.app == nil { // the stand-in has no runners of GitHub's own: jobs for them stay queued
		server.Flags = append(server.Flags, "--github-hosted-labels=")
	}
	return s.command(partServer, 25*time.Second, server.Args()...)
}

func (s setting) controllerCommand() Command {
	l := s.layout
	github, key, _ := s.github()
	controller := Controller{
		Kubeconfig: l.identity("controller.kubeconfig"), ServerURL: s.addresses.url(s.addresses.Internal), ServerTokenFile: l.identity("controller-server.token"),
		DispatchURL: dispatchFor(s.containers, s.addresses), AgentImage: "bullpen", AgentCommand: s.agent,
		Health: s.addresses.ControllerHealth, Metrics: s.addresses.ControllerMetrics,
		// There is one, whose successor is started when it has been waited for: no lease to run out after a kill.
		LeaderElection: false,
		Flags: []string{
			"--self-registering", "--github-url=" + github, "--github-app-id=" + strconv.FormatInt(s.appID, 10), "--github-private-key-file=" + key,
		},
	}
	if s.containers {
		controller.AgentImage, controller.AgentCommand = agentImage, ""
		images := s.addresses.url(s.addresses.Images)
		// Those of this machine are looked for nowhere else, so that no name service delays them.
		controller.Flags = append(controller.Flags, "--job-containers", "--registry-mirror=*="+images, "--registry-mirror="+localRegistry+"="+images)
	}
	if s.macHosts != "" {
		controller.Flags = append(controller.Flags, "--mac-hosts", "--mac-binary="+s.binary, "--mac-remote-root="+s.macHosts)
	}
	return s.command(partController, 15*time.Second, controller.Args()...)
}

func (s setting) nodeCommand() Command {
	l := s.layout
	return s.command(partNode, 15*time.Second, "node",
		"--sandbox=process",
		"--name="+NodeName,
		"--bootstrap-kubeconfig="+l.identity(bootstrapKubeconfig),
		"--state-dir="+l.Node(),
		"--cpu="+strconv.Itoa(s.capacity.CPU),
		"--memory="+s.capacity.Memory,
		"--ephemeral-storage="+s.capacity.Disk,
		"--pods="+strconv.Itoa(s.capacity.Pods),
		"--kubelet-port="+s.addresses.port(s.addresses.Kubelet),
		"--client-ca-file="+s.clientAuthority,
		minDiskFree,
	)
}

// minDiskFree is what the nodes' disk has to have left. A tenth of it is not to be had on many people's own machines, who would wait for
// runners that never come; what is left free matters to them less than to a fleet.
const minDiskFree = "--min-disk-free=10%,2Gi"

func (s setting) command(name string, grace time.Duration, args ...string) Command {
	return Command{Name: name, Path: s.binary, Args: args, Env: s.env, LogPath: s.layout.Log(name), Grace: grace}
}

// checkAddress makes sure that an address that was asked for is free, and says what to do when it is not.
func checkAddress(flag, address string) error {
	host, port, err := net.SplitHostPort(address)
	if number, bad := strconv.Atoi(port); err != nil || bad != nil || number < 1 || number > 65535 {
		return fmt.Errorf("%s must be host:port, such as 127.0.0.1:8080, got %q", flag, address)
	}
	if err := tryListen(net.JoinHostPort(host, port)); err != nil {
		return fmt.Errorf("%s %s cannot be used: %w. Stop the program that listens there, or choose another port", flag, address, err)
	}
	return nil
}

// tryListen listens for an instant.
func tryListen(address string) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// agentName is the file beside the product's binary that the pods of runners start.
const agentName = "bullpen-agent"

// findAgent returns the path of the agent's binary. The build puts it beside the product's.
func findAgent(binary string) (string, error) {
	path := filepath.Join(filepath.Dir(binary), agentName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s not found beside %s. Run `make build`, which builds both", agentName, binary)
	case err != nil:
		return "", fmt.Errorf("looking for %s: %w", agentName, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s is not executable. Run `make build`, which replaces it", path)
	}
	return path, nil
}

// checkBinaryPath refuses what the process sandbox cannot put into a command.
func checkBinaryPath(path string) error {
	if !filepath.IsAbs(path) || strings.ContainsAny(path, " \t\n'\"\\$`;&|<>()*?[]{}") {
		return fmt.Errorf("the path of bullpen, %q, cannot be used in a shell command. Move it to a directory without spaces or special characters", path)
	}
	return nil
}
