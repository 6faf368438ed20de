package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// CLAIM-21: jobs for GitHub's own runners, and for other fleets, are not confused with jobs that no runner takes.
func TestOutsideRunners_CLAIM21_Of(t *testing.T) {
	runners := OutsideRunners{GitHub: append(GitHubHosted(), "acme-16-core"), Other: LabelPatterns{"gpu", "arc-*-set", "self-hosted-legacy"}}
	for name, c := range map[string]struct {
		labels []string
		want   Outside
	}{
		"a standard runner":            {[]string{"ubuntu-latest"}, OutsideGitHub},
		"in another case":              {[]string{" Ubuntu-24.04 "}, OutsideGitHub},
		"arm":                          {[]string{"ubuntu-24.04-arm"}, OutsideGitHub},
		"a single CPU":                 {[]string{"ubuntu-slim"}, OutsideGitHub},
		"windows":                      {[]string{"windows-2025"}, OutsideGitHub},
		"a large Mac":                  {[]string{"macos-latest-large"}, OutsideGitHub},
		"a Mac of a later year":        {[]string{"macos-26-xlarge"}, OutsideGitHub},
		"an Intel Mac":                 {[]string{"macos-15-intel"}, OutsideGitHub},
		"a larger runner by its name":  {[]string{"acme-16-core"}, OutsideGitHub},
		"an unknown larger runner":     {[]string{"acme-32-core"}, OutsideNone},
		"a pool's label like GitHub's": {[]string{"ubuntu-24.04-8core"}, OutsideNone},
		"self-hosted beside GitHub's":  {[]string{"self-hosted", "ubuntu-latest"}, OutsideNone},
		"as ARC's users write it":      {[]string{"self-hosted", "linux", "x64"}, OutsideNone},
		"a typing error":               {[]string{"bulpen"}, OutsideNone},
		"no labels":                    {nil, OutsideNone},
		"an empty label":               {[]string{""}, OutsideNone},
		"another fleet":                {[]string{"self-hosted", "linux", "GPU"}, OutsideOther},
		"another fleet, by a pattern":  {[]string{"arc-linux-set"}, OutsideOther},
		"too short for the pattern":    {[]string{"arc-set"}, OutsideNone},
		"one label is not theirs":      {[]string{"gpu", "h100"}, OutsideNone},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, runners.Of(c.labels)) })
	}
	require.Equal(t, OutsideNone, OutsideRunners{}.Of([]string{"ubuntu-latest"}), "nothing is named")
}

func TestParseLabelPatterns(t *testing.T) {
	got, err := ParseLabelPatterns([]string{"default", " Acme-* "})
	require.NoError(t, err)
	require.Equal(t, append(GitHubHosted(), "acme-*"), got)
	got, err = ParseLabelPatterns(nil)
	require.NoError(t, err)
	require.Empty(t, got)
	for _, entry := range []string{"*", "", "**"} {
		_, err = ParseLabelPatterns([]string{"gpu", entry})
		require.ErrorContains(t, err, "matches every label", "CLAIM-21: it would hide every job: %q", entry)
	}
}

func TestMatchesPattern(t *testing.T) {
	for text, want := range map[[2]string]bool{
		{"a", "a"}: true, {"a", "ab"}: false, {"a*", "a"}: true, {"a*", "ab"}: true, {"*a", "ba"}: true, {"*a", "ab"}: false,
		{"a*a", "a"}: false, {"a*a", "aa"}: true, {"a*b*c", "a-b-b-c"}: true, {"a*b*c", "a-c-b"}: false, {"a**b", "ab"}: true,
	} {
		require.Equal(t, want, matchesPattern(text[0], text[1]), text)
	}
}
