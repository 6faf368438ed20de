//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/mac/pf"
)

const filterFile = "pf.json"

// pfctlOptions are what the model knows of pfctl's.
type pfctlOptions struct {
	noAction, verbose, quiet, enable, enableToken, disable bool
	onlyNAT, onlyRules                                     bool
	anchor, file, show, flush, release, table, tableVerb   string
	hasFile, hasTable                                      bool
	rest                                                   []string
}

const pfctlUsage = `usage: pfctl [-AdeghmNnOqRrvz] [-a anchor] [-D macro=value] [-F modifier]
	[-f file] [-i interface] [-K host | network]
	[-k host | network] [-o level] [-p device] [-s modifier]
	[-t table -T command [address ...]] [-x level]`

// parsePfctl reads letters with getopt's rules: several behind one hyphen, values behind them or in the next word.
func parsePfctl(args []string) (pfctlOptions, error) {
	var o pfctlOptions
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			o.rest = args[i:]
			break
		}
		for j := 1; j < len(arg); j++ {
			letter := arg[j]
			if flag := o.flag(letter); flag != nil {
				*flag = true
				continue
			}
			value := o.value(letter)
			if value == nil {
				return o, failed(1, "pfctl: illegal option -- %c\n%s", letter, pfctlUsage)
			}
			*value = arg[j+1:]
			if *value == "" {
				i++
				if i >= len(args) {
					return o, failed(1, "pfctl: option requires an argument -- %c\n%s", letter, pfctlUsage)
				}
				*value = args[i]
			}
			break
		}
	}
	o.hasFile, o.hasTable = o.file != "", o.table != ""
	return o, nil
}

func (o *pfctlOptions) flag(letter byte) *bool {
	var ignored bool
	switch letter {
	case 'n':
		return &o.noAction
	case 'v':
		return &o.verbose
	case 'q':
		return &o.quiet
	case 'e':
		return &o.enable
	case 'E':
		return &o.enableToken
	case 'd':
		return &o.disable
	case 'N':
		return &o.onlyNAT
	case 'R':
		return &o.onlyRules
	case 'g', 'm', 'r', 'h', 'z', 'P':
		return &ignored
	}
	return nil
}

func (o *pfctlOptions) value(letter byte) *string {
	var ignored string
	switch letter {
	case 'a':
		return &o.anchor
	case 'f':
		return &o.file
	case 's':
		return &o.show
	case 'F':
		return &o.flush
	case 'X':
		return &o.release
	case 't':
		return &o.table
	case 'T':
		return &o.tableVerb
	case 'x', 'p', 'o', 'k', 'K', 'i', 'D':
		return &ignored
	}
	return nil
}

func runPfctl(_ context.Context, c *call) error {
	o, err := parsePfctl(c.Args)
	if err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return failed(1, "%s", pfctlUsage)
	}
	if !o.noAction || !o.hasFile {
		if err := c.needsRoot(1, "pfctl: /dev/pf: Permission denied"); err != nil {
			return err
		}
	}
	o.anchor = strings.TrimPrefix(o.anchor, "/")
	return update(c.root, filterFile, func(f *pf.Filter) error {
		if o.hasFile && o.anchor == "" && !o.noAction && !o.quiet {
			fmt.Fprint(c.Stderr, "pfctl: Use of -f option, could result in flushing of rules\npresent in the main ruleset added by the system at startup.\nSee /etc/pf.conf for further details.\n\n")
		}
		if !o.quiet {
			fmt.Fprint(c.Stderr, "No ALTQ support in kernel\nALTQ related functions disabled\n")
		}
		return c.pfctl(f, o)
	})
}

// pfctl does what the options ask for, in pfctl's own order.
func (c *call) pfctl(f *pf.Filter, o pfctlOptions) error {
	if o.disable {
		if !f.Enabled {
			return failed(1, "pfctl: pf not enabled")
		}
		f.Enabled, f.Tokens, f.Changes = false, nil, f.Changes+1
		fmt.Fprintln(c.Stderr, "pf disabled")
	}
	if o.show != "" {
		if err := c.showPf(f, o); err != nil {
			return err
		}
	}
	if o.flush != "" {
		if !f.Flush(o.anchor, o.flush) {
			return failed(1, "pfctl: Unknown flush modifier '%s'", o.flush)
		}
		fmt.Fprintln(c.Stderr, o.flush+" cleared")
	}
	if o.tableVerb != "" {
		if err := c.pfTable(f, o); err != nil {
			return err
		}
	}
	if o.hasFile {
		if err := c.loadPf(f, o); err != nil {
			return err
		}
	}
	if o.enable {
		if f.Enabled {
			return failed(1, "pfctl: pf already enabled")
		}
		f.Enabled, f.Changes = true, f.Changes+1
		fmt.Fprintln(c.Stderr, "pf enabled")
	}
	if o.enableToken {
		fmt.Fprintf(c.Stderr, "pf enabled\nToken : %d\n", f.Enable())
	}
	if o.release != "" {
		if !f.Release(o.release) {
			return failed(1, "pfctl: pf not enabled") // likely, for a token that is not held
		}
		fmt.Fprintln(c.Stderr, "disable request successful.")
	}
	return nil
}

func (c *call) loadPf(f *pf.Filter, o pfctlOptions) error {
	var text []byte
	var err error
	name := o.file
	if name == "-" {
		name = "stdin"
		text, err = c.readAll()
	} else {
		text, err = os.ReadFile(c.root.Path(o.file))
	}
	if err != nil {
		return failed(1, "pfctl: %s: %s\npfctl: cannot open the main config file!: %s", o.file, reason(err), reason(err))
	}
	options := pf.LoadOptions{
		Interfaces: c.config.interfaces(), NoAction: o.noAction, DefineTables: c.config.ValidateDefinesTables,
		ReadFile: func(path string) ([]byte, error) { return os.ReadFile(c.root.Path(path)) },
	}
	switch {
	case o.onlyNAT:
		options.Keep = func(k pf.Kind) bool { return !k.Translates() }
	case o.onlyRules:
		options.Keep = func(k pf.Kind) bool { return k.Translates() }
	}
	candidate := f
	if o.noAction {
		candidate = &pf.Filter{}
	}
	if err := candidate.Load(o.anchor, name, string(text), options); err != nil {
		if errors.Is(err, pf.ErrNotLoaded) {
			return failed(1, "%s", strings.Replace(err.Error(), pf.ErrNotLoaded.Error(), "pfctl: "+pf.ErrNotLoaded.Error(), 1))
		}
		return err
	}
	if o.verbose {
		return c.printParsed(o, name, string(text), options)
	}
	return nil
}

// printParsed is what -v adds to a load or a parse: the tables and rules of the file, in pfctl's own form, as far as they
// belong to the loaded rule set. A table is printed as `table <x> const { … }`.
func (c *call) printParsed(o pfctlOptions, name, text string, options pf.LoadOptions) error {
	options.NoAction, options.Keep = false, nil
	var parsed pf.Filter
	if err := parsed.Load(o.anchor, name, text, options); err != nil {
		return nil //nolint:nilerr // a table that is defined twice: only a load complains
	}
	if set := parsed.Rulesets[o.anchor]; set != nil {
		for _, table := range slices.Sorted(maps.Keys(set.Tables)) {
			fmt.Fprintf(c.Stdout, "table <%s> const { %s }\n", table, strings.Join(set.Tables[table].Addresses, " "))
		}
	}
	return errors.Join(c.showRules(&parsed, o.anchor, true), c.showRules(&parsed, o.anchor, false))
}

func (c *call) showPf(f *pf.Filter, o pfctlOptions) error {
	what := o.show
	for _, full := range []string{"nat", "queue", "rules", "Anchors", "Sources", "states", "info", "labels", "timeouts", "memory", "Tables", "osfp", "Interfaces", "References", "all"} {
		if strings.HasPrefix(full, what) && (len(what) > 1 || what == full[:1]) {
			what = full
			break
		}
	}
	switch what {
	case "rules", "nat":
		return c.showRules(f, o.anchor, what == "nat")
	case "info":
		status := "Disabled"
		if f.Enabled {
			status = "Enabled"
		}
		fmt.Fprintf(c.Stdout, "Status: %-44s Debug: Urgent\n\nState Table                          Total             Rate\n  current entries                        0\n", status+" for 0 days 00:00:01")
	case "Anchors":
		for _, a := range f.Anchors(o.anchor, o.verbose) {
			fmt.Fprintln(c.Stdout, "  "+a)
		}
	case "Tables":
		if set := f.Rulesets[o.anchor]; set != nil {
			var tables []string
			for name := range set.Tables {
				tables = append(tables, name)
			}
			slices.Sort(tables)
			for _, name := range tables {
				fmt.Fprintln(c.Stdout, name)
			}
		}
	case "References":
		for _, token := range f.Tokens {
			fmt.Fprintf(c.Stdout, "TOKENS:\n%d\n", token)
		}
	case "states", "labels", "timeouts", "memory", "osfp", "Interfaces", "queue", "Sources":
	case "all":
		if err := errors.Join(c.showRules(f, o.anchor, true), c.showRules(f, o.anchor, false)); err != nil {
			return err
		}
	default:
		return failed(1, "pfctl: Unknown show modifier '%s'", o.show)
	}
	return nil
}

// showRules prints rules. For a missing anchor it prints an error, and still exits with 0 (likely: the message is known).
func (c *call) showRules(f *pf.Filter, anchor string, nat bool) error {
	lines, exists := f.Show(anchor, nat)
	if !exists {
		fmt.Fprintln(c.Stderr, "pfctl: DIOCGETRULES: Invalid argument")
		return nil
	}
	for _, line := range lines {
		fmt.Fprintln(c.Stdout, line)
	}
	return nil
}

func (c *call) pfTable(f *pf.Filter, o pfctlOptions) error {
	set := f.Rulesets[o.anchor]
	if !o.hasTable {
		return failed(1, "%s", pfctlUsage)
	}
	if set == nil {
		return failed(255, "pfctl: Table does not exist.")
	}
	t, exists := set.Tables[o.table]
	if !exists && o.tableVerb != "add" && o.tableVerb != "replace" {
		return failed(255, "pfctl: Table does not exist.")
	}
	for _, a := range o.rest {
		if _, err := pf.ParsePrefix(strings.TrimPrefix(a, "!")); err != nil {
			return failed(1, "pfctl: no IP address found for %s", a)
		}
	}
	switch o.tableVerb {
	case "show":
		for _, a := range t.Addresses {
			whole := "/32"
			if strings.Contains(a, ":") {
				whole = "/128"
			}
			fmt.Fprintln(c.Stdout, "   "+strings.TrimSuffix(a, whole))
		}
		return nil
	case "add":
		t.Addresses = append(t.Addresses, normal(o.rest)...)
	case "delete":
		t.Addresses = slices.DeleteFunc(t.Addresses, func(a string) bool { return slices.Contains(normal(o.rest), a) })
	case "replace":
		t.Addresses = normal(o.rest)
	case "flush":
		t.Addresses = nil
	default:
		return failed(1, "pfctl: the model's tables know show, add, delete, replace and flush")
	}
	if t.Const {
		return failed(255, "pfctl: Operation not permitted.")
	}
	if !exists {
		t.Persist = true
		fmt.Fprintln(c.Stderr, "1 table created.")
	}
	set.Tables[o.table] = t
	f.Changes++
	return nil
}

func normal(words []string) []string {
	var addresses []string
	for _, w := range words {
		negated := strings.HasPrefix(w, "!")
		if p, err := pf.ParsePrefix(strings.TrimPrefix(w, "!")); err == nil {
			text := p.String()
			if negated {
				text = "!" + text
			}
			addresses = append(addresses, text)
		}
	}
	return addresses
}

func (m Machine) interfaces() pf.Interfaces {
	all := pf.Interfaces{}
	for _, i := range m.Interfaces {
		all[i.Name] = i.Addresses
	}
	return all
}

// Flow is a connection attempt.
type Flow struct {
	// From is its source: a machine of vmnet's, an address of the Mac itself (or none: that of en0), or any other.
	From netip.Addr
	To   netip.Addr
	// Proto is tcp (the default), udp, icmp or ipv6-icmp.
	Proto string
	// Port is the destination; for ICMP, Type.
	Port uint16
	Type string
	// Established asks about a packet within a connection for which the filter has no state.
	Established bool
}

// Answer is the outcome of a Flow.
type Answer struct {
	Reached bool
	// Refused indicates that the client gets a refusal at once, and need not time out.
	Refused bool
	// Stateful indicates that the connection survives changes of the rules.
	Stateful bool
	// By are the rules that decided, the last one last, each as "ANCHOR: RULE".
	By []string
	// Source is the address that the other end sees, which NAT may have changed.
	Source netip.Addr
	// Translated indicates that NAT did.
	Translated bool
}

// Evaluate says what becomes of a connection, by the rules that are in force. One through the Mac is judged on its way in and, after NAT, on its way
// out. Packets between two machines of one bridge are judged on the bridge, as far as pf sees them: a real Mac may not show them to it.
func (r Root) Evaluate(flow Flow) (Answer, error) {
	var f pf.Filter
	var m Machine
	if err := errors.Join(r.read(filterFile, &f), r.read(machineFile, &m)); err != nil {
		return Answer{}, err
	}
	return evaluate(&f, m, flow), nil
}

func evaluate(f *pf.Filter, m Machine, flow Flow) Answer {
	if flow.Proto == "" {
		flow.Proto = "tcp"
	}
	answer := Answer{Reached: true, Stateful: true, Source: flow.From}
	judge := func(direction, on string) {
		if !answer.Reached {
			return
		}
		v := f.Evaluate(pf.Packet{
			Direction: direction, Interface: on, Proto: flow.Proto, Src: answer.Source, Dst: flow.To, SrcPort: 50000, DstPort: flow.Port, ICMPType: flow.Type, Established: flow.Established,
		}, m.interfaces())
		answer.Reached, answer.Refused = v.Pass, v.Return && !v.Pass
		answer.Stateful = answer.Stateful && v.Stateful
		if v.Rule != "" {
			answer.By = append(answer.By, strings.TrimPrefix(v.Anchor+": "+v.Rule, ": "))
		}
	}
	from, to := m.interfaceOf(flow.From), m.interfaceOf(flow.To)
	ownFrom, ownTo := !flow.From.IsValid() || m.owns(flow.From), m.owns(flow.To)
	if !flow.From.IsValid() {
		answer.Source = m.address(to, flow.To.Is4())
	}
	switch {
	case ownFrom && ownTo:
		judge("out", "lo0")
		judge("in", "lo0")
	case ownTo:
		judge("in", from)
	case ownFrom:
		judge("out", to)
	case from == to && from != "en0":
		judge("in", from)
		judge("out", to)
	default:
		judge("in", from)
		if to == "en0" {
			answer.Source, answer.Translated = f.Translate(pf.Packet{Direction: "out", Interface: to, Proto: flow.Proto, Src: flow.From, Dst: flow.To, SrcPort: 50000, DstPort: flow.Port}, m.interfaces())
		}
		judge("out", to)
	}
	return answer
}

// interfaceOf is the one behind which an address is.
func (m Machine) interfaceOf(a netip.Addr) string {
	for _, i := range m.Interfaces {
		for _, p := range i.Addresses {
			if !a.IsLinkLocalUnicast() && p.Masked().Contains(a) {
				return i.Name
			}
		}
	}
	return "en0"
}

func (m Machine) owns(a netip.Addr) bool {
	for _, i := range m.Interfaces {
		for _, p := range i.Addresses {
			if p.Addr() == a || i.Name == "lo0" && p.Contains(a) && a.IsLoopback() {
				return true
			}
		}
	}
	return false
}

func (m Machine) address(on string, v4 bool) netip.Addr {
	for _, i := range m.Interfaces {
		for _, p := range i.Addresses {
			if i.Name == on && p.Addr().Is4() == v4 {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}
