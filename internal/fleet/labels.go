package fleet

import "strings"

// implied are labels that GitHub gives to runners beside their own. They do not select a pool: all pools run on Linux, on
// the processor of their image.
var implied = map[string]bool{"self-hosted": true, "linux": true, "x64": true, "arm64": true, "arm": true}

// RunnerTakes reports whether a runner that registers itself with those labels may be given a job that asks for these. It
// needs all of them, in any case, except those that GitHub adds. A job that asks for no labels fits no runner.
//
// With bare, the runner has no labels beside those.
func RunnerTakes(labels, asked []string, bare bool) bool {
	for _, label := range asked {
		label = strings.TrimSpace(label)
		if implied[strings.ToLower(label)] && !bare {
			continue
		}
		has := false
		for _, own := range labels {
			has = has || strings.EqualFold(strings.TrimSpace(own), label)
		}
		if !has {
			return false
		}
	}
	return len(asked) > 0
}
