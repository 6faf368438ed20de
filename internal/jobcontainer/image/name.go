package image

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// ParseName is imagename.Parse for a job: the error is an *Error with the reason InvalidName.
func ParseName(text string) (imagename.Name, error) {
	name, err := imagename.Parse(text)
	if err != nil {
		return imagename.Name{}, invalidName(text, err.Error())
	}
	return name, nil
}

// printable is text that a workflow or a registry chose, for a sentence in a log: without what could begin a line or a color of its
// own there, and not longer than an image name of usual length.
func printable(text string) string {
	const most = 200
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if runes := []rune(clean); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return clean
}
