package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/cli/portforward"
	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

// NoServerError says that no server is named, and that none was found.
type NoServerError struct {
	text  string
	cause error
}

// Error says how to name one.
func (e *NoServerError) Error() string { return e.text }

// Unwrap gives why none was found.
func (e *NoServerError) Unwrap() error { return e.cause }

// IsNoServer says that no server is named, and that none was found.
func IsNoServer(err error) bool {
	var none *NoServerError
	return errors.As(err, &none)
}

// choice is the server that the command line, the environment or the configuration file names.
type choice struct {
	servers.Server
	named bool // false: nothing names one
	file  bool // it is in the configuration file
}

// choose follows the documented order: --server, --state-dir, BULLPEN_SERVER, a cluster that flags name, the current server of the file.
func (c *Connection) choose() (choice, error) {
	switch asked := c.getenv(EnvServer); {
	case c.Server != "":
		return c.lookUp(c.Server)
	case c.StateDir != "":
		return choice{Server: servers.Server{StateDir: c.StateDir}, named: true}, nil
	case asked != "":
		return c.lookUp(asked)
	case c.clusterNamed():
		if dir := c.boxNamed(); dir != "" {
			return choice{Server: servers.Server{StateDir: dir}, named: true}, nil
		}
		return choice{named: true}, nil
	}
	file, _, err := c.configuration()
	if err != nil || file.Current == "" {
		return choice{}, err
	}
	return choice{Server: file.Servers[file.Current], named: true, file: true}, nil
}

// clusterNamed says whether flags name a cluster, or a release in it.
func (c *Connection) clusterNamed() bool {
	return c.Kubeconfig != "" || c.Context != "" || c.SystemNamespace != ""
}

// boxNamed is the state directory of the `bullpen up` whose kubeconfig a flag names, and nothing else of a cluster; empty if it is of another one.
func (c *Connection) boxNamed() string {
	if c.DefaultStateDir == nil || c.Context != "" || c.SystemNamespace != "" {
		return ""
	}
	return boxOf(c.Kubeconfig)
}

// lookUp is the server of a URL, or of a name in the configuration file.
func (c *Connection) lookUp(asked string) (choice, error) {
	if servers.IsURL(asked) {
		return choice{Server: servers.Server{URL: asked}, named: true}, nil
	}
	file, path, err := c.configuration()
	if err != nil {
		return choice{}, err
	}
	server, err := file.Find(asked, path)
	return choice{Server: server, named: true, file: true}, err
}

// configuration reads the configuration file. Without a home directory there is none.
func (c *Connection) configuration() (servers.File, string, error) {
	path, err := servers.Path(c.getenv)
	if err != nil {
		return servers.File{}, "the configuration file", nil //nolint:nilerr // it is empty
	}
	file, err := servers.Load(path)
	return file, path, err
}

// with is a server with what the command line says of credentials. A kubeconfig that it names has contexts of its own.
func (c *Connection) with(server servers.Server) servers.Server {
	if c.Kubeconfig != "" {
		server.Kubeconfig, server.Context = c.Kubeconfig, c.Context
	}
	server.Context = cmp.Or(c.Context, server.Context)
	server.Namespace = cmp.Or(c.SystemNamespace, server.Namespace)
	return server
}

// find settles on a server; without a URL it is in the kubeconfig's cluster. That is assumed if nothing names one.
func (c *Connection) find() (at servers.Server, assumed bool, err error) {
	chosen, err := c.choose()
	switch {
	case err != nil:
		return at, false, err
	case chosen.StateDir != "":
		at, err = c.box(chosen.Server)
		return at, false, err
	case chosen.URL != "", chosen.file, chosen.named && !c.OnlyNamed:
		return c.with(chosen.Server), false, nil
	}
	if dir := c.upDir(); dir != "" && !chosen.named {
		box, err := readBox(dir)
		var killed *KilledError
		switch {
		case err == nil && box.Admin != "":
			return servers.Server{URL: box.Admin, Kubeconfig: box.Kubeconfig}, false, nil
		case errors.As(err, &killed):
			return at, false, err
		}
	}
	if c.OnlyNamed {
		return at, false, &NoServerError{text: "no server found: none is named, and none runs on this machine"}
	}
	return at, true, nil
}

// box is the server of a state directory that was named.
func (c *Connection) box(server servers.Server) (servers.Server, error) {
	box, err := readBox(server.StateDir)
	var killed *KilledError
	switch {
	case errors.As(err, &killed):
		return servers.Server{}, err
	case err != nil || box.Admin == "":
		return servers.Server{}, fmt.Errorf("no server found: `bullpen up` is not running in %s. Start it, or use --server URL", server.StateDir)
	}
	return servers.Server{
		URL: box.Admin, Kubeconfig: cmp.Or(c.Kubeconfig, server.Kubeconfig, box.Kubeconfig), Context: c.Context,
	}, nil
}

// defaultDir is the state directory that is used by default; empty if this program or machine has none.
func (c *Connection) defaultDir() string {
	if c.DefaultStateDir == nil {
		return ""
	}
	dir, err := c.DefaultStateDir()
	if err != nil {
		return ""
	}
	return dir
}

// withoutCluster explains why the server was not found in a cluster that nothing names.
func (c *Connection) withoutCluster(err error, assumed bool) error {
	var none *noKubeconfigError
	var released *portforward.NoReleaseError
	if !assumed || !errors.As(err, &none) && !errors.As(err, &released) {
		return err
	}
	text := "no server found: "
	if c.DefaultStateDir != nil {
		text += "`bullpen up` is not running here (--state-dir names another directory) and "
	}
	text += EnvServer + " is not set, "
	switch {
	case none != nil:
		text += "and there is no kubeconfig (" + none.searched + "). "
		if c.DefaultStateDir != nil {
			text += "Start it, name"
		} else {
			text += "Name"
		}
		text += " a server with --server, or a cluster with --kubeconfig"
	default:
		text += "and " + err.Error()
	}
	return &NoServerError{text: text, cause: err}
}
