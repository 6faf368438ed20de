package imagename

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples of the page are those of the code.
func TestPage_PatternsMeanWhatItSays(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/job-images.md")
	require.NoError(t, err)
	code := regexp.MustCompile("`([^`]+)`")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\| (.*)\\|$").FindAllStringSubmatch(string(text), -1)
	checked := 0
	for _, row := range rows {
		if _, err := ParsePolicy([]string{digests(row[1])}, nil); err != nil || regexp.MustCompile(`^[A-Z]`).MatchString(row[1]) {
			continue
		}
		for column, want := range map[int]bool{2: true, 3: false} {
			for _, image := range code.FindAllStringSubmatch(row[column], -1) {
				require.Equal(t, want, permits(t, digests(row[1]), digests(image[1])), "%s and %s", row[1], image[1])
				checked++
			}
		}
	}
	require.Greater(t, checked, 12, "no example was found")
}

// digests writes whole digests in the place of the page's short ones.
func digests(text string) string {
	return regexp.MustCompile(`sha256:…`).ReplaceAllString(text, someDigest)
}
