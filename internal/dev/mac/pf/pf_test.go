package pf

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var interfaces = Interfaces{
	"lo0":       {netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")},
	"en0":       {netip.MustParsePrefix("10.0.0.21/24"), netip.MustParsePrefix("2001:db8::21/64")},
	"bridge100": {netip.MustParsePrefix("192.168.64.1/24"), netip.MustParsePrefix("fd00:64::1/64")},
}

const stock = `scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
`

// files are those that a load may read.
type files map[string]string

func (f files) options() LoadOptions {
	return LoadOptions{Interfaces: interfaces, ReadFile: func(path string) ([]byte, error) {
		text, has := f[path]
		if !has {
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		}
		return []byte(text), nil
	}}
}

// loaded is an enabled filter with that main rule set.
func loaded(t *testing.T, text string) *Filter {
	t.Helper()
	f := &Filter{Enabled: true}
	require.NoError(t, f.Load("", "pf.conf", text, files{"/etc/pf.anchors/com.apple": ""}.options()))
	return f
}

func TestShow_IsTheNormalForm(t *testing.T) {
	for text, want := range map[string]string{
		"pass in proto tcp to port 22":                                   "pass in proto tcp from any to any port = 22 flags S/SA keep state",
		"pass in proto { tcp udp } from 10/8 to any port { ssh, 80:90 }": "pass in inet proto tcp from 10.0.0.0/8 to any port = 22 flags S/SA keep state\npass in inet proto tcp from 10.0.0.0/8 to any port 80:90 flags S/SA keep state\npass in inet proto udp from 10.0.0.0/8 to any port = 22 keep state\npass in inet proto udp from 10.0.0.0/8 to any port 80:90 keep state",
		"block":                          "block drop all",
		"set block-policy return\nblock": "block return all",
		"block return-rst in log quick on en0 proto tcp":                           "block return-rst in log quick on en0 proto tcp all",
		"block drop in quick on ! lo0 from any to 127/8":                           "block drop in quick on ! lo0 inet from any to 127.0.0.0/8",
		"pass out from { 10.0.0.1, 2001:db8::1 } to { 10.0.0.2, 2001:db8::2 }":     "pass out inet from 10.0.0.1 to 10.0.0.2 flags S/SA keep state\npass out inet6 from 2001:db8::1 to 2001:db8::2 flags S/SA keep state",
		"block in from self to any":                                                "block drop in inet from 10.0.0.21 to any",
		"pass in to (en0:network) no state":                                        "pass in from any to (en0:network) no state",
		"pass in proto tcp from <ok> to port 22 flags any":                         "pass in proto tcp from <ok> to any port = 22 flags any keep state",
		"pass in inet6 proto icmp6 icmp6-type { 135 neighbradv }":                  "pass in inet6 proto ipv6-icmp all icmp6-type neighbrsol keep state\npass in inet6 proto ipv6-icmp all icmp6-type neighbradv keep state",
		`allowed = "{ 10.0.0.1, ! 10.0.0.2 }"` + "\nblock from $allowed":           "block drop inet from 10.0.0.1 to any\nblock drop inet from ! 10.0.0.2 to any",
		"pass in from 10.0.0.1 - 10.0.0.9 \\\n to any # and more":                  "pass in inet from 10.0.0.1 - 10.0.0.9 to any flags S/SA keep state",
		"anchor \"bullpen.ssh\"":                                                   "anchor \"bullpen.ssh\" all",
		"scrub-anchor \"com.apple/*\"":                                             "scrub-anchor \"com.apple/*\" all fragment reassemble",
		"pass in proto udp to port 53 keep state (max 100) label \"dns\"":          "pass in proto udp from any to any port = 53 keep state (max 100) label \"dns\"",
		"block in proto tcp to port != 443\nblock in proto tcp to port > 1024":     "block drop in proto tcp from any to any port != 443\nblock drop in proto tcp from any to any port > 1024",
		"anchor inner { block in quick all }\nanchor in on en0 { pass all }\npass": "anchor \"inner\" all\nanchor in on en0 all\npass all flags S/SA keep state",
	} {
		lines, exists := loaded(t, text).Show("", false)
		require.True(t, exists)
		if strings.Contains(text, "self") { // one rule for each address of the host
			require.Contains(t, lines, want)
			require.Len(t, lines, 6)
			continue
		}
		require.Equal(t, want, strings.Join(lines, "\n"), text)
	}
	nat, _ := loaded(t, "nat on en0 inet from 192.168.64.0/24 to any -> (en0) extfilter ei\nno nat on en0 all\nrdr pass on lo0 proto tcp to port 80 -> 127.0.0.1 port 8080\nblock").Show("", true)
	require.Equal(t, []string{
		"nat on en0 inet from 192.168.64.0/24 to any -> (en0) extfilter ei", "no nat on en0 all",
		"rdr pass on lo0 inet proto tcp from any to any port = 80 -> 127.0.0.1 port = 8080",
	}, nat)
}

// Rules that pfctl refuses leave the previous ones in force.
func TestLoad_RefusesAndKeepsTheOldRules(t *testing.T) {
	for text, want := range map[string]string{
		"pass\nnat-anchor \"x\"":                      "pf.conf:2: Rules must be in order: options, normalization, queueing, translation, filtering",
		"block\nscrub in":                             "pf.conf:2: Rules must be in order",
		"block\nset skip on lo0":                      "pf.conf:2: Rules must be in order",
		"blok":                                        "pf.conf:1: syntax error",
		"pass in from 10.0.0.256":                     "pf.conf:1: no IP address found for 10.0.0.256",
		"pass in from example.test":                   "no IP address found for example.test",
		"pass in to port 22":                          "port only applies to tcp/udp",
		"pass inet from 10.0.0.1 to 2001:db8::1":      "rule expands to no valid combination",
		"pass in proto tcp to port 70000":             "unknown port 70000",
		"pass in proto tcp to port nosuch":            "unknown port nosuch",
		"pass in from $missing":                       "macro 'missing' not defined",
		"pass in proto tcp flags X/Y":                 "unknown flags X/Y",
		"pass in proto icmp icmp-type echoreq":        "must indicate address family with icmp-type/code",
		"pass from ! { 10.0.0.1 10.0.0.2 }":           "syntax error",
		"pass \"unterminated":                         "unterminated quoted string",
		"load anchor \"x\" from \"/missing\"":         "pf.conf:1: /missing: ",
		"table <t> { 10/8 }\ntable <t> { 11/8 }":      "pf.conf:2: cannot define table t: Resource busy",
		"table <t> { 10.0.0.0/33 }":                   "no IP address found for 10.0.0.0/33",
		"pass in from { 10.0.0.1":                     "syntax error",
		"table <" + strings.Repeat("x", 32) + "> { }": "table name too long, max 31 chars",
		"a = \"$a\"\npass from $a":                    "macro",
	} {
		f := loaded(t, "block in quick all")
		err := f.Load("", "pf.conf", text, files{}.options())
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, ErrNotLoaded, text)
		lines, _ := f.Show("", false)
		require.Equal(t, []string{"block drop in quick all"}, lines, text)
	}
}

// HOST-2: one anchor, loaded twice by the same file. The old rules stay in force, those without Apple's hooks and
// without NAT among them, and nothing says so but pfctl's exit code.
func TestLoad_AnAnchorTwiceIsBusy(t *testing.T) {
	anchors := files{"/etc/pf.anchors/com.apple": "", "/etc/pf.anchors/x": "table <vm_sources> { 192.168.64.0/22 }\nblock in from <vm_sources> to 10/8\n"}
	block := "anchor \"x\"\nload anchor \"x\" from \"/etc/pf.anchors/x\"\n"
	f := loaded(t, "pass all")
	err := f.Load("", "/etc/pf.conf", stock+block+block, anchors.options())
	require.ErrorContains(t, err, "/etc/pf.anchors/x:1: cannot define table vm_sources: Resource busy")
	lines, _ := f.Show("", false)
	require.Equal(t, []string{"pass all flags S/SA keep state"}, lines)
	require.Empty(t, f.Anchors("", false))

	// Parsing alone does not find it, unless one takes the other source at its word.
	only := anchors.options()
	only.NoAction = true
	require.NoError(t, f.Load("", "/etc/pf.conf", stock+block+block, only))
	only.DefineTables = true
	require.ErrorContains(t, f.Load("", "/etc/pf.conf", stock+block+block, only), "Resource busy")

	// Once, it is good.
	require.NoError(t, f.Load("", "/etc/pf.conf", stock+block, anchors.options()))
	require.Equal(t, []string{"com.apple", "x"}, f.Anchors("", false))
	lines, exists := f.Show("x", false)
	require.True(t, exists)
	require.Equal(t, []string{"block drop in inet from <vm_sources> to 10.0.0.0/8"}, lines)
}

// An anchor's rules may be loaded alone, any number of times; they are in force once the main rule set calls it.
func TestLoad_OneAnchor(t *testing.T) {
	f := loaded(t, "pass all")
	for range 2 {
		require.NoError(t, f.Load("x", "/x", "table <t> { 10/8 }\nblock in quick from any to <t>", files{}.options()))
	}
	packet := Packet{Direction: "in", Interface: "bridge100", Proto: "tcp", Src: netip.MustParseAddr("192.168.64.5"), Dst: netip.MustParseAddr("10.0.0.5"), DstPort: 443}
	require.True(t, f.Evaluate(packet, interfaces).Pass)

	require.NoError(t, f.Load("", "pf.conf", "anchor \"x\"\npass all", files{}.options()))
	verdict := f.Evaluate(packet, interfaces)
	require.False(t, verdict.Pass)
	require.Equal(t, "x", verdict.Anchor)
	require.Equal(t, "block drop in quick from any to <t>", verdict.Rule)

	// It outlives the call, and is removed once it is empty and no rule calls it.
	require.NoError(t, f.Load("", "pf.conf", "pass all", files{}.options()))
	_, exists := f.Show("x", false)
	require.True(t, exists)
	require.True(t, f.Flush("x", "all"))
	_, exists = f.Show("x", false)
	require.False(t, exists)
}

func TestEvaluate(t *testing.T) {
	const machine, inside, outside = "192.168.64.5", "10.0.0.5", "198.51.100.7"
	tests := []struct {
		name, rules string
		packet      Packet
		src, dst    string
		want        bool
	}{
		{"nothing said", "", Packet{}, machine, inside, true},
		{"the last rule decides", "block all\npass all", Packet{}, machine, inside, true},
		{"or the first quick one", "block quick all\npass all", Packet{}, machine, inside, false},
		{"the other direction", "block out all", Packet{Direction: "in"}, machine, inside, true},
		{"the other interface", "block on en1 all", Packet{}, machine, inside, true},
		{"a group of interfaces", "block on bridge all", Packet{}, machine, inside, false},
		{"any interface but one", "block on ! lo0 all", Packet{}, machine, inside, false},
		{"another family", "block inet6 all", Packet{}, machine, inside, true},
		{"this family", "block inet6 all", Packet{}, "fd00:64::5", "fd00::1", false},
		{"another protocol", "block proto udp all", Packet{}, machine, inside, true},
		{"another port", "block proto tcp to port 80", Packet{}, machine, inside, true},
		{"within a range of ports", "block proto tcp to port 400:500", Packet{}, machine, inside, false},
		{"outside of one", "block proto tcp to port 400 <> 500", Packet{}, machine, inside, true},
		{"a table", "table <t> { 10/8 }\nblock to <t>", Packet{}, machine, inside, false},
		{"an exception in a table", "table <t> { 10/8, !10.0.0.5 }\nblock to <t>", Packet{}, machine, inside, true},
		{"a negated table", "table <t> { 10/8 }\nblock to ! <t>", Packet{}, machine, inside, true},
		{"the network of an interface", "block from (bridge100:network)", Packet{}, machine, inside, false},
		{"the host itself", "block to (self)", Packet{}, machine, "10.0.0.21", false},
		{"not the host itself", "block to (self)", Packet{}, machine, inside, true},
		{"a range", "block to 10.0.0.1 - 10.0.0.9", Packet{}, machine, inside, false},
		{"within a connection, flags S/SA says nothing", "block in proto tcp to port 443\npass in proto tcp to port 443", Packet{Established: true}, outside, inside, false},
		{"but flags any does", "block in proto tcp to port 443\npass in proto tcp to port 443 flags any", Packet{Established: true}, outside, inside, true},
		{"a skipped interface", "set skip on bridge100\nblock all", Packet{}, machine, inside, true},
		{"neighbour discovery", "block all\npass inet6 proto icmp6 icmp6-type neighbrsol", Packet{Proto: "ipv6-icmp", ICMPType: "neighbrsol"}, "fd00:64::5", "fd00:64::1", true},
		{"but no echo", "block all\npass inet6 proto icmp6 icmp6-type neighbrsol", Packet{Proto: "ipv6-icmp", ICMPType: "echoreq"}, "fd00:64::5", "fd00:64::1", false},
		{"between braces", "anchor { block quick all }\npass all", Packet{}, machine, inside, false},
		{"an anchor for others", "anchor from 10/8 { block quick all }\npass all", Packet{}, machine, inside, true},
		{"a quick anchor with a rule that fits", "anchor quick { block all }\npass all", Packet{}, machine, inside, false},
		{"a quick anchor without", "anchor quick { block on en1 all }\npass all", Packet{}, machine, inside, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := test.packet
			p.Src, p.Dst = netip.MustParseAddr(test.src), netip.MustParseAddr(test.dst)
			p.Interface, p.DstPort = "bridge100", 443
			if p.Direction == "" {
				p.Direction = "in"
			}
			if p.Proto == "" {
				p.Proto = "tcp"
			}
			f := loaded(t, test.rules)
			require.Equal(t, test.want, f.Evaluate(p, interfaces).Pass)
			f.Enabled = false
			require.True(t, f.Evaluate(p, interfaces).Pass, "a filter that is off lets everything through")
		})
	}
}

// A name with /* calls what is right below, in the order of names, and not the anchor itself.
func TestEvaluate_AnchorsBelow(t *testing.T) {
	f := loaded(t, stock)
	load := func(anchor, rules string) {
		require.NoError(t, f.Load(anchor, "x", rules, files{}.options()))
	}
	packet := Packet{Direction: "in", Interface: "en0", Proto: "tcp", Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.21"), DstPort: 22}
	load("com.apple", "block all")
	require.True(t, f.Evaluate(packet, interfaces).Pass)
	load("com.apple/200.AirDrop", "block all")
	require.False(t, f.Evaluate(packet, interfaces).Pass)
	load("com.apple/300.Other", "pass all")
	require.True(t, f.Evaluate(packet, interfaces).Pass)
	load("com.apple/200.AirDrop/Bonjour", "block quick all")
	require.True(t, f.Evaluate(packet, interfaces).Pass, "two levels below is called by the level between alone")
}

func TestTranslate_TheFirstRuleThatFitsDecides(t *testing.T) {
	packet := Packet{Direction: "out", Interface: "en0", Proto: "tcp", Src: netip.MustParseAddr("192.168.64.5"), Dst: netip.MustParseAddr("203.0.113.1"), DstPort: 443}
	nat := "nat on en0 inet from 192.168.64.0/24 to any -> (en0)\n"
	for rules, translated := range map[string]bool{
		"":                      false,
		nat:                     true,
		"no nat on en0\n" + nat: false,
		nat + "no nat on en0\n": true,
		"nat on en1 inet from 192.168.64.0/24 to any -> 10.0.0.21":            false,
		"nat-anchor \"x/*\"\n" + nat:                                          false, // which says: none
		"nat-anchor \"y/*\"\n" + nat:                                          true,
		"nat on en0 inet from ! (bridge100:network) to any -> (en0)":          false,
		"nat on en0 inet6 from any to any -> (en0)\npass":                     false,
		"nat-anchor \"z\"\nanchor \"z\"\nload anchor \"z\" from \"/etc/nat\"": true,
	} {
		f := &Filter{Enabled: true}
		require.NoError(t, f.Load("x/sub", "x", "no nat on en0 all", files{}.options()))
		require.NoError(t, f.Load("", "pf.conf", rules, files{"/etc/nat": nat}.options()), rules)
		source, did := f.Translate(packet, interfaces)
		require.Equal(t, translated, did, rules)
		if translated {
			require.Equal(t, "10.0.0.21", source.String())
		}
		f.Enabled = false
		_, did = f.Translate(packet, interfaces)
		require.False(t, did)
	}
}

func TestTables_GoWithTheLastRuleUnlessTheyPersist(t *testing.T) {
	f := loaded(t, "table <used> { 10/8 }\ntable <unused> { 10/8 }\ntable <kept> persist { 10/8 }\nblock from <used>")
	require.Contains(t, f.Rulesets[""].Tables, "used")
	require.NotContains(t, f.Rulesets[""].Tables, "unused")
	require.Contains(t, f.Rulesets[""].Tables, "kept")
}

func TestEnable_CountsWhoWantsIt(t *testing.T) {
	f := &Filter{}
	first, second := f.Enable(), f.Enable()
	require.NotEqual(t, first, second)
	require.False(t, f.Release("1"))
	require.True(t, f.Release(strconv.FormatUint(first, 10)))
	require.True(t, f.Enabled)
	require.True(t, f.Release(strconv.FormatUint(second, 10)))
	require.False(t, f.Enabled)
}

// Any text is refused as a whole or loaded.
func FuzzLoad(f *testing.F) {
	f.Add(stock)
	f.Add("table <t> { 10/8, !10.1/16 }\nblock in quick on { en0 ! lo0 } inet proto { tcp udp } from <t> to (self) port { 22 >< 80 }\nanchor x { pass }")
	f.Add("a = \"{ 1.2.3.4 }\"\nnat on en0 from $a -> (en0)\npass in inet proto icmp icmp-type echoreq")
	f.Fuzz(func(t *testing.T, text string) {
		options := files{"/etc/pf.anchors/com.apple": ""}.options()
		filter := &Filter{Enabled: true}
		if filter.Load("", "pf.conf", text, options) != nil {
			require.Empty(t, filter.Rulesets)
			return
		}
		filter.Evaluate(Packet{Direction: "in", Interface: "en0", Proto: "tcp", Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.21"), DstPort: 22}, interfaces)
	})
}
