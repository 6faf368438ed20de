package machost

import (
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// ConfigError lists everything that is wrong with a configuration. Nothing is rendered from it.
type ConfigError struct{ Problems []FieldProblem }

// FieldProblem is what is wrong with one field, named as in the file.
type FieldProblem struct{ Field, Problem string }

// Error lists the problems.
func (e *ConfigError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, p.Field+": "+p.Problem)
	}
	return "the configuration cannot be used: " + strings.Join(lines, "; ")
}

var (
	// No dot: sudo ignores files in sudoers.d whose names hold one.
	userName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,30}$`)
	hostLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	nodeName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	quantity  = regexp.MustCompile(`^[1-9][0-9]*(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$`)
	byteCount = regexp.MustCompile(`^[1-9][0-9]*(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$`)
	// percentage is of up to 50 %, as the node agent takes it.
	percentage = regexp.MustCompile(`^(0\.0*[1-9][0-9]*|([1-9]|[1-4][0-9])(\.[0-9]+)?|50)%$`)
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	plainPath  = regexp.MustCompile(`^(/[A-Za-z0-9._@+-]+)+$`)
)

// maxStateDir keeps the paths of the node agent's sockets within what a socket's address holds.
const maxStateDir = 100

// Validate says everything that is wrong, or nil: all problems at once, each with its field. The error is a *ConfigError.
func (c Config) Validate() error {
	var v validator
	v.require(userName.MatchString(c.User) && c.User != "root", "user",
		"%q: name the account that logs in at the console: letters, digits, - and _, not root", c.User)
	v.require(c.Hostname == "" || hostLabel.MatchString(c.Hostname), "hostname", "%q: use up to 63 of a-z, 0-9 and -", c.Hostname)
	v.require(c.DHCPLeaseSeconds == 0 || c.DHCPLeaseSeconds >= 60 && c.DHCPLeaseSeconds <= 86400, "dhcpLeaseSeconds", "%d: give 60 to 86400", c.DHCPLeaseSeconds)
	v.tart(c.Tart)
	v.networks("egress.machines", c.Egress.Machines)
	for i, p := range c.Egress.Machines {
		v.require(!p.IsValid() || p.Addr().Is4(), fmt.Sprintf("egress.machines[%d]", i), "%s: vmnet's networks are IPv4", p)
	}
	v.networks("egress.allow", c.Egress.Allow)
	v.networks("ssh.allowFrom", c.SSH.AllowFrom)
	v.node(c.Node)
	v.require(c.Logs.MaxMB >= 0 && c.Logs.MaxMB <= 10240, "logs.maxMB", "%d: give 1 to 10240", c.Logs.MaxMB)
	v.require(c.Logs.Keep >= 0 && c.Logs.Keep <= 100, "logs.keep", "%d: give 1 to 100", c.Logs.Keep)
	if len(v) > 0 {
		return &ConfigError{v}
	}
	return nil
}

type validator []FieldProblem

func (v *validator) require(ok bool, field, problem string, args ...any) {
	if !ok {
		*v = append(*v, FieldProblem{field, fmt.Sprintf(problem, args...)})
	}
}

func (v *validator) networks(field string, networks []netip.Prefix) {
	for i, p := range networks {
		name := fmt.Sprintf("%s[%d]", field, i)
		v.require(p.IsValid(), name, "no network")
		v.require(!p.IsValid() || p == p.Masked(), name, "%s has bits set after the first %d: did you mean %s or %s/%d?", p, p.Bits(), p.Masked(), p.Addr(), p.Addr().BitLen())
		v.require(!p.IsValid() || !p.Addr().Is4In6(), name, "%s: write it as an IPv4 network", p)
	}
}

func (v *validator) tart(t Tart) {
	if t.Archive == "" {
		v.require(t.SHA256 == "", "tart.sha256", "requires tart.archive")
		return
	}
	digest, err := hex.DecodeString(t.SHA256)
	v.require(err == nil && len(digest) == 32, "tart.sha256", "%q: give the SHA-256 of the archive, 64 hexadecimal digits (shasum -a 256 FILE)", t.SHA256)
	name := t.Archive
	if !strings.HasPrefix(name, "/") {
		address, err := url.Parse(name)
		if err != nil || address.Scheme != "https" || address.Host == "" {
			v.require(false, "tart.archive", "give an https:// URL or an absolute path") // it may hold a password: not repeated
			return
		}
		v.require(address.User == nil, "tart.archive", "the URL contains a user name or a password: remove them, configuration must not contain secrets")
		name = address.Path
	}
	v.require(ArchiveKind(t.Archive) != "", "tart.archive", "%q: give a .tar.gz, .tgz or .zip", path.Base(name))
}

// ArchiveKind is how an archive's name ends: "tar.gz", "zip", or empty for neither.
func ArchiveKind(archive string) string {
	if !strings.HasPrefix(archive, "/") {
		if address, err := url.Parse(archive); err == nil {
			archive = address.Path
		}
	}
	switch {
	case strings.HasSuffix(archive, ".tar.gz"), strings.HasSuffix(archive, ".tgz"):
		return "tar.gz"
	case strings.HasSuffix(archive, ".zip"):
		return "zip"
	}
	return ""
}

func (v *validator) node(n Node) {
	v.require(n.Name == "" || nodeName.MatchString(n.Name), "node.name", "%q: use up to 253 of a-z, 0-9, - and .", n.Name)
	if n.IP != "" {
		_, err := netip.ParseAddr(n.IP)
		v.require(err == nil, "node.ip", "%q is not an IP address", n.IP)
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		prefix, name, prefixed := strings.Cut(key, "/")
		v.require(labelName.MatchString(cmp.Or(name, prefix)) && (!prefixed || name != "" && nodeName.MatchString(prefix)), "node.labels",
			"%q is not a label key", key)
		v.require(n.Labels[key] == "" || labelName.MatchString(n.Labels[key]), "node.labels", "%q is not a label value (%s)", n.Labels[key], key)
	}
	v.require(n.StateDir == "" || plainPath.MatchString(n.StateDir) && path.Clean(n.StateDir) == n.StateDir && len(n.StateDir) <= maxStateDir, "node.stateDir",
		"%q: give an absolute path without spaces, of up to %d characters", n.StateDir, maxStateDir)
	v.require(n.CPU == "" || quantity.MatchString(n.CPU), "node.cpu", "%q: give a quantity such as 8", n.CPU)
	v.require(n.Memory == "" || quantity.MatchString(n.Memory), "node.memory", "%q: give a quantity such as 12Gi", n.Memory)
	one, other, two := strings.Cut(n.MinDiskFree, ",")
	if percentage.MatchString(other) {
		one, other = other, one
	}
	v.require(n.MinDiskFree == "" || !two && (percentage.MatchString(one) || byteCount.MatchString(one)) ||
		percentage.MatchString(one) && byteCount.MatchString(other), "node.minDiskFree",
		"%q: give a percentage of up to 50%% such as 10%%, a quantity such as 20Gi, or both for the lesser of the two: 10%%,20Gi", n.MinDiskFree)
	if n.ClientCA != "" {
		v.require(onlyCertificates(n.ClientCA), "node.clientCA", "give certificates in PEM, and nothing else")
	}
}

// onlyCertificates is strict so that a private key that was pasted along does not get into a world-readable file.
func onlyCertificates(text string) bool {
	rest, found := []byte(text), false
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return found && strings.TrimFunc(string(rest), unicode.IsSpace) == ""
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			return false
		}
		found = true
	}
}
