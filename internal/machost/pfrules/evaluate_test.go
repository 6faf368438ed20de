package pfrules_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packet is what pf is asked about.
type packet struct {
	out      bool
	on       string // interface
	proto    string
	from, to netip.Addr
	fromPort int
	toPort   int
	icmpType int
}

// ruleset reads rules as pf.conf(5) describes them, as far as the two anchors use it. It shares nothing with what renders them.
type ruleset struct {
	t      require.TestingT
	tables map[string][]netip.Prefix
	rules  [][]string
	host   map[string][]netip.Prefix // what the host's interfaces have
}

func read(t require.TestingT, text string, host map[string][]netip.Prefix) *ruleset {
	r := &ruleset{t: t, tables: map[string][]netip.Prefix{}, host: host}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "table":
			require.Equal(t, []string{"const", "{"}, words[2:4], line)
			for _, word := range words[4 : len(words)-1] {
				r.tables[words[1]] = append(r.tables[words[1]], netip.MustParsePrefix(word))
			}
		default:
			r.rules = append(r.rules, words)
		}
	}
	return r
}

// passes says what comes of a packet: the last rule that matches decides, or the first that is quick; none passes.
func (r *ruleset) passes(p packet) bool {
	verdict := true
	for _, words := range r.rules {
		matched, quick := r.matches(words, p)
		if matched {
			verdict = words[0] == "pass"
			if quick {
				break
			}
		}
	}
	return verdict
}

func (r *ruleset) matches(words []string, p packet) (matched, quick bool) {
	matched = true
	words = words[1:]
	take := func() []string {
		if words[0] != "{" {
			taken := words[:1]
			words = words[1:]
			return taken
		}
		end := slices.Index(words, "}")
		taken := words[1:end]
		words = words[end+1:]
		return taken
	}
	side := "" // which address the port is of
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		switch word {
		case "drop":
		case "in", "out":
			matched = matched && p.out == (word == "out")
		case "quick":
			quick = true
		case "on":
			matched = slices.Contains(take(), p.on) && matched
		case "inet", "inet6":
			matched = matched && p.to.Is4() == (word == "inet")
		case "proto":
			matched = slices.Contains(take(), p.proto) && matched
		case "from":
			side, matched = word, r.among(take(), p.from) && matched
		case "to":
			side, matched = word, r.among(take(), p.to) && matched
		case "port":
			port := p.toPort
			if side == "from" {
				port = p.fromPort
			}
			matched = slices.Contains(take(), strconv.Itoa(port)) && matched
		case "icmp6-type":
			matched = slices.Contains(take(), strconv.Itoa(p.icmpType)) && matched
		case "no", "keep":
			require.Equal(r.t, "state", take()[0])
		case "flags":
			require.Equal(r.t, "any", take()[0], "rules that only see the first packet of a connection end those that are open")
		default:
			require.Fail(r.t, "a word that no rule here may use", word)
		}
	}
	return matched, quick
}

func (r *ruleset) among(list []string, address netip.Addr) bool {
	return slices.ContainsFunc(list, func(item string) bool {
		switch {
		case item == "any":
			return true
		case strings.HasPrefix(item, "<"):
			networks, exists := r.tables[item]
			require.True(r.t, exists, "table %s", item)
			return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
		case strings.HasPrefix(item, "("):
			name, network := strings.CutSuffix(strings.Trim(item, "()"), ":network")
			return slices.ContainsFunc(r.host[name], func(n netip.Prefix) bool {
				// As xnu does it: link-local addresses are left out.
				return !n.Addr().IsLinkLocalUnicast() && (n.Addr() == address || network && n.Masked().Contains(address))
			})
		case strings.Contains(item, "/"):
			return netip.MustParsePrefix(item).Contains(address)
		default:
			return netip.MustParseAddr(item) == address
		}
	})
}

func TestEvaluate_ReadsRulesAsPfDoes(t *testing.T) {
	r := read(t, `table <x> const { 10.0.0.0/8 }
block drop in proto tcp from any to any port 22
pass in quick on { lo0 lo1 } proto tcp from <x> to (en0) port { 22 23 } no state
`, map[string][]netip.Prefix{"en0": {netip.MustParsePrefix("198.51.100.7/24")}})
	good := packet{on: "lo1", proto: "tcp", from: netip.MustParseAddr("10.1.1.1"), to: netip.MustParseAddr("198.51.100.7"), toPort: 22}
	require.True(t, r.passes(good))
	for name, change := range map[string]func(*packet){
		"interface": func(p *packet) { p.on = "en0" },
		"source":    func(p *packet) { p.from = netip.MustParseAddr("11.1.1.1") },
		"target":    func(p *packet) { p.to = netip.MustParseAddr("198.51.100.8") },
	} {
		p := good
		change(&p)
		require.False(t, r.passes(p), name)
		p.toPort = 24
		require.True(t, r.passes(p), name)
	}
}
