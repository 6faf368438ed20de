package image

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// The page names each reason, with its sentence as the code writes it.
func TestPage_HasTheSentenceOfEachReason(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/job-images.md")
	require.NoError(t, err)
	sentences := map[Reason]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		sentences[Reason(row[1])] = row[2]
	}
	name := imagename.Name{Registry: "REGISTRY", Repository: "app", Tag: "1"}
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
