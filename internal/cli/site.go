package cli

import (
	"errors"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// Site is what a `bullpen up` of this machine works with.
type Site struct {
	StateDir   string
	Server     string // URL of its administrators' API
	Kubeconfig string
	GitHub     string // URL of its stand-in; empty: the real GitHub, by an App that it does not write down
	KeyFile    string // of the stand-in's App
	// AdminTokenFile holds the token of the stand-in's admin API.
	AdminTokenFile string
	URLFile        string // holds the database's URL
	Controller     string // URL of its controller
}

// Site finds the `bullpen up` of this machine: that of --state-dir, or of the default directory. False: none runs, and none was named. The error
// is a *KilledError if there was one that was killed.
func (c *Connection) Site() (Site, bool, error) {
	dir, named := c.StateDir, c.StateDir != ""
	if !named {
		if c.DefaultStateDir == nil || c.Kubeconfig != "" || c.Context != "" { // another place is meant
			return Site{}, false, nil
		}
		var err error
		if dir, err = c.DefaultStateDir(); err != nil {
			return Site{}, false, nil //nolint:nilerr // this machine has no such directory, so nothing runs in it
		}
	}
	status, err := readBox(dir)
	var killed *KilledError
	switch {
	case err != nil && (named || errors.As(err, &killed)):
		return Site{}, false, errNotRunning(dir, err)
	case err != nil:
		return Site{}, false, nil //nolint:nilerr // none runs
	}
	site := Site{
		StateDir: dir, Server: status.Operators,
		Kubeconfig: status.Kubeconfig, Controller: status.Metrics["controller"], URLFile: filepath.Join(dir, "secrets", "database-url"),
	}
	if status.StandIn {
		site.GitHub, site.KeyFile = strings.TrimRight(status.GitHub, "/"), filepath.Join(dir, "secrets", "app.pem")
		site.AdminTokenFile = filepath.Join(dir, "secrets", "admin-token")
	}
	if c.Kubeconfig != "" {
		site.Kubeconfig = c.Kubeconfig
	}
	return site, true, nil
}

// Cluster is the configuration of the caller's own kubeconfig, or of the one named.
func (c *Connection) Cluster(kubeconfig string) (*rest.Config, error) {
	return loadKubeconfig(kubeconfig, c.Context)
}
