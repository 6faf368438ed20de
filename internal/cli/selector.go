package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// LabelSelector is the value of -l: labels of runs-on that a pool must have, or with ! must not have. Such labels have no values, and their case is
// ignored, as at GitHub.
type LabelSelector struct {
	text      string
	has, lack []string
}

// Flags adds -l.
func (s *LabelSelector) Flags(fs *pflag.FlagSet, usage string) { fs.VarP(s, "selector", "l", usage) }

// Set reads labels, separated by commas.
func (s *LabelSelector) Set(text string) error {
	var has, lack []string
	for term := range strings.SplitSeq(text, ",") {
		label, not := strings.CutPrefix(strings.TrimSpace(term), "!")
		label = strings.ToLower(strings.TrimSpace(label))
		if label == "" || strings.ContainsAny(label, "=!() ") {
			return commandline.ValueError{Must: "labels of runs-on, separated by commas, such as linux-4 or linux-4,!gpu. They have no values"}
		}
		if not {
			lack = append(lack, label)
		} else {
			has = append(has, label)
		}
	}
	s.text, s.has, s.lack = text, append(s.has, has...), append(s.lack, lack...)
	return nil
}

// String is what was given.
func (s *LabelSelector) String() string { return s.text }

// Type is what help calls the value.
func (s *LabelSelector) Type() string { return "labels" }

// Empty says whether every pool is selected.
func (s *LabelSelector) Empty() bool { return len(s.has)+len(s.lack) == 0 }

// Matches says whether a pool with these labels is selected.
func (s *LabelSelector) Matches(labels []string) bool {
	there := func(label string) bool {
		return slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, label) })
	}
	for _, label := range s.has {
		if !there(label) {
			return false
		}
	}
	return !slices.ContainsFunc(s.lack, there)
}

// PoolsIn are the pools of one namespace (empty: all) that a selector selects.
func PoolsIn(namespace string, selector *LabelSelector, pools []adminapi.Pool) []adminapi.Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p adminapi.Pool) bool {
		return namespace != "" && p.Namespace != namespace || !selector.Matches(p.Labels)
	})
}
