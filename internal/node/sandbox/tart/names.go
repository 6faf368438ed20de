package tart

import (
	"regexp"
	"strings"
)

// ownerLength is how much of the state directory's owner is in the name of a VM, and digestLength how much of an image's digest.
const (
	namePrefix   = "bullpen-"
	goldenInfix  = "golden-"
	ownerLength  = 8
	digestLength = 16
)

// plainName is the pattern of a VM's name, which is also a directory's name and an argument.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// mark begins the name of every VM of a state directory (NODE-7).
func mark(owner string) string { return namePrefix + clip(owner, ownerLength) + "-" }

// runnerName is unique in the world: a pod's UID is, and never used again.
func runnerName(owner, podUID string) string { return mark(owner) + podUID }

// goldenName is the golden base of an image in one state directory. No pod's UID has this form: it would have to begin with a word.
func goldenName(owner, digest string) string { return mark(owner) + goldenInfix + digestKey(digest) }

// digestKey is a short name of a digest, "sha256:0123…".
func digestKey(digest string) string {
	_, hex, found := strings.Cut(digest, ":")
	if !found {
		hex = digest
	}
	return clip(hex, digestLength)
}

// carriesMark reports whether a VM's name is one that this state directory would give.
func carriesMark(owner, name string) bool {
	return len(owner) >= ownerLength && strings.HasPrefix(name, mark(owner))
}

func clip(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}

// reference is what Tart pulls: HOST/PATH[:TAG][@DIGEST]. Without a host it would be the name of a local VM.
var reference = regexp.MustCompile(`^(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(?::[0-9]+)?` +
	`(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)

// digestOf is the digest that a reference ends in, or empty.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
