package pf

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// host reads one item of from or to, which may stand for several addresses.
func (p *parser) host() []Host {
	negated := p.take("!")
	var hosts []Host
	switch {
	case p.take("any"):
		hosts = []Host{{}}
	case p.take("no-route"), p.take("urpf-failed"):
		hosts = []Host{{NoRoute: true}}
	case p.take("<"):
		hosts = []Host{{Table: p.word()}}
		p.want(">")
	case p.take("("):
		name := p.word()
		p.known(name)
		hosts = []Host{{Dynamic: name}}
		p.want(")")
	default:
		hosts = p.address()
	}
	if negated && len(hosts) > 0 && hosts[0].any() {
		p.fail("syntax error")
	}
	for i := range hosts {
		hosts[i].Not = negated
	}
	return hosts
}

func (p *parser) known(name string) {
	base, _, _ := strings.Cut(name, ":")
	if base == "self" || p.interfaces[base] != nil {
		return
	}
	// An interface that is not there is good between parentheses: it may come.
	if strings.Trim(base, "abcdefghijklmnopqrstuvwxyz") != base {
		return
	}
	p.fail("syntax error")
}

// address is an address, a network, a range, or an interface's addresses as they are now.
func (p *parser) address() []Host {
	word := p.word()
	if prefix, err := ParsePrefix(word); err == nil {
		if p.take("-") {
			last, err := netip.ParseAddr(p.word())
			if err != nil {
				p.fail("syntax error")
			}
			return []Host{{Prefix: prefix, Last: last}}
		}
		return []Host{{Prefix: prefix}}
	}
	var hosts []Host
	for _, prefix := range p.static(word) {
		hosts = append(hosts, Host{Prefix: prefix})
	}
	return hosts
}

// static is what an interface, or self, stands for when the rules are loaded.
func (p *parser) static(word string) []netip.Prefix {
	found := resolve(p.interfaces, word)
	if len(found) == 0 {
		p.fail("no IP address found for " + word)
	}
	return found
}

// resolve is what (self), (en0) and en0:network stand for.
func resolve(interfaces Interfaces, word string) []netip.Prefix {
	name, modifiers, _ := strings.Cut(word, ":")
	var names []string
	for _, n := range slices.Sorted(maps.Keys(interfaces)) {
		if name == "self" || n == name || strings.TrimRight(n, "0123456789") == name {
			names = append(names, n)
		}
	}
	var prefixes []netip.Prefix
	for _, n := range names {
		for _, a := range interfaces[n] {
			if modifiers == "network" {
				prefixes = append(prefixes, a.Masked())
			} else {
				prefixes = append(prefixes, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
			}
		}
	}
	return prefixes
}

var services = map[string]uint16{
	"ssh": 22, "domain": 53, "bootps": 67, "bootpc": 68, "http": 80, "https": 443, "ntp": 123, "dhcpv6-client": 546, "dhcpv6-server": 547, "mdns": 5353, "vnc-server": 5900, "rfb": 5900,
}

// port is a number, a name, a range, or a comparison.
func (p *parser) port() Port {
	if op := p.takeAny("!=", ">=", "<=", ">", "<", "="); op != "" {
		return Port{Op: op, A: p.portNumber(p.word())}
	}
	word := p.word()
	if first, last, ok := strings.Cut(word, ":"); ok {
		return Port{Op: ":", A: p.portNumber(first), B: p.portNumber(last)}
	}
	a := p.portNumber(word)
	if op := p.takeAny("<>", "><"); op != "" {
		return Port{Op: op, A: a, B: p.portNumber(p.word())}
	}
	return Port{Op: "=", A: a}
}

func (p *parser) portNumber(word string) uint16 {
	if n, known := services[word]; known {
		return n
	}
	n, err := strconv.ParseUint(word, 10, 16)
	if err != nil {
		p.fail("unknown port " + word)
	}
	return uint16(n)
}

// fits compares a port.
func (o Port) fits(port uint16) bool {
	switch o.Op {
	case "=":
		return port == o.A
	case "!=":
		return port != o.A
	case "<":
		return port < o.A
	case "<=":
		return port <= o.A
	case ">":
		return port > o.A
	case ">=":
		return port >= o.A
	case ":":
		return port >= o.A && port <= o.B
	case "><":
		return port > o.A && port < o.B
	case "<>":
		return port < o.A || port > o.B
	}
	return true
}
