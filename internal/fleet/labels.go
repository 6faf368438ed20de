package fleet

import "strings"

// implied are labels that GitHub gives to runners beside their own, and that say nothing about which of ours is meant: all
// of them run on Linux, on whatever processor their image is made for.
var implied = map[string]bool{"self-hosted": true, "linux": true, "x64": true, "arm64": true, "arm": true}

// RunnerTakes says whether a runner that registers itself with those labels may be given a job that asks for these: it has
// all of them, in whatever case, but for those that GitHub adds by itself. A job that asks for nothing is for nobody.
//
// With bare it has no label beside those.
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
