package cli

import (
	"cmp"

	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

// NamedServer is a server of the configuration file.
type NamedServer struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	servers.Server
}

// ServersOf are the servers of a file, by name.
func ServersOf(file servers.File) []NamedServer {
	list := []NamedServer{}
	for _, name := range file.Names() {
		list = append(list, NamedServer{Name: name, Current: name == file.Current, Server: file.Servers[name]})
	}
	return list
}

// ServerTable shows the servers of the file at path.
func ServerTable(list []NamedServer, path string) Table {
	t := Table{
		Columns: []string{"CURRENT", "NAME", "SERVER", "CONTEXT", "NAMESPACE"}, Wide: []string{"KUBECONFIG", "CA FILE"},
		Empty: "No servers in " + path + ". `bullpen config set-server NAME --context CONTEXT` adds one.",
	}
	for _, server := range list {
		current, at := "", cmp.Or(server.URL, "port-forward")
		if server.Current {
			current = "*"
		}
		if server.StateDir != "" {
			at = "bullpen up in " + server.StateDir
		}
		t.Rows = append(t.Rows, []string{
			current, server.Name, at, cmp.Or(server.Context, "-"), cmp.Or(server.Namespace, "-"), cmp.Or(server.Kubeconfig, "-"), cmp.Or(server.CAFile, "-"),
		})
	}
	return t
}
