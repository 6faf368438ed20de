package pf

import (
	"net/netip"
	"slices"
	"strings"
)

// Packet is what rules are asked about. Without Established it is the first of a connection.
type Packet struct {
	Direction   string // in or out
	Interface   string
	Proto       string // tcp, udp, icmp, ipv6-icmp
	Src, Dst    netip.Addr
	SrcPort     uint16
	DstPort     uint16
	ICMPType    string // as pfctl names it: echoreq, neighbrsol
	Established bool   // within a connection that the filter has no state for
}

// Verdict is what becomes of a packet.
type Verdict struct {
	Pass bool
	// Return indicates that the sender of a blocked packet gets a refusal.
	Return bool
	// Stateful indicates that later packets of the connection pass under any rules.
	Stateful bool
	// Rule that decided, in normal form, and the anchor it is in. Both are empty if none did.
	Rule, Anchor string
}

// Evaluate says what becomes of a packet: the last rule that fits decides, or the first quick one. Without any it passes.
func (f *Filter) Evaluate(p Packet, interfaces Interfaces) Verdict {
	if !f.Enabled || slices.Contains(f.Skip, p.Interface) || slices.Contains(f.Skip, strings.TrimRight(p.Interface, "0123456789")) {
		return Verdict{Pass: true}
	}
	w := walk{filter: f, packet: p, interfaces: interfaces, verdict: Verdict{Pass: true}}
	w.ruleset("")
	return w.verdict
}

// walk goes through rule sets with a packet.
type walk struct {
	filter     *Filter
	packet     Packet
	interfaces Interfaces
	verdict    Verdict
}

// ruleset reports whether a quick rule has ended the walk.
func (w *walk) ruleset(at string) bool {
	set := w.filter.Rulesets[at]
	if set == nil {
		return false
	}
	for _, r := range set.Rules {
		if r.Kind != KindAnchor && r.Kind != KindPass && r.Kind != KindBlock || !w.fits(at, r) {
			continue
		}
		if r.Kind == KindAnchor {
			before := w.verdict
			if w.call(at, r) || r.Quick && w.verdict != before {
				return true
			}
			continue
		}
		w.verdict = Verdict{
			Pass: r.Kind == KindPass, Return: strings.HasPrefix(r.Return, "return"), Stateful: r.Kind == KindPass && r.State != "no" && r.State != "",
			Rule: r.String(), Anchor: at,
		}
		if r.Quick {
			return true
		}
	}
	return false
}

// call goes through the anchors that a rule calls.
func (w *walk) call(at string, r Rule) bool {
	for _, anchor := range w.filter.callees(at, r.Anchor) {
		if w.ruleset(anchor) {
			return true
		}
	}
	return false
}

// callees are the anchor that a path names; of one that ends in /* those right below, in the order of their names.
func (f *Filter) callees(at, anchor string) []string {
	target := calledPath(at, anchor)
	if parent, ok := strings.CutSuffix(target, "/*"); ok {
		return f.Anchors(parent, false)
	}
	return []string{target}
}

func (w *walk) fits(at string, r Rule) bool {
	p := w.packet
	if r.Direction != "" && r.Direction != p.Direction || !w.on(r) {
		return false
	}
	family := "inet"
	if !p.Src.Is4() {
		family = "inet6"
	}
	if r.Family != "" && r.Family != family || r.Proto != "" && r.Proto != p.Proto {
		return false
	}
	if !w.host(at, r.From, p.Src) || !w.host(at, r.To, p.Dst) || !r.FromPort.fits(p.SrcPort) || !r.ToPort.fits(p.DstPort) {
		return false
	}
	// The first packet of a connection has SYN and no ACK; later ones have ACK.
	if p.Proto == "tcp" && r.Flags != "" && r.Flags != "any" && p.Established {
		return false
	}
	return r.ICMPType == "" || r.ICMPType == p.ICMPType
}

func (w *walk) on(r Rule) bool {
	if r.Interface == "" {
		return true
	}
	name := w.packet.Interface
	return (r.Interface == name || r.Interface == strings.TrimRight(name, "0123456789")) != r.NotOn
}

func (w *walk) host(at string, h Host, a netip.Addr) bool {
	var found bool
	switch {
	case h.Table != "":
		found = w.filter.table(at, h.Table).has(a)
	case h.Dynamic != "":
		found = slices.ContainsFunc(resolve(w.interfaces, h.Dynamic), func(p netip.Prefix) bool { return p.Contains(a) })
	case h.NoRoute:
	case h.Last.IsValid():
		found = a.Compare(h.Prefix.Addr()) >= 0 && a.Compare(h.Last) <= 0
	case h.Prefix.IsValid():
		found = h.Prefix.Contains(a)
	default:
		found = true
	}
	return found != h.Not
}

// table finds a table in its anchor, or else in the main rule set.
func (f *Filter) table(at, name string) Table {
	for _, place := range []string{at, ""} {
		if set := f.Rulesets[place]; set != nil {
			if t, has := set.Tables[name]; has {
				return t
			}
		}
	}
	return Table{}
}

// has looks for the longest prefix that holds the address.
func (t Table) has(a netip.Addr) bool {
	best, found := -1, false
	for _, text := range t.Addresses {
		prefix, err := netip.ParsePrefix(strings.TrimPrefix(text, "!"))
		if err == nil && prefix.Contains(a) && prefix.Bits() > best {
			best, found = prefix.Bits(), !strings.HasPrefix(text, "!")
		}
	}
	return found
}

// Translate is the source address that an outgoing packet gets by NAT: the first matching rule decides. False if none matches, or it
// excludes NAT.
func (f *Filter) Translate(p Packet, interfaces Interfaces) (netip.Addr, bool) {
	if !f.Enabled {
		return p.Src, false
	}
	w := walk{filter: f, packet: p, interfaces: interfaces}
	rule := w.translation("")
	if rule == nil || rule.Kind == KindNoNAT {
		return p.Src, false
	}
	return w.target(*rule)
}

// translation finds the first rule that fits.
func (w *walk) translation(at string) *Rule {
	set := w.filter.Rulesets[at]
	if set == nil {
		return nil
	}
	for _, r := range set.Rules {
		switch r.Kind {
		case KindNAT, KindNoNAT:
			if w.fits(at, r) {
				return &r
			}
		case KindNATAnchor:
			if !w.fits(at, r) {
				continue
			}
			for _, anchor := range w.filter.callees(at, r.Anchor) {
				if found := w.translation(anchor); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

func (w *walk) target(r Rule) (netip.Addr, bool) {
	candidates := []netip.Prefix{r.Target.Prefix}
	if r.Target.Dynamic != "" {
		candidates = resolve(w.interfaces, r.Target.Dynamic)
	}
	for _, c := range candidates {
		if c.IsValid() && c.Addr().Is4() == w.packet.Src.Is4() {
			return c.Addr(), true
		}
	}
	return w.packet.Src, false
}
