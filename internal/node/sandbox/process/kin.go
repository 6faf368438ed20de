package process

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// proc is one process, as a list of all of them shows it.
type proc struct{ pid, parent, group int }

// kin are the processes that carry a mark, those in the process groups of such, and the descendants of any of them, by id. self, its
// ancestors and its group are never among them.
//
// Where every environment can be read this is more than the marked ones. On macOS it has to be: no user there, root included, can read the
// environment of Apple's own programs, such as /bin/bash and /bin/sleep.
func kin(all []proc, marked map[int]bool, self proc) []int {
	keep := map[int]bool{self.pid: true}
	byID := map[int]proc{}
	for _, p := range all {
		byID[p.pid] = p
	}
	for at := self.parent; at > 1 && !keep[at]; at = byID[at].parent {
		keep[at] = true
	}
	found, groups := map[int]bool{}, map[int]bool{}
	for more := true; more; {
		more = false
		for _, p := range all {
			ours := marked[p.pid] || groups[p.group] || found[p.parent]
			if !ours || found[p.pid] || keep[p.pid] || p.pid <= 1 || p.group == self.group {
				continue
			}
			found[p.pid], more = true, true
			// A group is a container's own when who carries the mark leads it: only then do its other members belong to it.
			if marked[p.pid] && p.group == p.pid {
				groups[p.group] = true
			}
		}
	}
	ids := make([]int, 0, len(found))
	for pid := range found {
		ids = append(ids, pid)
	}
	slices.Sort(ids)
	return ids
}

// carries reports whether an environment entry is the mark, or a mark below it.
func carries(entry, mark string) bool { return entry == mark || strings.HasPrefix(entry, mark+"/") }

// environOf takes the environment out of what macOS answers to kern.procargs2: the number of arguments (32 bits), the program's path, NULs,
// the arguments, then the environment, each ended by a NUL. Where the environment is withheld there is nothing in it.
func environOf(answer []byte) []string {
	if len(answer) < 4 {
		return nil
	}
	arguments := int(binary.NativeEndian.Uint32(answer))
	_, rest, ok := bytes.Cut(answer[4:], []byte{0})
	if !ok {
		return nil
	}
	rest = bytes.TrimLeft(rest, "\x00")
	var entries []string
	for len(rest) > 0 {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{0})
		switch {
		case arguments > 0:
			arguments--
		case len(text) == 0:
			return entries // what follows is the loader's
		default:
			entries = append(entries, string(text))
		}
	}
	return entries
}
