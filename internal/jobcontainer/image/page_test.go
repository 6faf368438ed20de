package image

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page names each reason, with its sentence as the code writes it.
func TestPage_HasTheSentenceOfEachReason(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/job-images.md")
	require.NoError(t, err)
	sentences := map[Reason]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		sentences[Reason(row[1])] = row[2]
	}
	name := Name{Registry: "REGISTRY", Repository: "app", Tag: "1"}
	require.Equal(t, platformMissing("IMAGE", name, Platform{OS: "linux", Architecture: "arm64"}, []string{"linux/amd64"}).Error(), sentences[PlatformMissing])
	details := map[Reason]string{RegistryFailed: "status 503", ResponseInvalid: "…"}
	for _, reason := range []Reason{NotFound, CredentialsMissing, CredentialsRefused, NotAnImage, TimedOut, RateLimited, Unreachable, AddressRefused, CertificateInvalid, RegistryFailed, ResponseInvalid, Busy} {
		require.NotEmpty(t, sentences[reason], reason)
		written := explainReason(reason, details[reason], errTimedOut, "IMAGE", name, 15e9).Error()
		for _, piece := range regexp.MustCompile("…").Split(sentences[reason], -1) {
			require.Contains(t, written, regexp.MustCompile(`^ | $`).ReplaceAllString(piece, ""), reason)
		}
		delete(sentences, reason)
	}
	for _, reason := range []Reason{InvalidName, NotPermitted, PlatformMissing} { // said by ParseName and Resolve, whose tests have them
		require.NotEmpty(t, sentences[reason], reason)
		delete(sentences, reason)
	}
	require.Empty(t, sentences, "the page has a reason that the code has not")
}

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
