package pf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Show are the rules of an anchor that `pfctl -s rules` (or nat) prints, in normal form; false if there is no such anchor.
func (f *Filter) Show(anchor string, nat bool) ([]string, bool) {
	anchor = strings.Trim(anchor, "/")
	set := f.Rulesets[anchor]
	if set == nil {
		return nil, anchor == ""
	}
	var lines []string
	for _, r := range set.Rules {
		if r.Kind == KindDummynet || r.Kind == KindDummynetAnchor || r.Kind.Translates() != nat {
			continue
		}
		lines = append(lines, r.String())
	}
	return lines, true
}

// Anchors are those below one, by path: the next level, or with all also those below.
func (f *Filter) Anchors(below string, all bool) []string {
	below = strings.Trim(below, "/")
	seen := map[string]bool{}
	for p := range f.Rulesets {
		rest, ok := strings.CutPrefix(p, below)
		rest = strings.TrimPrefix(rest, "/")
		if !ok || rest == "" || below != "" && !strings.HasPrefix(p, below+"/") {
			continue
		}
		parts := strings.Split(rest, "/")
		for i := range parts {
			if i == 0 || all {
				seen[strings.TrimPrefix(below+"/"+strings.Join(parts[:i+1], "/"), "/")] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// String is the rule as pfctl prints it.
func (r Rule) String() string {
	var b strings.Builder
	switch r.Kind {
	case KindBlock:
		b.WriteString("block " + r.Return)
	case KindNAT, KindRDR, KindBinat:
		b.WriteString(string(r.Kind))
		if r.PassToo {
			b.WriteString(" pass")
		}
	default:
		b.WriteString(string(r.Kind))
	}
	if r.Kind.calls() && !(strings.HasPrefix(r.Anchor, "_") && r.Kind == KindAnchor) {
		fmt.Fprintf(&b, " %q", r.Anchor)
	}
	word := func(text string) {
		if text != "" {
			b.WriteString(" " + text)
		}
	}
	word(r.Direction)
	if r.Log {
		word("log")
	}
	if r.Quick {
		word("quick")
	}
	if r.Interface != "" {
		word("on")
		if r.NotOn {
			word("!")
		}
		word(r.Interface)
	}
	word(r.Family)
	if r.Proto != "" {
		word("proto " + r.Proto)
	}
	word(r.fromTo())
	r.tail(word)
	return b.String()
}

func (r Rule) fromTo() string {
	if r.From.any() && r.To.any() && r.FromPort.Op == "" && r.ToPort.Op == "" {
		return "all"
	}
	return "from " + r.From.String() + r.FromPort.String() + " to " + r.To.String() + r.ToPort.String()
}

func (r Rule) tail(word func(string)) {
	if r.Flags != "" {
		word("flags " + r.Flags)
	}
	if r.ICMPType != "" {
		kind := "icmp-type "
		if r.Proto == "ipv6-icmp" {
			kind = "icmp6-type "
		}
		word(kind + r.ICMPType)
	}
	switch {
	case r.Kind.calls():
	case r.State == "no":
		word("no state")
	case r.State != "":
		word(r.State + " state")
	}
	if r.Kind == KindScrub || r.Kind == KindScrubAnchor {
		if !slices.Contains(r.Options, "fragment") {
			r.Options = append(slices.Clone(r.Options), "fragment", "reassemble")
		}
	}
	if r.Target != nil {
		word("-> " + r.Target.String() + r.TargetTo.String())
	}
	for _, o := range r.Options {
		word(o)
	}
}

// String is the address as pfctl prints it.
func (h Host) String() string {
	text := not(h.Not)
	if h.Not {
		text += " "
	}
	switch {
	case h.Table != "":
		return text + "<" + h.Table + ">"
	case h.Dynamic != "":
		return text + "(" + h.Dynamic + ")"
	case h.NoRoute:
		return text + "no-route"
	case h.Last.IsValid():
		return text + h.Prefix.Addr().String() + " - " + h.Last.String()
	case !h.Prefix.IsValid():
		return "any"
	case h.Prefix.IsSingleIP():
		return text + h.Prefix.Addr().String()
	}
	return text + h.Prefix.String()
}

// String is the comparison as pfctl prints it, with a space before it. Ports are numbers (likely: versions differ).
func (o Port) String() string {
	switch o.Op {
	case "":
		return ""
	case ":":
		return fmt.Sprintf(" port %d:%d", o.A, o.B)
	case "<>", "><":
		return fmt.Sprintf(" port %d %s %d", o.A, o.Op, o.B)
	}
	return fmt.Sprintf(" port %s %d", o.Op, o.A)
}
