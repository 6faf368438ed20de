package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
)

// EnvServer names the server when --server does not.
const EnvServer = "BULLPEN_SERVER"

// DefaultServiceAccount is asked for a token when the kubeconfig holds a client certificate only.
const DefaultServiceAccount = "bullpen-system/bullpen-operator"

// Connection is how a command reaches the server; Flags fills it.
type Connection struct {
	Server         string
	Kubeconfig     string
	Context        string
	ServiceAccount string
	StateDir       string // of `bullpen up`
	Timeout        time.Duration
	TokenLife      time.Duration // of a token that the cluster issues; default: the shortest there is

	// DefaultStateDir finds the one-machine mode's directory; nil: this program has no such mode.
	DefaultStateDir func() (string, error)
	Getenv          func(string) string // os.Getenv by default
}

// Flags adds what every administrators' command takes. A token is never one of them: arguments are visible to all users of the machine.
func (c *Connection) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Server, "server", "", "URL of the administrators' API (default: $"+EnvServer+", else the bullpen up of this machine)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig to authenticate with (default: same as kubectl)")
	f.StringVar(&c.Context, "context", "", "context of the kubeconfig (default: its current context)")
	f.StringVar(&c.ServiceAccount, "service-account", DefaultServiceAccount,
		"ServiceAccount (namespace/name) to use when the kubeconfig has only a client certificate")
	f.StringVar(&c.StateDir, "state-dir", "", "state directory of bullpen up, to find its server")
	f.DurationVar(&c.Timeout, "request-timeout", 30*time.Second, "timeout of one request")
}

func (c *Connection) getenv(name string) string {
	if c.Getenv == nil {
		return os.Getenv(name)
	}
	return c.Getenv(name)
}

// Client finds the server and the credentials.
func (c *Connection) Client() (*Client, error) {
	server, kubeconfig, err := c.find()
	if err != nil {
		return nil, err
	}
	if err := checkServer(server); err != nil {
		return nil, err
	}
	credentials, err := newCredentials(kubeconfig, c.Context, c.ServiceAccount, cmp.Or(c.TokenLife, tokenLife))
	if err != nil {
		return nil, err
	}
	return NewClient(server, credentials.Token, c.Timeout)
}

const forwarding = "in a cluster, run `kubectl -n bullpen-system port-forward svc/bullpen-operators 8082` and use --server http://127.0.0.1:8082"

// Errors that say how to name a server. The second is for a program that has the one-machine mode.
var (
	errNoServer    = errors.New("no server found: " + EnvServer + " is not set. Use --server URL; " + forwarding)
	errNothingHere = errors.New("no server found: `bullpen up` is not running here and " + EnvServer + " is not set. Start it, or use --server URL; " + forwarding)
)

// IsNoServer says that no server is configured, and none runs here.
func IsNoServer(err error) bool { return errors.Is(err, errNoServer) || errors.Is(err, errNothingHere) }

// find settles on a URL, and on the kubeconfig that goes with it.
func (c *Connection) find() (server, kubeconfig string, err error) {
	if c.Server != "" {
		return c.Server, c.Kubeconfig, nil
	}
	if server = c.getenv(EnvServer); server != "" && c.StateDir == "" {
		return server, c.Kubeconfig, nil
	}
	dir := c.StateDir
	if dir == "" {
		if c.DefaultStateDir == nil {
			return "", "", errNoServer
		}
		if dir, err = c.DefaultStateDir(); err != nil {
			return "", "", errNothingHere
		}
	}
	box, err := readBox(dir)
	var killed *KilledError
	switch {
	case err == nil && box.Operators != "":
	case errors.As(err, &killed):
		return "", "", err
	case c.StateDir != "":
		return "", "", fmt.Errorf("no server found: `bullpen up` is not running in %s. Start it, or use --server URL", dir)
	default:
		return "", "", errNothingHere
	}
	if c.Kubeconfig != "" {
		box.Kubeconfig = c.Kubeconfig
	}
	return box.Operators, box.Kubeconfig, nil
}
