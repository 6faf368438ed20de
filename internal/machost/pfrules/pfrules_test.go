package pfrules_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/machost/pfrules"
)

var update = flag.Bool("update", false, "write the golden files")

func networks(texts ...string) []netip.Prefix {
	result := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		result[i] = netip.MustParsePrefix(text)
	}
	return result
}

// A host with addresses of every kind. bridge100 is vmnet's.
var host = map[string][]netip.Prefix{
	"lo0":       networks("127.0.0.1/8", "::1/128", "fe80::1/64"),
	"en0":       networks("203.0.113.9/24", "2a01:db8:1:1::9/64", "fe80::9/64"),
	"en1":       networks("10.0.0.21/16"),
	"utun4":     networks("100.64.0.9/32", "fd7a:115c:a1e0::9/128"),
	"bridge100": networks("192.168.64.1/24", "fd11:2233:4455::1/64", "fe80::64/64"),
}

func TestGolden(t *testing.T) {
	plain, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.64.0/18")})
	require.NoError(t, err)
	allowing, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.66.0/24", "192.168.64.0/24"),
		Allow: networks("fd00:1::/32", "10.1.0.0/16", "10.1.0.0/16")})
	require.NoError(t, err)
	guard, err := pfrules.Guard(networks("10.0.0.0/8", "2001:db8::/32"))
	require.NoError(t, err)
	for name, text := range map[string]string{"egress.pf": plain, "egress-allow.pf": allowing, "guard.pf": guard, "no-guard.pf": pfrules.NoGuard()} {
		file := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), text, "go test -update writes %s", file)
	}
}

func TestEgress_WhatMachinesMayReach(t *testing.T) {
	text, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.64.0/18"), Allow: networks("10.0.0.0/8", "fd00:1::/32", "2a01:db8:1:1::/64")})
	require.NoError(t, err)
	r := read(t, text, host)
	four, six := netip.MustParseAddr("192.168.64.7"), netip.MustParseAddr("fd11:2233:4455::7")
	for target, want := range map[string]bool{
		"1.1.1.1": true, "140.82.121.4": true, "2606:4700::1111": true,
		"10.9.9.9": true, "fd00:1::5": true, "2a01:db8:1:1::77": true, // allowed
		"10.0.0.21": false, "203.0.113.9": false, "2a01:db8:1:1::9": false, // the host, allowed or not
		"192.168.64.1": false, "fd11:2233:4455::1": false, "fe80::64": false,
		"127.0.0.1": false, "::1": false, "100.64.0.9": false, "fd7a:115c:a1e0::9": false,
		"192.168.64.8": false, "192.168.65.8": false, "fd11:2233:4455::8": false, // other machines
		"192.168.1.5": false, "172.16.0.1": false, "172.31.255.255": false, "100.127.0.1": false, "169.254.169.254": false, "fd00:ec2::254": false,
		"172.32.0.1": true, "100.128.0.1": true, "192.169.0.1": true, "11.0.0.1": true,
		"224.0.0.251": false, "255.255.255.255": false, "ff02::fb": false, "fc00::1": false, "fe80::1": false,
		"::ffff:10.1.1.1": false, "::ffff:1.1.1.1": false, "64:ff9b::a00:1": false, "2002:a00:1::1": false, "2001:0:a00:1::1": false,
	} {
		to := netip.MustParseAddr(target)
		from := six
		if to.Is4() {
			from = four
		}
		for _, bridge := range pfrules.Bridges {
			for _, proto := range []string{"tcp", "udp", "icmp", "gre"} {
				require.Equal(t, want, r.passes(packet{on: bridge, proto: proto, from: from, to: to, toPort: 443}), "%s to %s on %s", proto, target, bridge)
			}
		}
	}
}

// A network that is allowed may hold the machines' own, and the host's.
func TestEgress_WhatIsAllowedOpensNoMachineAndNoHost(t *testing.T) {
	text, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.64.0/18"), Allow: networks("192.168.0.0/16", "10.0.0.0/8")})
	require.NoError(t, err)
	r := read(t, text, host)
	for target, want := range map[string]bool{"192.168.1.5": true, "10.9.9.9": true, "192.168.64.8": false, "192.168.70.8": false, "192.168.64.1": false, "10.0.0.21": false} {
		p := packet{on: "bridge100", proto: "tcp", from: netip.MustParseAddr("192.168.64.7"), to: netip.MustParseAddr(target), toPort: 443}
		require.Equal(t, want, r.passes(p), target)
	}
}

func TestEgress_WhatMachinesNeedOfTheHost(t *testing.T) {
	text, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.64.0/18")})
	require.NoError(t, err)
	r := read(t, text, host)
	p := func(proto, from, to string, fromPort, toPort int) packet {
		return packet{on: "bridge100", proto: proto, from: netip.MustParseAddr(from), to: netip.MustParseAddr(to), fromPort: fromPort, toPort: toPort}
	}
	require.True(t, r.passes(p("udp", "0.0.0.0", "255.255.255.255", 68, 67)), "DHCP discover")
	require.True(t, r.passes(p("udp", "192.168.64.7", "192.168.64.1", 68, 67)), "DHCP renew")
	require.False(t, r.passes(p("udp", "192.168.64.7", "10.0.0.5", 68, 67)), "somebody else's DHCP")
	require.False(t, r.passes(p("tcp", "192.168.64.7", "192.168.64.1", 68, 67)))
	for _, proto := range []string{"udp", "tcp"} {
		require.True(t, r.passes(p(proto, "192.168.64.7", "192.168.64.1", 40000, 53)), "DNS")
		require.True(t, r.passes(p(proto, "fe80::7", "fe80::64", 40000, 53)), "DNS")
		require.True(t, r.passes(p(proto, "fd11:2233:4455::7", "fd11:2233:4455::1", 40000, 53)), "DNS")
		require.False(t, r.passes(p(proto, "192.168.64.7", "10.0.0.21", 40000, 53)), "DNS on another address of the host")
		require.False(t, r.passes(p(proto, "192.168.64.7", "192.168.64.8", 40000, 53)), "DNS of another machine")
	}
	for kind, want := range map[int]bool{133: true, 135: true, 136: true, 134: false, 137: false, 128: false} {
		solicited := p("ipv6-icmp", "fe80::7", "ff02::1:ff00:1", 0, 0)
		solicited.icmpType = kind
		require.Equal(t, want, r.passes(solicited), "ICMPv6 %d", kind)
	}
	answer := p("tcp", "192.168.64.1", "192.168.64.7", 40000, 22)
	answer.out = true
	require.True(t, r.passes(answer), "the host to a machine")
}

// The filter does not affect the host's own traffic: a rule without an interface could shut out its administrator.
func TestEgress_HOST7_TouchesNothingButTheBridges(t *testing.T) {
	text, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("10.0.0.0/8"), Allow: networks("172.16.0.0/12")})
	require.NoError(t, err)
	r := read(t, text, host)
	rapid.Check(t, func(t *rapid.T) {
		p := packetOf(t, rapid.SampledFrom([]string{"en0", "en1", "lo0", "utun4", "bridge0"}).Draw(t, "on"))
		p.out = rapid.Bool().Draw(t, "out")
		require.True(t, r.passes(p))
	})
}

// The expectation is independent of the rules: it uses netip's classes of addresses.
func TestEgress_PassesTheInternetAndWhatIsAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		allow := rapid.SliceOfNDistinct(rapid.SampledFrom(networks("10.0.0.0/8", "10.1.0.0/16", "192.168.0.0/16", "172.20.0.0/14", "100.64.0.0/10",
			"fd00::/8", "fd11:2233:4455::/48", "2a01:db8:1:1::/64", "8.0.0.0/6")), 0, 4, netip.Prefix.String).Draw(t, "allow")
		text, err := pfrules.Egress(pfrules.EgressNetworks{Machines: networks("192.168.64.0/18"), Allow: allow})
		require.NoError(t, err)
		p := packetOf(t, rapid.SampledFrom(pfrules.Bridges).Draw(t, "on"))
		p.toPort, p.icmpType = 443, 128
		a := p.to
		ours := false
		for name, addresses := range host {
			ours = ours || name != "lo0" && slices.ContainsFunc(addresses, func(n netip.Prefix) bool { return n.Addr() == a })
		}
		allowed := slices.ContainsFunc(allow, func(n netip.Prefix) bool { return n.Contains(a) })
		internet := a.IsGlobalUnicast() && !a.IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(a)
		if a.Is6() {
			internet = internet && a.As16()[0]>>5 == 1 && !netip.MustParsePrefix("2a01:db8:1:1::/64").Contains(a)
		}
		want := !ours && !netip.MustParsePrefix("192.168.64.0/18").Contains(a) && (allowed || internet)
		require.Equal(t, want, read(t, text, host).passes(p), "to %s, allowed %v", a, allow)
	})
}

func packetOf(t *rapid.T, on string) packet {
	interesting := []string{"1.1.1.1", "10.1.2.3", "10.200.0.1", "192.168.64.1", "192.168.70.1", "192.168.1.1", "172.21.0.1", "172.16.0.1", "100.64.0.9", "100.70.1.1",
		"169.254.169.254", "224.0.0.1", "203.0.113.9", "203.0.113.10", "9.1.1.1", "2606:4700::1", "fd00::1", "fd11:2233:4455::1", "fd11:2233:4455::5", "fe80::9", "ff02::1",
		"2a01:db8:1:1::9", "2a01:db8:1:1::5", "2a01:db8:1:2::5", "::ffff:8.8.8.8", "64:ff9b::808:808", "::1", "4000::1", "a000::1"}
	to := netip.MustParseAddr(rapid.SampledFrom(interesting).Draw(t, "to"))
	from := netip.MustParseAddr("192.168.64.7")
	if to.Is6() {
		from = netip.MustParseAddr("fd11:2233:4455::7")
	}
	return packet{on: on, proto: rapid.SampledFrom([]string{"tcp", "udp", "icmp", "ipv6-icmp", "gre"}).Draw(t, "proto"), from: from, to: to,
		fromPort: rapid.IntRange(1, 65535).Draw(t, "fromPort"), toPort: rapid.SampledFrom([]int{22, 53, 67, 80, 443}).Draw(t, "toPort"),
		icmpType: rapid.IntRange(0, 255).Draw(t, "icmpType")}
}

func TestGuard_HOST7_LetsInWhoMayAndTheHostItself(t *testing.T) {
	text, err := pfrules.Guard(networks("10.0.0.0/8", "2a01:db8:9::/48"))
	require.NoError(t, err)
	r := read(t, text, host)
	p := func(on, from, to string, port int) packet {
		return packet{on: on, proto: "tcp", from: netip.MustParseAddr(from), to: netip.MustParseAddr(to), fromPort: 50000, toPort: port}
	}
	require.True(t, r.passes(p("en1", "10.3.3.3", "10.0.0.21", 22)))
	require.True(t, r.passes(p("en0", "2a01:db8:9::1", "2a01:db8:1:1::9", 22)))
	require.True(t, r.passes(p("lo0", "127.0.0.1", "127.0.0.1", 22)))
	require.False(t, r.passes(p("en0", "198.51.100.1", "203.0.113.9", 22)), "not in the list")
	require.False(t, r.passes(p("utun4", "100.64.0.1", "100.64.0.9", 22)), "not in the list")
	require.True(t, r.passes(p("en0", "198.51.100.1", "203.0.113.9", 443)), "another port")
	for _, bridge := range pfrules.Bridges {
		for _, to := range []string{"192.168.64.1", "203.0.113.9", "10.0.0.21"} {
			require.False(t, r.passes(p(bridge, "192.168.64.7", to, 22)), "a machine to %s", to)
			require.False(t, r.passes(p(bridge, "10.3.3.3", to, 22)), "a machine that lies about its address, to %s", to)
		}
		for _, to := range []string{"fe80::64", "fd11:2233:4455::1", "fd11:2233:4455:0:aaaa::1", "2a01:db8:1:1::9", "2a01:db8:1:1:aaaa::1"} {
			require.False(t, r.passes(p(bridge, "2a01:db8:9::1", to, 22)), "a machine to %s", to)
		}
		require.True(t, r.passes(p(bridge, "192.168.64.7", "140.82.121.4", 22)), "a machine to a forge, by SSH")
		require.True(t, r.passes(p(bridge, "fd11:2233:4455::7", "2606:50c0::1", 22)), "a machine to a forge, by SSH")
	}
	out := p("en1", "10.0.0.21", "10.3.3.3", 22)
	out.out = true
	require.True(t, r.passes(out))
}

func TestRender_ABadNetworkRendersNothing(t *testing.T) {
	good := networks("192.168.64.0/18")
	bad := map[string]netip.Prefix{
		"no network":     {},
		"host bits":      netip.PrefixFrom(netip.MustParseAddr("10.0.0.5"), 8),
		"mapped":         netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104),
		"too many bits":  netip.PrefixFrom(netip.MustParseAddr("10.0.0.5"), 33),
		"everything":     netip.MustParsePrefix("0.0.0.0/0"),
		"all of IPv6":    netip.MustParsePrefix("::/0"),
		"metadata":       netip.MustParsePrefix("169.254.169.254/32"),
		"loopback":       netip.MustParsePrefix("127.0.0.0/8"),
		"around":         netip.MustParsePrefix("128.0.0.0/1"),
		"link-local":     netip.MustParsePrefix("fe80::/10"),
		"multicast":      netip.MustParsePrefix("ff02::/16"),
		"the mapped all": netip.MustParsePrefix("::/64"),
	}
	for name, network := range bad {
		for list, egress := range map[string]pfrules.EgressNetworks{
			"allow":    {Machines: good, Allow: append(networks("10.0.0.0/8"), network)},
			"machines": {Machines: append(networks("10.0.0.0/8"), network)},
		} {
			text, err := pfrules.Egress(egress)
			var problem *pfrules.NetworkError
			require.ErrorAs(t, err, &problem, name)
			require.Equal(t, list, problem.List)
			require.Contains(t, err.Error(), list)
			require.Empty(t, text, name)
		}
	}
	for _, name := range []string{"no network", "host bits", "mapped", "too many bits"} {
		text, err := pfrules.Guard(append(networks("10.0.0.0/8"), bad[name]))
		var problem *pfrules.NetworkError
		require.ErrorAs(t, err, &problem, name)
		require.Empty(t, text, name)
	}
	text, err := pfrules.Egress(pfrules.EgressNetworks{})
	require.Error(t, err)
	require.Empty(t, text)
	text, err = pfrules.Guard(nil)
	require.Error(t, err, "a guard that lets nobody in")
	require.Empty(t, text)
}

// The rules of one anchor may not be read as anything but rules: what renders them has no quoting.
func TestRender_IsPlainText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rapid.Custom(func(t *rapid.T) netip.Prefix {
			bytes := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")
			address, _ := netip.AddrFromSlice(bytes)
			return netip.PrefixFrom(address, rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
		})
		text, err := pfrules.Guard(rapid.SliceOfN(random, 1, 5).Draw(t, "from"))
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			require.Regexp(t, "^(#.*|[A-Za-z0-9 .:/<>_{}()-]*)\n$", line)
		}
	})
}

func TestUncovered(t *testing.T) {
	require.Empty(t, pfrules.Uncovered([]string{"lo0", "en0", "bridge0", "bridge100", "bridge103", "vmenet0"}))
	require.Equal(t, []string{"bridge104"}, pfrules.Uncovered([]string{"bridge100", "bridge104"}))
}
