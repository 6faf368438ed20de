package pf

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Filter is the kernel's part: what is in force. Its zero value is that of a kernel that has just started.
type Filter struct {
	Enabled bool `json:"enabled"`
	// Tokens are the references by which others have enabled it (pfctl -E); the last to go disables it.
	Tokens []uint64 `json:"tokens,omitempty"`
	// Rulesets by the anchor's path; the main one's is empty.
	Rulesets map[string]*Ruleset `json:"rulesets"`
	// Skip are interfaces that are not filtered.
	Skip []string `json:"skip,omitempty"`
	// Changes counts what may have changed an answer.
	Changes int `json:"changes"`
	// Flushes counts how often states were thrown away: connections that had one are judged again.
	Flushes int `json:"flushes"`
}

// LoadOptions say how rules are loaded.
type LoadOptions struct {
	Interfaces Interfaces
	// ReadFile reads the files that are named in others.
	ReadFile func(string) ([]byte, error)
	// NoAction parses only (pfctl -n).
	NoAction bool
	// DefineTables makes NoAction find tables that are defined twice, too.
	DefineTables bool
	// Keep are kinds of rules of the rule set that stay as they are (pfctl -N and -R load some kinds only).
	Keep func(Kind) bool
}

// ErrNotLoaded is what every failed load ends with: the old rules are still in force.
var ErrNotLoaded = errors.New("Syntax error in config file: pf rules not loaded")

// Load replaces the rules of an anchor, or the main rule set, by those of a file's text, with the anchors that it loads. It changes all
// or nothing. Its error holds a line for each thing that is wrong.
func (f *Filter) Load(anchor, file, text string, o LoadOptions) error {
	anchor = strings.Trim(anchor, "/")
	t := &transaction{options: o, sets: map[string]*Ruleset{}, defined: map[string]bool{}}
	if err := t.load(anchor, file, text); err != nil {
		return errors.Join(err, ErrNotLoaded)
	}
	if o.NoAction {
		return nil
	}
	f.commit(anchor, t)
	return nil
}

// transaction collects rule sets until all are good.
type transaction struct {
	options LoadOptions
	sets    map[string]*Ruleset
	skip    []string
	defined map[string]bool // tables, by anchor and name
}

func (t *transaction) load(anchor, file, text string) error {
	said, err := parse(file, text, t.options.Interfaces, t.options.ReadFile)
	if err != nil {
		return err
	}
	if anchor == "" {
		t.skip = said.skip
	}
	if err := t.take(anchor, file, said); err != nil {
		return err
	}
	for _, l := range said.loads {
		inner, err := t.options.ReadFile(l.file)
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %s", file, l.line, l.file, errText(err))
		}
		if err := t.load(path.Join(anchor, l.anchor), l.file, string(inner)); err != nil {
			return err
		}
	}
	return nil
}

// take adds what a file says to the transaction. An anchor that is loaded twice gets its rules twice, but a table cannot be
// defined twice: the first definition is still under way.
func (t *transaction) take(anchor, file string, said *parsed) error {
	set := t.sets[anchor]
	if set == nil {
		set = &Ruleset{Tables: map[string]Table{}}
		t.sets[anchor] = set
	}
	set.Rules = append(set.Rules, said.rules...)
	for _, d := range said.tables {
		key := anchor + "\x00" + d.name
		if t.defined[key] && (!t.options.NoAction || t.options.DefineTables) {
			return &syntaxError{file, d.line, "cannot define table " + d.name + ": Resource busy"}
		}
		t.defined[key] = true
		set.Tables[d.name] = d.Table
	}
	for _, name := range slices.Sorted(maps.Keys(said.inline)) {
		if err := t.take(path.Join(anchor, name), file, said.inline[name]); err != nil {
			return err
		}
	}
	return nil
}

func (f *Filter) commit(anchor string, t *transaction) {
	if f.Rulesets == nil {
		f.Rulesets = map[string]*Ruleset{}
	}
	if old := f.Rulesets[anchor]; old != nil && t.options.Keep != nil {
		set := t.sets[anchor]
		set.Rules = slices.DeleteFunc(set.Rules, func(r Rule) bool { return t.options.Keep(r.Kind) })
		set.Rules = append(set.Rules, slices.DeleteFunc(slices.Clone(old.Rules), func(r Rule) bool { return !t.options.Keep(r.Kind) })...)
		slices.SortStableFunc(set.Rules, func(a, b Rule) int { return a.Kind.order() - b.Kind.order() })
	}
	maps.Copy(f.Rulesets, t.sets)
	if anchor == "" {
		f.Skip = t.skip
	}
	f.settle()
}

// settle makes the anchors that rules call, forgets empty ones that none calls, and tables that none uses.
func (f *Filter) settle() {
	f.Changes++
	called := map[string]bool{"": true}
	for at, set := range f.Rulesets {
		for _, r := range set.Rules {
			if r.Kind.calls() {
				for p := strings.TrimSuffix(calledPath(at, r.Anchor), "/*"); p != "." && p != ""; p = path.Dir(p) {
					called[p] = true
				}
			}
		}
	}
	for p := range called {
		if f.Rulesets[p] == nil {
			f.Rulesets[p] = &Ruleset{Tables: map[string]Table{}}
		}
	}
	for p, set := range f.Rulesets {
		for name, table := range set.Tables {
			if !table.Persist && !f.uses(p, name) {
				delete(set.Tables, name)
			}
		}
		if !called[p] && len(set.Rules) == 0 && len(set.Tables) == 0 && !f.hasChild(p) {
			delete(f.Rulesets, p)
		}
	}
}

func (f *Filter) hasChild(anchor string) bool {
	for p := range f.Rulesets {
		if strings.HasPrefix(p, anchor+"/") {
			return true
		}
	}
	return false
}

// uses reports whether a rule of the anchor, or below the main one any, refers to the table.
func (f *Filter) uses(anchor, table string) bool {
	for p, set := range f.Rulesets {
		if p != anchor && anchor != "" {
			continue
		}
		if slices.ContainsFunc(set.Rules, func(r Rule) bool { return r.From.Table == table || r.To.Table == table }) {
			return true
		}
	}
	return false
}

// calledPath is the path of an anchor that a rule calls: from the rule's own, unless it begins with a slash.
func calledPath(at, anchor string) string {
	if absolute, ok := strings.CutPrefix(anchor, "/"); ok {
		return absolute
	}
	return path.Join(at, anchor)
}

// Flush empties a part of an anchor: "nat", "rules", "states", "Tables", "all" and so on, as pfctl -F has it.
func (f *Filter) Flush(anchor, what string) bool {
	set := f.Rulesets[strings.Trim(anchor, "/")]
	if set == nil {
		set = &Ruleset{}
	}
	drop := func(doomed func(Kind) bool) {
		set.Rules = slices.DeleteFunc(set.Rules, func(r Rule) bool { return doomed(r.Kind) })
	}
	switch what {
	case "nat":
		drop(Kind.Translates)
	case "rules":
		drop(func(k Kind) bool { return !k.Translates() })
	case "states":
		f.Flushes++
	case "Tables":
		set.Tables = map[string]Table{}
	case "all":
		drop(func(Kind) bool { return true })
		set.Tables = map[string]Table{}
		if anchor == "" {
			f.Flushes++
		}
	case "info", "Sources", "osfp", "queue", "dummynet":
	default:
		return false
	}
	f.settle()
	return true
}

// Enable is pfctl -E: it counts its users, and returns a token for the release.
func (f *Filter) Enable() uint64 {
	token := uint64(13_000_000_000_000_000_000) + uint64(f.Changes)*1009 + uint64(len(f.Tokens))
	f.Tokens = append(f.Tokens, token)
	f.Enabled = true
	f.Changes++
	return token
}

// Release is pfctl -X: the last token disables. It reports whether the token was known.
func (f *Filter) Release(text string) bool {
	token, err := strconv.ParseUint(text, 10, 64)
	at := slices.Index(f.Tokens, token)
	if err != nil || at < 0 {
		return false
	}
	f.Tokens = slices.Delete(f.Tokens, at, at+1)
	f.Enabled = len(f.Tokens) > 0
	f.Changes++
	return true
}

// Add puts a rule where its kind belongs, behind others of it.
func (s *Ruleset) Add(r Rule) {
	s.Rules = append(s.Rules, r)
	slices.SortStableFunc(s.Rules, func(a, b Rule) int { return a.Kind.order() - b.Kind.order() })
}
