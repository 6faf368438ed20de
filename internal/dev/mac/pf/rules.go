package pf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// draft is a rule before its lists are expanded.
type draft struct {
	Rule
	interfaces []onInterface
	protos     []string
	from, to   []Host
	fromPorts  []Port
	toPorts    []Port
	icmpTypes  []string
}

type onInterface struct {
	name string
	not  bool
}

// rule reads any rule, and adds what it expands to.
func (p *parser) rule() {
	line := p.line()
	d := &draft{}
	d.Kind = Kind(p.word())
	if d.Kind == "no" {
		d.Kind = Kind("no " + p.word())
		if !slices.Contains([]Kind{KindNoNAT, KindNoRDR}, d.Kind) {
			p.fail("syntax error")
		}
	}
	p.reach(d.Kind.order())
	if d.Kind.calls() {
		p.callee(d)
	}
	switch d.Kind {
	case KindBlock:
		d.Return = p.blockWith
		if r := p.takeAny("drop", "return-rst", "return-icmp", "return-icmp6", "return"); r != "" {
			d.Return = r
		}
		p.parenthesized()
	case KindNAT, KindRDR, KindBinat:
		d.PassToo = p.take("pass")
	}
	p.head(d)
	p.fromTo(d)
	if d.Kind.order() == 4 || d.Kind == KindScrub {
		p.translation(d)
	} else {
		p.tail(d)
	}
	if d.Kind == KindAnchor && p.take("{") {
		p.inlineAnchor(d.Anchor)
	}
	p.finish(d)
	p.expand(d, line)
}

// callee reads the name of the anchor that is called. One between braces may have none.
func (p *parser) callee(d *draft) {
	if t := p.peek(); t.quoted || signAt(t.text) == "" && t.text != newline && !slices.Contains([]string{"in", "out", "quick", "on", "inet", "inet6", "proto", "all", "from", "to"}, t.text) {
		d.Anchor = p.word()
		return
	}
	if d.Kind != KindAnchor {
		p.fail("syntax error")
	}
	p.anonymous++
	d.Anchor = "_" + strconv.Itoa(p.anonymous)
}

func (p *parser) parenthesized() []string {
	if !p.take("(") {
		return nil
	}
	var words []string
	for !p.take(")") {
		words = append(words, p.next().text)
	}
	return words
}

// head is direction, log, quick, interface, family and protocol.
func (p *parser) head(d *draft) {
	d.Direction = p.takeAny("in", "out")
	for {
		switch {
		case p.take("log"):
			d.Log = true
			p.parenthesized()
		case p.take("quick"):
			d.Quick = true
		case p.take("on"):
			p.list(func() {
				negated := p.take("!")
				d.interfaces = append(d.interfaces, onInterface{p.word(), negated})
			})
		case p.take("inet"):
			d.Family = "inet"
		case p.take("inet6"):
			d.Family = "inet6"
		case p.take("proto"):
			p.list(func() { d.protos = append(d.protos, p.proto(p.word())) })
		default:
			return
		}
	}
}

var protoNames = map[string]string{"1": "icmp", "6": "tcp", "17": "udp", "58": "ipv6-icmp", "icmp6": "ipv6-icmp", "ipv6-icmp": "ipv6-icmp", "2": "igmp"}

func (p *parser) proto(word string) string {
	if name, known := protoNames[word]; known {
		return name
	}
	if slices.Contains([]string{"tcp", "udp", "icmp", "igmp", "esp", "ah", "gre", "sctp", "ipv6", "pim"}, word) {
		return word
	}
	if n, err := strconv.Atoi(word); err == nil && n >= 0 && n < 256 {
		return word
	}
	p.fail("unknown protocol " + word)
	return ""
}

func (p *parser) fromTo(d *draft) {
	if p.take("all") {
		return
	}
	if p.take("from") {
		p.list(func() { d.from = append(d.from, p.host()...) })
		if p.take("port") {
			p.list(func() { d.fromPorts = append(d.fromPorts, p.port()) })
		}
		if p.take("os") {
			p.list(func() { d.Options = append(d.Options, "os "+p.word()) })
		}
	}
	if p.take("to") {
		if p.peek().is("port") { // "to port 22" is short for "to any port 22"
			d.to = []Host{{}}
		} else {
			p.list(func() { d.to = append(d.to, p.host()...) })
		}
		if p.take("port") {
			p.list(func() { d.toPorts = append(d.toPorts, p.port()) })
		}
	}
}

// translation is what follows in nat, rdr and scrub.
func (p *parser) translation(d *draft) {
	for !p.atEnd() {
		if p.take("->") {
			if !slices.Contains([]Kind{KindNAT, KindRDR, KindBinat}, d.Kind) {
				p.fail("syntax error")
			}
			hosts := p.host()
			if len(hosts) == 0 {
				p.fail("syntax error")
			}
			d.Target = &hosts[0]
			if p.take("port") {
				d.TargetTo = p.port()
			}
			continue
		}
		d.Options = append(d.Options, p.next().text)
	}
	if d.Target == nil && slices.Contains([]Kind{KindNAT, KindRDR, KindBinat}, d.Kind) {
		p.fail("nat rule requires a target (-> host)") // likely
	}
}

// tail is what follows in filter rules.
func (p *parser) tail(d *draft) {
	for !p.atEnd() && !p.peek().is("{") {
		switch word := p.word(); word {
		case "flags":
			d.Flags = p.flags()
		case "keep", "modulate", "synproxy", "no":
			p.want("state")
			d.State = word
			if options := p.parenthesized(); len(options) > 0 {
				d.Options = append(d.Options, "("+strings.Join(options, " ")+")")
			}
		case "icmp-type", "icmp6-type":
			p.list(func() {
				kind := icmpName(word, p.word())
				if p.take("code") {
					kind += " code " + p.word()
				}
				d.icmpTypes = append(d.icmpTypes, kind)
			})
		case "label", "tag", "tagged", "probability", "tos", "rtable", "queue":
			value := p.word()
			if word == "label" {
				value = strconv.Quote(value)
			}
			d.Options = append(d.Options, word+" "+value)
		case "user", "group":
			p.list(func() { d.Options = append(d.Options, word+" = "+p.word()) })
		case "allow-opts", "fragment":
			d.Options = append(d.Options, word)
		default:
			p.at--
			p.fail("syntax error")
		}
	}
}

func (p *parser) flags() string {
	if p.take("any") {
		return "any"
	}
	word := p.word()
	set, mask, ok := strings.Cut(word, "/")
	if !ok || strings.Trim(set, "FSRPAUEW") != "" || mask == "" || strings.Trim(mask, "FSRPAUEW") != "" {
		p.fail("unknown flags " + word)
	}
	return word
}

// icmpTypes are the names that pfctl knows and prints.
var icmpTypes = map[string]map[string]string{
	"icmp-type": {"0": "echorep", "3": "unreach", "4": "squench", "5": "redir", "8": "echoreq", "9": "routeradv", "10": "routersol", "11": "timex", "12": "paramprob"},
	"icmp6-type": {"1": "unreach", "2": "toobig", "3": "timex", "4": "paramprob", "128": "echoreq", "129": "echorep", "130": "groupqry", "131": "grouprep", "132": "groupterm",
		"133": "routersol", "134": "routeradv", "135": "neighbrsol", "136": "neighbradv", "137": "redir"},
}

func icmpName(kind, word string) string {
	if name, known := icmpTypes[kind][word]; known {
		return name
	}
	for _, name := range icmpTypes[kind] {
		if name == word {
			return word
		}
	}
	if n, err := strconv.Atoi(word); err == nil && n >= 0 && n < 256 {
		return word
	}
	panic(bail{fmt.Errorf("unknown %s %s", kind, word)})
}

// finish fills in what a rule has by default.
func (p *parser) finish(d *draft) {
	if d.Kind != KindPass {
		return
	}
	if d.State == "" {
		d.State = "keep"
	}
	if d.Flags == "" && d.State != "no" && !slices.Contains(d.Options, "fragment") {
		d.Flags = "S/SA"
	}
}

// expand adds a rule for each combination that makes sense.
func (p *parser) expand(d *draft, line int) {
	if len(d.interfaces) == 0 {
		d.interfaces = []onInterface{{}}
	}
	if len(d.protos) == 0 {
		d.protos = []string{""}
	}
	if len(d.from) == 0 {
		d.from = []Host{{}}
	}
	if len(d.to) == 0 {
		d.to = []Host{{}}
	}
	if len(d.fromPorts) == 0 {
		d.fromPorts = []Port{{}}
	}
	if len(d.toPorts) == 0 {
		d.toPorts = []Port{{}}
	}
	if len(d.icmpTypes) == 0 {
		d.icmpTypes = []string{""}
	}
	before := len(p.out.rules)
	for _, on := range d.interfaces {
		for _, proto := range d.protos {
			for _, icmp := range d.icmpTypes {
				for _, from := range d.from {
					for _, fromPort := range d.fromPorts {
						for _, to := range d.to {
							for _, toPort := range d.toPorts {
								r := d.Rule
								r.Interface, r.NotOn, r.Proto, r.ICMPType = on.name, on.not, proto, icmp
								r.From, r.FromPort, r.To, r.ToPort = from, fromPort, to, toPort
								p.add(r, line)
							}
						}
					}
				}
			}
		}
	}
	if len(p.out.rules) == before && len(p.problems) == 0 {
		panic(bail{&syntaxError{p.file, line, "rule expands to no valid combination"}})
	}
}

// add takes a combination if the families agree, and refuses what makes no sense.
func (p *parser) add(r Rule, line int) {
	families := []string{r.Family, r.From.family(), r.To.family()}
	if r.Target != nil {
		families = append(families, r.Target.family())
	}
	family := ""
	for _, f := range families {
		if f != "" && family != "" && f != family {
			return
		}
		if f != "" {
			family = f
		}
	}
	if r.Proto == "icmp" && family == "inet6" || r.Proto == "ipv6-icmp" && family == "inet" {
		return
	}
	r.Family = family
	refuse := func(text string) { panic(bail{&syntaxError{p.file, line, text}}) }
	if r.Proto != "tcp" && r.Proto != "udp" && (r.FromPort.Op != "" || r.ToPort.Op != "") {
		refuse("port only applies to tcp/udp")
	}
	if r.ICMPType != "" && r.Proto != "icmp" && r.Proto != "ipv6-icmp" {
		refuse("icmp-type/code only applies to icmp")
	}
	if r.ICMPType != "" && r.Family == "" {
		refuse("must indicate address family with icmp-type/code")
	}
	if r.Flags != "" && r.Flags != "any" && r.Proto != "" && r.Proto != "tcp" {
		r.Flags = "" // only filled in
	}
	if r.Flags == "any" && r.Proto != "" && r.Proto != "tcp" {
		refuse("flags only apply to tcp") // likely
	}
	p.out.rules = append(p.out.rules, r)
}
