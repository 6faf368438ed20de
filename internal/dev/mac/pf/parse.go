package pf

import (
	"errors"
	"net/netip"
	"path"
	"strings"
)

// Interfaces are those of the host, with their addresses.
type Interfaces map[string][]netip.Prefix

// parsed is what a file says.
type parsed struct {
	rules  []Rule
	tables []tableDefinition
	loads  []load
	skip   []string
	inline map[string]*parsed // anchors between braces, by name
}

type tableDefinition struct {
	name string
	line int
	Table
}

// load is `load anchor NAME from FILE`.
type load struct {
	anchor, file string
	line         int
}

// parser reads the tokens of one file.
type parser struct {
	file       string
	tokens     []token
	at         int
	macros     map[string]string
	interfaces Interfaces
	readFile   func(string) ([]byte, error)
	out        *parsed
	reached    int // the order of the last rule
	problems   []error
	anonymous  int
	depth      int
	blockWith  string
}

// parse reads a file's text. The errors are all that are wrong with it, each a *syntaxError.
func parse(file, text string, interfaces Interfaces, readFile func(string) ([]byte, error)) (*parsed, error) {
	tokens, err := lex(file, text)
	if err != nil {
		return nil, err
	}
	p := &parser{file: file, tokens: tokens, macros: map[string]string{}, interfaces: interfaces, readFile: readFile, out: newParsed(), blockWith: "drop"}
	p.statements(false)
	return p.out, errors.Join(p.problems...)
}

func newParsed() *parsed { return &parsed{inline: map[string]*parsed{}} }

// bail is panicked with to leave a statement that makes no sense; statements catches it.
type bail struct{ err error }

func (p *parser) fail(text string) {
	panic(bail{&syntaxError{p.file, p.line(), text}})
}

func (p *parser) line() int {
	if p.at < len(p.tokens) {
		return p.tokens[p.at].line
	}
	return p.tokens[len(p.tokens)-1].line
}

// peek is the next token, macros replaced by what they stand for.
func (p *parser) peek() token {
	for p.at < len(p.tokens) {
		t := p.tokens[p.at]
		name, macro := strings.CutPrefix(t.text, "$")
		if t.quoted || !macro {
			return t
		}
		value, known := p.macros[name]
		if !known {
			p.at++
			panic(bail{&syntaxError{p.file, t.line, "macro '" + name + "' not defined"}})
		}
		expansion, err := lex(p.file, value)
		if err != nil {
			panic(bail{err})
		}
		expansion = expansion[:len(expansion)-1] // its end of line
		for i := range expansion {
			expansion[i].line = t.line
		}
		p.depth++
		if p.depth > 1000 {
			p.fail("macro expands to itself")
		}
		p.tokens = append(append(append([]token{}, p.tokens[:p.at]...), expansion...), p.tokens[p.at+1:]...)
	}
	return token{text: newline, line: p.line()}
}

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

// take reads the next token if it is that.
func (p *parser) take(text string) bool {
	if p.peek().is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) takeAny(texts ...string) string {
	for _, text := range texts {
		if p.take(text) {
			return text
		}
	}
	return ""
}

func (p *parser) want(text string) {
	if !p.take(text) {
		p.fail("syntax error")
	}
}

// word is a name or value.
func (p *parser) word() string {
	t := p.peek()
	if !t.quoted && (t.text == newline || signAt(t.text) != "") || t.text == "" {
		p.fail("syntax error")
	}
	p.at++
	return t.text
}

func (p *parser) atEnd() bool {
	t := p.peek()
	return t.is(newline) || t.is("}")
}

func (p *parser) skipNewlines() {
	for p.at < len(p.tokens) && p.take(newline) {
		continue
	}
}

// statements reads until the end of the file, or of the braces.
func (p *parser) statements(inBraces bool) {
	for p.at < len(p.tokens) {
		if inBraces && p.tokens[p.at].is("}") {
			return
		}
		p.guarded()
	}
}

// guarded reads one statement; one that makes no sense is reported and skipped.
func (p *parser) guarded() {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		left, ours := r.(bail)
		if !ours {
			panic(r)
		}
		p.problems = append(p.problems, left.err)
		for p.at < len(p.tokens) && !p.tokens[p.at].is(newline) {
			p.at++
		}
		p.at++
	}()
	p.statement()
}

func (p *parser) statement() {
	if p.take(newline) {
		return
	}
	first := p.peek()
	if p.at+1 < len(p.tokens) && p.tokens[p.at+1].is("=") && !first.quoted {
		p.macro()
		return
	}
	switch first.text {
	case "set":
		p.option()
	case "table":
		p.table()
	case "load":
		p.load()
	case "scrub", "nat", "rdr", "binat", "no", "dummynet", "pass", "block", "scrub-anchor", "nat-anchor", "rdr-anchor", "binat-anchor", "dummynet-anchor", "anchor":
		p.rule()
	case "antispoof", "altq", "queue", "include":
		p.fail("the model does not know " + first.text)
	default:
		p.fail("syntax error")
	}
	if !p.atEnd() {
		p.fail("syntax error")
	}
}

func (p *parser) macro() {
	name := p.next().text
	p.want("=")
	var words []string
	for !p.atEnd() {
		words = append(words, p.next().text)
	}
	if len(words) == 0 {
		p.fail("syntax error")
	}
	p.macros[name] = strings.Join(words, " ")
}

func (p *parser) reach(order int) {
	if order < p.reached {
		p.fail("Rules must be in order: options, normalization, queueing, translation, filtering")
	}
	p.reached = order
}

func (p *parser) option() {
	p.reach(1)
	p.want("set")
	switch name := p.word(); name {
	case "skip":
		p.want("on")
		p.list(func() { p.out.skip = append(p.out.skip, p.word()) })
	case "block-policy":
		p.blockWith = p.takeAny("drop", "return")
		if p.blockWith == "" {
			p.fail("syntax error")
		}
	case "timeout", "limit", "loginterface", "optimization", "ruleset-optimization", "state-policy", "debug", "fingerprints", "hostid", "require-order", "state-defaults", "reassemble":
		for !p.atEnd() {
			p.next()
		}
	default:
		p.fail("syntax error")
	}
}

// list calls item once, or for each item between braces.
func (p *parser) list(item func()) {
	if !p.take("{") {
		item()
		return
	}
	p.skipNewlines()
	for !p.take("}") {
		item()
		p.skipNewlines()
		p.take(",")
		p.skipNewlines()
	}
}

func (p *parser) table() {
	line := p.line()
	p.want("table")
	p.want("<")
	name := p.word()
	p.want(">")
	if len(name) > 31 {
		p.fail("table name too long, max 31 chars")
	}
	var t Table
	for !p.atEnd() && !p.peek().is("{") {
		switch p.word() {
		case "persist":
			t.Persist = true
		case "const":
			t.Const = true
		case "counters":
		case "file":
			p.tableFile(&t, p.word())
		default:
			p.fail("syntax error")
		}
	}
	if p.peek().is("{") {
		p.list(func() { t.Addresses = append(t.Addresses, p.tableAddress()...) })
	}
	p.out.tables = append(p.out.tables, tableDefinition{name, line, t})
}

func (p *parser) tableFile(t *Table, file string) {
	text, err := p.readFile(file)
	if err != nil {
		p.fail("cannot load " + file + ": " + errText(err))
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			prefix, err := ParsePrefix(strings.TrimPrefix(word, "!"))
			if err != nil {
				p.fail("cannot load " + file + ": Invalid argument")
			}
			t.Addresses = append(t.Addresses, not(strings.HasPrefix(word, "!"))+prefix.String())
		}
	}
}

func not(b bool) string {
	if b {
		return "!"
	}
	return ""
}

func (p *parser) tableAddress() []string {
	negated := p.take("!")
	t := p.next()
	if t.text == newline || signAt(t.text) != "" {
		p.at--
		p.fail("syntax error")
	}
	if prefix, err := ParsePrefix(t.text); err == nil {
		return []string{not(negated) + prefix.String()}
	}
	var addresses []string
	for _, prefix := range p.static(t.text) {
		addresses = append(addresses, not(negated)+prefix.String())
	}
	return addresses
}

func (p *parser) load() {
	line := p.line()
	p.want("load")
	p.want("anchor")
	name := p.word()
	p.want("from")
	p.out.loads = append(p.out.loads, load{anchor: name, file: p.word(), line: line})
}

// inlineAnchor reads the rules of an anchor between braces.
func (p *parser) inlineAnchor(name string) {
	inner := &parser{file: p.file, tokens: p.tokens, at: p.at, macros: p.macros, interfaces: p.interfaces, readFile: p.readFile, out: newParsed(), blockWith: p.blockWith}
	inner.statements(true)
	p.tokens, p.at = inner.tokens, inner.at
	p.problems = append(p.problems, inner.problems...)
	p.want("}")
	p.out.inline[path.Clean(name)] = inner.out
}

// ParsePrefix reads an address or a network, which may leave out zeros at its end, as 10/8 does.
func ParsePrefix(text string) (netip.Prefix, error) {
	text, _, _ = strings.Cut(text, "%")
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	// 10/8 and 192.168/16 are good, too.
	if address, bits, ok := strings.Cut(text, "/"); ok && !strings.Contains(address, ":") && strings.Count(address, ".") < 3 {
		text = address + strings.Repeat(".0", 3-strings.Count(address, ".")) + "/" + bits
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

func errText(err error) string {
	var pathError interface{ Unwrap() error }
	if errors.As(err, &pathError) {
		if inner := pathError.Unwrap(); inner != nil {
			text := inner.Error()
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return err.Error()
}
