package options

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page for users says of each option what it does, and of no other.
func TestPage_HasEachOption(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/job-container-options.md")
	require.NoError(t, err)
	var named, known []string
	for _, match := range regexp.MustCompile("(?m)`--([a-z0-9-]+)`").FindAllStringSubmatch(string(regexp.MustCompile(`(?ms)^## Options$.*?^## `).Find(page)), -1) {
		if !slices.Contains(named, match[1]) { // some are named in explanations, too
			named = append(named, match[1])
		}
	}
	for _, rule := range rules {
		known = append(known, rule.name)
	}
	require.ElementsMatch(t, known, named)
}
