package auditchange

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Difference is one value that was changed; empty: there was none, or is none.
type Difference struct{ Name, Was, Is string }

// String is the difference in one line, such as "linux jobs: 20 → 40".
func (d Difference) String() string {
	was, is := "", d.Is
	if d.Was != "" {
		was = d.Was + " → "
	}
	if is == "" {
		is = "none"
	}
	return d.Name + ": " + was + is
}

// Text is all differences in one line.
func Text(differences []Difference) string {
	texts := make([]string, len(differences))
	for i, d := range differences {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}

// Of returns the values that two states do not share, by name.
func Of(before, after json.RawMessage) []Difference {
	was, is := leaves(before), leaves(after)
	names := map[string]bool{}
	for _, state := range []map[string]string{was, is} {
		for name := range state {
			names[name] = true
		}
	}
	var list []Difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			list = append(list, inWords(Difference{Name: name, Was: was[name], Is: is[name]}))
		}
	}
	return list
}

// words are names of fields as users write them, and how they write the value.
var words = map[string]struct {
	name  string
	write func(int64) string // nil: as it is
}{
	"milliCpu": {"CPUs", fleet.FormatCPU}, "memoryMb": {"memory", fleet.FormatMemory}, "jobsPerRepository": {name: "jobs per repository"},
	"suspendedByAdministrator": {name: "suspended by an administrator"}, "suspendedByGithub": {name: "suspended by GitHub"},
	"suspensionReason": {name: "suspension reason"}, "installationId": {name: "installation ID"},
}

// inWords is a difference as users write it. What is not a known field, or not a number, stays as it is.
func inWords(d Difference) Difference {
	path := strings.Split(d.Name, " ")
	last := len(path) - 1
	word, known := words[path[last]]
	if !known {
		return d
	}
	path[last] = word.name
	d.Name = strings.Join(path, " ")
	if word.write == nil {
		return d
	}
	for _, value := range []*string{&d.Was, &d.Is} {
		if n, err := strconv.ParseInt(*value, 10, 64); err == nil {
			*value = word.write(n)
		}
	}
	return d
}

// leaves are the values of a JSON object, each by the names that lead to it. What is no object has none.
func leaves(raw json.RawMessage) map[string]string {
	found := map[string]string{}
	var walk func(name string, value any)
	walk = func(name string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(strings.TrimPrefix(name+" "+key, " "), inner)
			}
		case nil:
		case string:
			found[name] = v
		default:
			if text, err := json.Marshal(v); err == nil {
				found[name] = string(text)
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // an id is not to be rounded
	var value any
	if decoder.Decode(&value) == nil {
		walk("", value)
	}
	return found
}
