package image

import (
	"net/netip"
	"slices"
)

// verdict is what a policy says of connecting to an address.
type verdict int

const (
	public    verdict = iota // connect
	private                  // connect if the pool names the host
	forbidden                // never connect
)

// prefixes lists special-purpose addresses by the IANA registries for IPv4 and IPv6 (RFC 6890), and services of clouds.
var (
	forbiddenPrefixes = parsePrefixes(
		"0.0.0.0/8",          // this network: Linux connects to itself
		"169.254.0.0/16",     // link-local; 169.254.169.254 is the metadata service of most clouds
		"168.63.129.16/32",   // Azure's host agent, in a public range
		"100.100.100.200/32", // metadata service of Alibaba Cloud
		"192.0.0.0/24",       // protocol assignments; 192.0.0.192 is a metadata service of Oracle Cloud
		"192.88.99.0/24",     // 6to4 relays, deprecated
		"224.0.0.0/4",        // multicast
		"255.255.255.255/32",
		"::/96",             // unspecified, and IPv4 in a deprecated form; ::1 is loopback, which is checked before
		"64:ff9b:1::/48",    // translation to addresses of the local network
		"100::/64",          // discarded
		"2001::/23",         // Teredo and other assignments
		"2002::/16",         // 6to4 contains an IPv4 address
		"fd00:ec2::254/128", // metadata service of AWS
		"fd20:ce::254/128",  // metadata service of Google Cloud
		"fe80::/10",         // link-local
		"fec0::/10",         // site-local, deprecated
		"ff00::/8",          // multicast
	)
	privatePrefixes = parsePrefixes(
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"127.0.0.0/8", "::1/128",
		"100.64.0.0/10",                                                                   // shared address space of providers, used for pods and nodes by some clouds
		"198.18.0.0/15",                                                                   // benchmarks
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20", // documentation
		"240.0.0.0/4", // reserved, used as private by some clouds
		"fc00::/7",
		"5f00::/16", // segment routing
	)
	loopbackPrefixes = parsePrefixes("127.0.0.0/8", "::1/128")
	globalIPv6       = netip.MustParsePrefix("2000::/3")
	translated       = netip.MustParsePrefix("64:ff9b::/96") // NAT64: the last four bytes are an IPv4 address
)

func parsePrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}

// judge says whether a name that a workflow chose may lead to the address. cluster are the networks of pods, Services and nodes,
// which may be any.
func judge(address netip.Addr, cluster []netip.Prefix) verdict {
	address = address.Unmap().WithZone("")
	if translated.Contains(address) {
		bytes := address.As16()
		return judge(netip.AddrFrom4([4]byte(bytes[12:])), cluster)
	}
	switch {
	case !address.IsValid():
		return forbidden
	case containsAddress(loopbackPrefixes, address):
		return private
	case containsAddress(forbiddenPrefixes, address):
		return forbidden
	case containsAddress(privatePrefixes, address), containsAddress(cluster, address):
		return private
	case address.Is6() && !globalIPv6.Contains(address):
		return forbidden
	}
	return public
}

func containsAddress(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

// mayConnect reports (JOB-7) whether a connection for host (as in a URL, without its port) may go to the address. named says that the
// pool names the host. A name other than localhost never leads to the controller's own loopback, whatever its DNS says.
func mayConnect(host string, named bool, address netip.Addr, cluster []netip.Prefix) bool {
	switch judge(address, cluster) {
	case public:
		return true
	case private:
		if !named {
			return false
		}
		if containsAddress(loopbackPrefixes, address.Unmap()) {
			literal, err := netip.ParseAddr(host)
			return host == "localhost" || err == nil && literal.Unmap() == address.Unmap()
		}
		return true
	}
	return false
}
