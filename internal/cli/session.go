package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli/portforward"
	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

// EnvServer names the server when --server does not: its name in the configuration file, or its URL.
const EnvServer = "BULLPEN_SERVER"

// DefaultServiceAccount is asked for a token when the kubeconfig holds a client certificate only. In another namespace it is the release's.
const DefaultServiceAccount = portforward.DefaultNamespace + "/bullpen-admin"

// defaultTimeout is that of one request.
const defaultTimeout = 30 * time.Second

// Connection is how a command reaches the server; Flags fills it. Close ends what Client has started.
type Connection struct {
	Server          string // a name or a URL
	Kubeconfig      string
	Context         string
	SystemNamespace string // of the release; empty: the only one
	ServiceAccount  string
	StateDir        string // of `bullpen up`
	Timeout         time.Duration
	TokenLife       time.Duration // of a token that the cluster issues; default: the shortest there is

	// DefaultStateDir finds the one-machine mode's directory; nil: this program has no such mode.
	DefaultStateDir func() (string, error)
	Getenv          func(string) string // os.Getenv by default
	// OnlyNamed says that a server must be named, or run on this machine: a cluster is used only if the configuration file says so.
	OnlyNamed bool

	forward *portforward.Forwarder
}

// Flags adds what every administrators' command takes. A token is never one of them: arguments are visible to all users of the machine.
func (c *Connection) Flags(f *pflag.FlagSet) {
	f.Var(serverValue{c}, "server", "name of a server, or URL of the administrators' API (default: $"+EnvServer+", else what bullpen config --help lists)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig to authenticate with (default: same as kubectl)")
	f.StringVar(&c.Context, "context", "", "context of the kubeconfig (default: its current context)")
	f.StringVar(&c.SystemNamespace, "system-namespace", "", "namespace of the server and the controller (default: that of the only release)")
	f.StringVar(&c.ServiceAccount, "service-account", DefaultServiceAccount,
		"ServiceAccount (namespace/name) to use when the kubeconfig has only a client certificate")
	f.StringVar(&c.StateDir, "state-dir", "", "state directory of bullpen up, to find its server")
	f.DurationVar(&c.Timeout, "request-timeout", defaultTimeout, "timeout of one request")
}

// serverValue is the value of --server, and leads from a command's flags to their Connection.
type serverValue struct{ conn *Connection }

func (v serverValue) String() string {
	if v.conn == nil { // the library asks a zero value
		return ""
	}
	return v.conn.Server
}

func (v serverValue) Set(text string) error {
	v.conn.Server = text
	return nil
}

// Type is what help calls the value.
func (serverValue) Type() string { return "string" }

// ConnectionOf returns the Connection whose Flags are in f.
func ConnectionOf(f *pflag.FlagSet) (*Connection, bool) {
	flag := f.Lookup("server")
	if flag == nil {
		return nil, false
	}
	value, is := flag.Value.(serverValue)
	return value.conn, is
}

// Again is what a command that is printed must repeat to reach the same server, with a space before it; empty if it needs nothing.
func (c *Connection) Again() string {
	switch {
	case c.Server != "":
		return " --server " + c.Server
	case c.StateDir != "":
		return " --state-dir " + c.StateDir
	}
	return ""
}

func (c *Connection) getenv(name string) string {
	if c.Getenv == nil {
		return os.Getenv(name)
	}
	return c.Getenv(name)
}

// Client finds the server and the credentials. A server in a cluster is looked for with the first request.
func (c *Connection) Client() (*Client, error) {
	at, assumed, err := c.find()
	if err != nil {
		return nil, err
	}
	if at.URL != "" {
		if err := servers.CheckURL(at.URL); err != nil {
			return nil, err
		}
	}
	config, err := loadKubeconfig(at.Kubeconfig, at.Context)
	if err != nil {
		return nil, c.withoutCluster(err, assumed)
	}
	trusted, err := trust(at.CAFile)
	if err != nil {
		return nil, err
	}
	credentials, err := newCredentials(config, c.ServiceAccount, cmp.Or(c.TokenLife, tokenLife))
	if err != nil {
		return nil, err
	}
	if at.URL == "" {
		return c.forwarded(at, config, credentials, trusted, assumed)
	}
	if at.Namespace != "" {
		credentials.release = func(context.Context) (string, string, error) { return at.Namespace, "bullpen-admin", nil }
	}
	client, err := NewClient(at.URL, credentials.Token, c.Timeout)
	if err == nil && trusted != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = trusted
		client.http.Transport = transport
	}
	return client, err
}

// forwarded is a client that reaches the server by a port-forward. It uses the URL that a client in the cluster uses, so a certificate is checked
// as there.
func (c *Connection) forwarded(at servers.Server, config *rest.Config, credentials *credentials, trusted *tls.Config, assumed bool) (*Client, error) {
	forward, err := portforward.New(config, at.Namespace)
	if err != nil {
		return nil, err
	}
	c.Close()
	c.forward = forward
	limit := cmp.Or(c.Timeout, defaultTimeout)
	locate := func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		service, err := forward.Service(ctx)
		if err == nil {
			_, err = forward.Address(ctx)
		}
		if err != nil {
			return "", c.withoutCluster(err, assumed)
		}
		return service.URL(), nil
	}
	credentials.release = func(ctx context.Context) (string, string, error) {
		service, err := forward.Service(ctx)
		namespace, name := service.ServiceAccount()
		return namespace, name, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.TLSClientConfig = nil, trusted
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		address, err := forward.Address(ctx)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client := newClient(locate, credentials.Token, c.Timeout, transport)
	client.forward = forward
	return client, nil
}

// trust is the configuration of TLS that trusts the certificates of a file; nil without one.
func trust(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the usual configuration
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the server's CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the server's CA file: %s has no certificate in PEM form", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// Close ends the port-forward of Client, if there is one.
func (c *Connection) Close() {
	if c.forward != nil {
		c.forward.Close()
		c.forward = nil
	}
}

// Forwarded says whether the client's server is reached by a port-forward, which ends with this program.
func (c *Client) Forwarded() bool { return c.forward != nil }

// browserURL is the server's URL for other programs of this machine.
func (c *Client) browserURL(ctx context.Context) (string, error) {
	base, err := c.locate(ctx)
	if c.forward == nil || err != nil {
		return base, err
	}
	scheme, _, _ := strings.Cut(base, "://")
	address, err := c.forward.Address(ctx)
	return scheme + "://" + address, err
}

// KeepForwarded keeps the port-forward for other programs of this machine until ctx ends. report gets its failures.
func (c *Client) KeepForwarded(ctx context.Context, report func(error)) {
	if c.forward != nil {
		c.forward.Keep(ctx, func() <-chan time.Time { return time.After(time.Second) }, report)
	}
}
