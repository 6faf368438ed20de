package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Site is what a `bullpen up` of this machine works with.
type Site struct {
	Kubeconfig string
	GitHub     string // address of its stand-in; empty: the real one, by an App that it does not write down
	KeyFile    string // of the stand-in's App
	// AdminTokenFile holds the token of the stand-in's admin API.
	AdminTokenFile string
	URLFile        string // holds the database's URL
	Controller     string // where its controller answers
}

// Site finds the `bullpen up` of this machine: that of --state-dir, or of the usual folder. False: none runs, and none was named.
func (c *Connection) Site() (Site, bool, error) {
	dir, named := c.StateDir, c.StateDir != ""
	if !named {
		if c.DefaultStateDir == nil || c.Kubeconfig != "" || c.Context != "" { // another place is meant
			return Site{}, false, nil
		}
		var err error
		if dir, err = c.DefaultStateDir(); err != nil {
			return Site{}, false, nil //nolint:nilerr // this machine has no such folder, so nothing runs in it
		}
	}
	var status struct {
		GitHub     string            `json:"github"`
		StandIn    bool              `json:"standIn"`
		Kubeconfig string            `json:"kubeconfig"`
		Metrics    map[string]string `json:"metrics"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "status.json"))
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	switch {
	case err != nil && named:
		return Site{}, false, fmt.Errorf("no bullpen up runs in %s: start it, or name a cluster with --kubeconfig", dir)
	case err != nil:
		return Site{}, false, nil //nolint:nilerr // none runs
	}
	site := Site{Kubeconfig: status.Kubeconfig, Controller: status.Metrics["controller"], URLFile: filepath.Join(dir, "secrets", "database-url")}
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
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading your kubeconfig: %w", err)
	}
	return config, nil
}
