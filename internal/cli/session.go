package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

	// DefaultStateDir finds the one-machine mode's folder; nil looks nowhere.
	DefaultStateDir func() (string, error)
	Getenv          func(string) string // os.Getenv by default
}

// Flags adds what every operators' command takes. A token is never one of them: arguments can be seen by everybody.
func (c *Connection) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Server, "server", "", "address of the operators' API (default: "+EnvServer+", else the bullpen up of this machine)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig file whose user you are (default: as kubectl)")
	f.StringVar(&c.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&c.ServiceAccount, "service-account", DefaultServiceAccount,
		"namespace/name of the ServiceAccount to ask a token of when the kubeconfig holds a client certificate only")
	f.StringVar(&c.StateDir, "state-dir", "", "state folder of bullpen up, to find its server")
	f.DurationVar(&c.Timeout, "request-timeout", 30*time.Second, "how long to wait for an answer")
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

// errNoServer says how to name one.
var errNoServer = errors.New("which server? use --server URL or set " + EnvServer +
	"; in a cluster, `kubectl -n bullpen-system port-forward svc/bullpen-operators 8082` makes it http://127.0.0.1:8082")

// find settles on an address, and on the kubeconfig that goes with it.
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
			return "", "", errNoServer
		}
	}
	box, err := readBox(dir)
	switch {
	case err == nil:
	case c.StateDir != "":
		return "", "", fmt.Errorf("no bullpen up runs in %s: start it, or name a server with --server", dir)
	default:
		return "", "", errNoServer
	}
	if c.Kubeconfig != "" {
		box.Kubeconfig = c.Kubeconfig
	}
	return box.Operators, box.Kubeconfig, nil
}

// box is what `bullpen up` writes down while it runs.
type box struct {
	Operators  string `json:"operators"`
	Kubeconfig string `json:"kubeconfig"`
}

func readBox(dir string) (box, error) {
	var b box
	data, err := os.ReadFile(filepath.Join(dir, "status.json"))
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err == nil && b.Operators == "" {
		err = errors.New("it names no operators' API")
	}
	return b, err
}
