package remote

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Bounds of what a host may tell. Its words reach logs, conditions and terminals.
const (
	maxLine    = 256 << 10
	maxEvents  = 20_000
	maxText    = 4 << 10
	maxName    = 128
	maxChanges = 500
	maxNoise   = 1 << 10 // bytes kept of lines that are no events
)

// errTooManyEvents ends an apply that tells more than any apply would.
var errTooManyEvents = &misbehavedError{"the host sends too many events"}

// parser takes the lines of `bullpen host apply --output json` apart. It is an io.Writer, fed by one goroutine. Lines that are no events, such as
// what a login script prints, are skipped; unknown phases and fields are those of another version, and passed on.
type parser struct {
	show   shower
	event  func(machost.Event)
	stop   func(error) // ends the connection
	line   []byte
	skip   bool // the rest of a line that is too long
	events int
	noise  []byte
}

// Write never keeps more than one line.
func (p *parser) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		if !p.skip {
			p.line = append(p.line, part[:min(len(part), maxLine+1-len(p.line))]...)
			p.skip = len(p.line) > maxLine
		}
		if !ended {
			break
		}
		p.take()
	}
	return len(data), nil
}

// close takes a last line that was not ended.
func (p *parser) close() {
	if len(p.line) > 0 {
		p.take()
	}
}

func (p *parser) take() {
	line := p.line
	tooLong := p.skip
	p.line, p.skip = p.line[:0], false
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	var e machost.Event
	if tooLong || line[0] != '{' || json.Unmarshal(line, &e) != nil || !validName(string(e.Phase)) || e.Step != "" && !validName(e.Step) {
		p.noise = append(p.noise, line[:min(len(line), maxNoise-len(p.noise))]...)
		return
	}
	if p.events++; p.events > maxEvents {
		p.stop(errTooManyEvents)
		return
	}
	p.event(p.show.event(e))
}

// validName reports whether a step or phase could be one: they become conditions and labels.
func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, r := range name {
		if r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)) {
			return false
		}
	}
	return true
}

// shower makes what a host says fit to be shown. Nothing on the host should say a secret; a program of macOS that does must not
// make it a status of ours (HOST-6).
type shower struct{ secrets *machost.Redactor }

func (s shower) event(e machost.Event) machost.Event {
	e.Message, e.File, e.Remedy = s.text(e.Message), s.text(e.File), s.text(e.Remedy)
	if e.Hash != "" && !validName(e.Hash) {
		e.Hash = ""
	}
	if e.Token != "" && !validName(e.Token) {
		e.Token = ""
	}
	e.Changes = e.Changes[:min(len(e.Changes), maxChanges)]
	for i, change := range e.Changes {
		e.Changes[i] = s.text(change)
	}
	return e
}

// text makes a text one line without what moves a cursor, bounded, and without secrets.
func (s shower) text(text string) string {
	if len(text) > 2*maxLine {
		text = text[len(text)-2*maxLine:]
	}
	text = s.secrets.Text(text)
	clean := strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t' || c == '\r':
			return ' '
		case unicode.IsPrint(c):
			return c
		}
		return -1
	}, text))
	if clean != text {
		clean = s.secrets.Text(clean) // taking characters out may have joined a secret's parts
	}
	if len(clean) > maxText {
		clean = strings.ToValidUTF8(clean[:maxText], "") + "…"
	}
	return clean
}
