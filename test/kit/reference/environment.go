package reference

import (
	"fmt"
	"strings"
)

// Variable is one of the environment that a program reads.
type Variable struct{ Name, Programs, Says string }

// Variables are those that the programs read, by name; the tests compare with their sources.
func Variables() []Variable {
	return []Variable{
		{"BULLPEN_ASSETS", "up, demo", "directory of the control plane's executables, in place of those that `make devcluster` downloads or compiles; `off`: only compiled ones. For `make devcluster` also the URL of a [mirror](../guides/one-machine.md#where-the-control-plane-comes-from)"},
		{"BULLPEN_CACHE", "up, demo", "directory in which the control plane is downloaded, compiled and searched for; default `bullpen` in the user's cache folder"},
		{"BULLPEN_CA_FILE", "agent", "set in runner pods by the controller: certificates that a runner trusts beside those of its image"},
		{"BULLPEN_DATABASE_URL", "server, up, doctor", "URL of the database; `--database-url-file` keeps it out of the environment"},
		{"BULLPEN_DISPATCH_URL", "agent", "set in runner pods by the controller: where the poller asks for work"},
		{"BULLPEN_FAULTPOINT_DIR", "bin/bullpen-faults", "folder by which tests stop that build at named instants; other builds do not read it"},
		{"BULLPEN_GUEST_SHARES", "agent", "set in virtual machines by the node agent: where their shared folders are"},
		{"BULLPEN_LISTEN_DATABASE_URL", "server, up, doctor", "URL of the database for notifications, passes and migrations; needed if the other leads through a connection pooler that pools transactions, and then leads to PostgreSQL itself"},
		{"BULLPEN_POD_NAME", "agent", "set in runner pods by the controller"},
		{"BULLPEN_POD_UID", "agent", "set in runner pods by the controller"},
		{"BULLPEN_SANDBOX", "node, up", "set by the node agent: the mark by which it finds the processes that it has started"},
		{"BULLPEN_SERVER", "operators' commands", "address of the operators' API, as `--server`"},
		{"BULLPEN_SHARED_DIR", "agent", "set in runner pods by the controller: the volume of both containers"},
		{"BULLPEN_STATUS_DIR", "agent", "set in runner pods by the controller: where the supervisor leaves its signs on a Mac"},
		{"BULLPEN_TOKEN_FILE", "agent", "set in runner pods by the controller: the poller's token"},
		{"BULLPEN_WORK_DIR", "agent", "set in runner pods by the controller: the runner's folder"},
		{"KUBEBUILDER_ASSETS", "up, demo", "directory of the control plane's executables, if `BULLPEN_ASSETS` names none and it has all five"},
		{"KUBECONFIG", "operators' commands", "as for kubectl"},
		{"NO_COLOR", "demo", "if it is set, nothing is coloured"},
		{"TART_HOME", "node", "where Tart keeps its virtual machines"},
		{"TERM", "demo, --watch", "`dumb`: lines are appended, and none is overwritten"},
		{"XDG_CACHE_HOME", "up, demo", "the user's cache folder"},
		{"XDG_STATE_HOME", "up, down, operators' commands", "where the state folder of `bullpen up` is looked for"},
	}
}

func environmentPage() string {
	var b strings.Builder
	b.WriteString(`## Environment variables

Beside these the server takes what PostgreSQL's clients do (` + "`PGHOST`" + ` and so on, where the URL does not say it), and each program Go's own
(` + "`HTTPS_PROXY`, `NO_PROXY`, `GOMEMLIMIT`" + `).

| variable | read by | |
|---|---|---|
`)
	for _, v := range Variables() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, cell(v.Programs), cell(v.Says))
	}
	return b.String()
}
