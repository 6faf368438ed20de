package reference

import (
	"fmt"
	"strings"
)

// Variable is an environment variable that a program reads.
type Variable struct{ Name, Programs, Says string }

// Variables are all environment variables, sorted by name. Tests compare them with the sources.
func Variables() []Variable {
	return []Variable{
		{"BULLPEN_ASSETS", "up, demo", "directory of the control plane's executables, in place of those that `make devcluster` downloads or compiles; `off`: only compiled ones. For `make devcluster` also the URL of a [mirror](../guides/one-machine.md#where-the-control-plane-comes-from)"},
		{"BULLPEN_AWAIT_SOCKET", "agent", "set in runner pods by the controller: a socket without which the runner takes no job, that of BuildKit"},
		{"BULLPEN_CACHE", "up, demo", "directory to which the control plane is downloaded or compiled; default `bullpen` in the user's cache directory"},
		{"BULLPEN_CA_FILE", "agent", "set in runner pods by the controller: certificates that a runner trusts beside those of its image"},
		{"BULLPEN_CONFIG", "administrators' commands", "configuration file with named servers ([bullpen config](cli/config.md)), in place of `bullpen/config.yaml` in `XDG_CONFIG_HOME` or `~/.config`"},
		{"BULLPEN_DATABASE_URL", "server, up, doctor", "URL of the database; `--database-url-file` keeps it out of the environment"},
		{"BULLPEN_DISPATCH_URL", "agent", "set in runner pods by the controller: URL of the server"},
		{"BULLPEN_FAULTPOINT_DIR", "bin/bullpen-faults", "directory with which tests stop that build at fault points; other builds ignore it"},
		{"BULLPEN_GUEST_SHARES", "agent", "set in virtual machines by the node agent: path of the shared directories"},
		{"BULLPEN_JOB_CONTAINERS_KEY", "agent", "set in runner pods by the controller: the public key to which requests for job containers are encrypted"},
		{"BULLPEN_JOB_DIR", "agent", "set in runner pods by the controller: the volume that job containers share with the runner"},
		{"BULLPEN_JOB_PROFILE", "agent", "set in runner pods by the controller: `jobContainers.securityProfile`, if it is Restricted"},
		{"BULLPEN_LISTEN_DATABASE_URL", "server, up, doctor", "URL of PostgreSQL itself, for notifications, passes and migrations; needed if the other is that of a connection pooler in transaction mode"},
		{"BULLPEN_NODE_ASSETS", "up, demo, tests", "directory of the programs of a Kubernetes node, for `--containers`, in place of those that `make node` compiles"},
		{"BULLPEN_POD_NAME", "agent", "set in runner pods by the controller"},
		{"BULLPEN_POD_UID", "agent", "set in runner pods by the controller"},
		{"BULLPEN_RESOURCES", "agent", "set in runner pods by the controller: the CPU and memory of the pod, for the logs of jobs"},
		{"BULLPEN_SANDBOX", "node, up", "set by the node agent: marks the processes that it started"},
		{"BULLPEN_SERVER", "administrators' commands", "name of a server in the configuration file, or URL of the administrators' API, as `--server`"},
		{"BULLPEN_SHARED_DIR", "agent", "set in runner pods by the controller: the volume that the pod's containers share"},
		{"BULLPEN_SHM_SIZE", "agent", "set in runner pods by the controller: the size of `/dev/shm` in job containers, in bytes"},
		{"BULLPEN_STATUS_DIR", "agent", "set in runner pods by the controller: directory of the supervisor's state on a Mac"},
		{"BULLPEN_TOKEN_FILE", "agent", "set in runner pods by the controller: the poller's token"},
		{"BULLPEN_WORK_DIR", "agent", "set in runner pods by the controller: the runner's directory"},
		{"KUBEBUILDER_ASSETS", "up, demo", "directory of the control plane's executables, if `BULLPEN_ASSETS` names none and it has all five"},
		{"KUBECONFIG", "administrators' commands", "as for kubectl"},
		{"NO_COLOR", "demo, administrators' commands", "if it is set, output has no colours"},
		{"TART_HOME", "node", "directory of Tart's virtual machines"},
		{"TERM", "demo, administrators' commands", "`dumb`: no colours, and `--watch` appends lines instead of overwriting them"},
		{"XDG_CACHE_HOME", "up, demo", "the user's cache directory"},
		{"XDG_CONFIG_HOME", "administrators' commands", "parent of the directory of the configuration file"},
		{"XDG_STATE_HOME", "up, down, administrators' commands", "parent of the default state directory of `bullpen up`"},
	}
}

func environmentPage() string {
	var b strings.Builder
	b.WriteString(`## Environment variables

The server also reads the variables of PostgreSQL's clients, such as ` + "`PGHOST`" + `, for what the URL leaves out. Every program reads those of Go:
` + "`HTTPS_PROXY`, `NO_PROXY`, `GOMEMLIMIT`" + `.

| variable | read by | |
|---|---|---|
`)
	for _, v := range Variables() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, cell(v.Programs), cell(v.Says))
	}
	return b.String()
}
