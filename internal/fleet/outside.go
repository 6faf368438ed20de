package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// Outside names the kind of runner outside of RunnerPools that a job is for.
type Outside string

// The kinds. A job of the first kind is for RunnerPools.
const (
	OutsideNone   Outside = ""
	OutsideGitHub Outside = "github-hosted"
	OutsideOther  Outside = "other-runners"
)

// LabelPatterns match labels without regard to case. "*" stands for any characters, or none.
type LabelPatterns []string

// StandardPatterns is the entry of a list that stands for GitHubHosted.
const StandardPatterns = "default"

// GitHubHosted are the labels of GitHub's standard runners, and of the larger ones whose labels GitHub chooses. Larger runners of Linux and
// Windows have the name that the organization gave them: no list can know those.
func GitHubHosted() LabelPatterns {
	return LabelPatterns{
		"ubuntu-latest", "ubuntu-26.04", "ubuntu-24.04", "ubuntu-22.04", "ubuntu-slim",
		"ubuntu-26.04-arm", "ubuntu-24.04-arm", "ubuntu-22.04-arm",
		"windows-latest", "windows-2025", "windows-2025-vs2026", "windows-2022", "windows-11-arm",
		"macos-latest", "macos-26", "macos-15", "macos-14", "macos-13",
		"macos-*-intel", "macos-*-large", "macos-*-xlarge",
	}
}

// ParseLabelPatterns reads a list of patterns. The entry "default" stands for GitHubHosted.
func ParseLabelPatterns(list []string) (LabelPatterns, error) {
	var patterns LabelPatterns
	for _, entry := range list {
		entry = strings.ToLower(strings.TrimSpace(entry))
		switch {
		case entry == StandardPatterns:
			patterns = append(patterns, GitHubHosted()...)
		case strings.Trim(entry, "*") == "":
			return nil, fmt.Errorf("label pattern %q matches every label: name a label, such as ubuntu-latest or my-runners-*", entry)
		default:
			patterns = append(patterns, entry)
		}
	}
	return patterns, nil
}

// matches reports whether a label, in lower case, matches one of the patterns.
func (p LabelPatterns) matches(label string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool { return matchesPattern(pattern, label) })
}

func matchesPattern(pattern, label string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(label, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// OutsideRunners are the labels of runners outside of RunnerPools: GitHub's own, and those of other fleets or of self-registering runners.
// A pool with all labels of a job still takes the job: ask only about jobs that no pool serves.
type OutsideRunners struct {
	GitHub, Other LabelPatterns
}

// Of says which of these runners a job with those labels is for: each of the labels is one of theirs. GitHub gives every runner of another
// fleet labels such as self-hosted and linux beside its own, so that those count as theirs if there is another.
func (o OutsideRunners) Of(labels []string) Outside {
	github, other, named := len(labels) > 0, true, false
	for _, label := range labels {
		label = strings.ToLower(strings.TrimSpace(label))
		github = github && o.GitHub.matches(label)
		switch {
		case o.Other.matches(label):
			named = true
		case !implied[label]:
			other = false
		}
	}
	switch {
	case github:
		return OutsideGitHub
	case other && named:
		return OutsideOther
	}
	return OutsideNone
}
