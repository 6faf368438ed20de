package cli

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli/servers"
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

// Site finds the `bullpen up` of this machine: that of --state-dir, of the server that the configuration file names, of the
// caller's kubeconfig, or of the default directory.
// False: none runs, and none was named. The error is a *KilledError if there was one that was killed.
func (c *Connection) Site() (Site, bool, error) {
	chosen, err := c.choose()
	if err != nil {
		return Site{}, false, err
	}
	dir, named := chosen.StateDir, chosen.StateDir != ""
	switch {
	case named:
	case chosen.file, c.clusterNamed(): // another place is meant
		return Site{}, false, nil
	default:
		if dir = c.upDir(); dir == "" {
			return Site{}, false, nil // nothing runs on this machine
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
		StateDir: dir, Server: status.Admin,
		Kubeconfig: status.Kubeconfig, Controller: status.Metrics["controller"], URLFile: filepath.Join(dir, "secrets", "database-url"),
	}
	if status.StandIn {
		site.GitHub, site.KeyFile = strings.TrimRight(status.GitHub, "/"), filepath.Join(dir, "secrets", "app.pem")
		site.AdminTokenFile = filepath.Join(dir, "secrets", "admin-token")
	}
	site.Kubeconfig = cmp.Or(c.Kubeconfig, chosen.Kubeconfig, site.Kubeconfig)
	return site, true, nil
}

// Cluster is the configuration of the kubeconfig named, or of the cluster of the server that the configuration file names, or of the caller's own
// kubeconfig.
func (c *Connection) Cluster(kubeconfig string) (*rest.Config, error) {
	at := servers.Server{Kubeconfig: kubeconfig, Context: c.Context}
	if kubeconfig == "" {
		chosen, err := c.choose()
		if err != nil {
			return nil, err
		}
		at = c.with(chosen.Server)
	}
	return loadKubeconfig(at.Kubeconfig, at.Context)
}
