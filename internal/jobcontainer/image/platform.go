package image

import "strings"

// Platform is an operating system and an architecture as Go and OCI name them.
type Platform struct {
	OS           string // linux
	Architecture string // amd64, arm64
	Variant      string // v7; usually empty
}

// String returns linux/arm64, or linux/arm/v7.
func (p Platform) String() string {
	text := orUnknown(p.OS) + "/" + orUnknown(p.Architecture)
	if p.Variant != "" {
		text += "/" + p.Variant
	}
	return text
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// normalized writes equal platforms equally, as containerd does (github.com/containerd/platforms).
func (p Platform) normalized() Platform {
	p = Platform{OS: strings.ToLower(p.OS), Architecture: strings.ToLower(p.Architecture), Variant: strings.ToLower(p.Variant)}
	switch p.Architecture {
	case "x86_64", "x86-64":
		p.Architecture = "amd64"
	case "aarch64":
		p.Architecture = "arm64"
	}
	switch {
	case p.Architecture == "amd64" && p.Variant == "v1",
		p.Architecture == "arm64" && (p.Variant == "v8" || p.Variant == "8"):
		p.Variant = ""
	case p.Architecture == "arm" && p.Variant == "":
		p.Variant = "v7"
	}
	return p
}

// suits is how well a variant of an image runs on a platform: 0 is not at all. An older variant runs on a newer processor.
func (p Platform) suits(wanted Platform) int {
	p, wanted = p.normalized(), wanted.normalized()
	switch {
	case p.OS != wanted.OS || p.Architecture != wanted.Architecture:
		return 0
	case p.Variant == wanted.Variant:
		return 100
	case p.Variant == "":
		return 1
	}
	have, need := version(p.Variant), version(wanted.Variant)
	if have == 0 || have > need {
		return 0
	}
	return 1 + have
}

// version is the number of a variant such as v7, and 0 of any other.
func version(variant string) int {
	if len(variant) != 2 || variant[0] != 'v' || variant[1] < '1' || variant[1] > '9' {
		return 0
	}
	return int(variant[1] - '0')
}
