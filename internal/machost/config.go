package machost

import (
	"net/netip"
)

// Config is the desired state of a host. It holds no secret, and is the same in the file of `bullpen host apply --config` (YAML) as on the
// wire (JSON).
//
// Each field says by its tag `scope` whether it is of the fleet, so that a change of it reaches every host, or of one host alone.
// The drift hash is over the former (see DriftHash).
type Config struct {
	// User is the account that logs in at the console by itself, and that machines and the node agent run as. It exists already.
	User string `json:"user" scope:"fleet"`
	// Hostname is what the host calls itself; the Node has the same name unless Node.Name says otherwise. Empty: it is left as it is.
	Hostname string `json:"hostname,omitempty" scope:"host"`
	// DHCPLeaseSeconds is how long vmnet lends an address to a machine. Default 600.
	DHCPLeaseSeconds int    `json:"dhcpLeaseSeconds,omitempty" scope:"fleet"`
	Tart             Tart   `json:"tart,omitzero"`
	Egress           Egress `json:"egress,omitzero"`
	SSH              SSH    `json:"ssh,omitzero"`
	Node             Node   `json:"node,omitzero"`
	Logs             Logs   `json:"logs,omitzero"`
}

// Tart is the archive that the administrator supplies: this project redistributes none.
type Tart struct {
	// Archive is an https:// address, or a path on the host, of a .tar.gz or .zip that holds tart.app. Empty: Tart is installed by other means, and only looked for.
	Archive string `json:"archive,omitempty" scope:"fleet"`
	// SHA256 of the archive, hexadecimal. Required with Archive.
	SHA256 string `json:"sha256,omitempty" scope:"fleet"`
}

// Egress says what machines may reach. The internet always; nothing private, on this host or beside it, but what is in Allow.
type Egress struct {
	// Off omits all rules, and removes existing ones.
	Off bool `json:"disabled,omitempty" scope:"fleet"`
	// Machines are the networks that vmnet gives to machines. Default 192.168.64.0/18, see package steps.
	Machines []netip.Prefix `json:"machines,omitempty" scope:"fleet"`
	// Allow are networks, IPv4 or IPv6, that machines may reach although they are private.
	Allow []netip.Prefix `json:"allow,omitempty" scope:"fleet"`
}

// SSH is the guard of the management path: who may open connections to port 22.
type SSH struct {
	// AllowFrom are the networks that may. Empty: no guard. Loopback always may. The address that an apply comes from must be among them.
	AllowFrom []netip.Prefix `json:"allowFrom,omitempty" scope:"fleet"`
}

// Node says how the node agent runs. Without a Name and a Hostname there is none.
type Node struct {
	Name     string            `json:"name,omitempty" scope:"host"`
	IP       string            `json:"ip,omitempty" scope:"host"`
	Labels   map[string]string `json:"labels,omitempty" scope:"fleet"`
	StateDir string            `json:"stateDir,omitempty" scope:"fleet"` // default /Users/USER/bullpen
	CPU      string            `json:"cpu,omitempty" scope:"fleet"`
	Memory   string            `json:"memory,omitempty" scope:"fleet"`
	// MinDiskFree is what has to be free for new runners to come, such as 20Gi, 10% or, for the lesser of the two, 10%,20Gi. Default: 10%.
	MinDiskFree string `json:"minDiskFree,omitempty" scope:"fleet"`
	ClientCA    string `json:"clientCA,omitempty" scope:"fleet"` // PEM: who may ask for logs and exec
	// Off leaves the node agent out: the host is prepared, and joins no cluster.
	Off bool `json:"disabled,omitempty" scope:"fleet"`
}

// Logs says when the node agent's log is rotated (newsyslog).
type Logs struct {
	MaxMB int `json:"maxMB,omitempty" scope:"fleet"` // default 50
	Keep  int `json:"keep,omitempty" scope:"fleet"`  // default 5
}

// Values of what a Config leaves out.
const (
	defaultLeaseSeconds = 600
	defaultMaxMB        = 50
	defaultKeep         = 5
)

var defaultMachines = netip.MustParsePrefix("192.168.64.0/18")

// Default returns the configuration with a value for each field that has a default and was left out.
func (c Config) Default() Config {
	if c.DHCPLeaseSeconds == 0 {
		c.DHCPLeaseSeconds = defaultLeaseSeconds
	}
	if len(c.Egress.Machines) == 0 {
		c.Egress.Machines = []netip.Prefix{defaultMachines}
	}
	if c.Node.Name == "" {
		c.Node.Name = c.Hostname
	}
	if c.Node.StateDir == "" && c.User != "" {
		c.Node.StateDir = "/Users/" + c.User + "/bullpen"
	}
	if c.Logs.MaxMB == 0 {
		c.Logs.MaxMB = defaultMaxMB
	}
	if c.Logs.Keep == 0 {
		c.Logs.Keep = defaultKeep
	}
	return c
}

// WantsNode reports whether the host is to run a node agent.
func (c Config) WantsNode() bool { return !c.Node.Off && c.Node.Name+c.Hostname != "" }
