package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// labelWalk finds the keys of the label sets that one pool serves among others, in the order of their bytes. It has the pool's labels as they
// stand in keys, in that order.
type labelWalk []string

func walkOf(p Pool) labelWalk {
	var w labelWalk
	for _, label := range fold(p.Labels) {
		w = append(w, strings.Trim(LabelKey([]string{label}), "[]"))
	}
	slices.Sort(w)
	return w
}

// step reports whether the pool serves the label set, and at which string its next one begins, at the earliest. more is false if there is none.
// No label as it stands in a key begins another one, so keys that have a label in common lie together.
func (w labelWalk) step(key string) (served bool, next string, more bool) {
	var labels []json.RawMessage
	if json.Unmarshal([]byte(key), &labels) != nil {
		return false, key + " ", true // not ours: what lies behind it may be
	}
	before := "["
	for i, raw := range labels {
		label := string(raw)
		at, own := slices.BinarySearch(w, label)
		switch {
		case own:
			before += label + ","
		case at < len(w):
			return false, before + w[at], true
		case i == 0:
			return false, "", false
		default:
			return false, strings.TrimSuffix(before, ",") + "-", true // the first byte after a comma: behind all that continue so
		}
	}
	if len(labels) == 0 { // "[]" comes behind all keys that have a label
		return false, "", false
	}
	return true, key + " ", true // no key begins with another one
}

// step is that of several pools: at which string the next label set begins, at the earliest, that one of them serves.
func step(pools []labelWalk, key string) (served bool, next string, more bool) {
	for _, w := range pools {
		s, n, m := w.step(key)
		if m && (!more || n < next) {
			next = n
		}
		served, more = served || s, more || m
	}
	return served, next, more
}

// setsAtOnce bounds how many label sets one statement reads.
const setsAtOnce = 500

// walk looks for the label sets that the pools serve, in the order of the sets' bytes, and skips what lies between (TEN-1).
func walk(ctx context.Context, store AdmissionStore, pools []labelWalk, atOnce int32) ([]string, error) {
	var found []string
	for start := ""; ; {
		keys, err := store.LabelSetsFrom(ctx, start, atOnce)
		if err != nil {
			return nil, fmt.Errorf("reading label sets: %w", err)
		}
		for _, key := range keys {
			if key < start {
				continue
			}
			served, next, more := step(pools, key)
			if served {
				found = append(found, key)
			}
			if !more {
				return found, nil
			}
			start = next
		}
		if len(keys) < int(atOnce) {
			return found, nil
		}
	}
}
