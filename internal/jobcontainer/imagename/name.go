package imagename

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/distribution/reference"
)

// maxName is the most bytes of an image name: 255 of a repository with its registry, 128 of a tag, and a digest of SHA-512.
const maxName = 600

// DockerHub is how the kubelet and containerd write the registry of names without one.
const DockerHub = "docker.io"

// Name is an image name in the form that the kubelet gives it.
type Name struct {
	Registry   string // docker.io, or host[:port] in lower case
	Repository string // library/postgres
	Tag        string // latest, if the name has neither tag nor digest; empty, if it has a digest
	Digest     string // sha256:…; empty, if the name has none
}

// Parse parses an image name as the kubelet does (github.com/distribution/reference). The error says in half a sentence what is wrong with it, and does
// not repeat it.
func Parse(text string) (Name, error) {
	if len(text) > maxName {
		return Name{}, errors.New("it is longer than any image name")
	}
	parsed, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Name{}, whyInvalid(text, err)
	}
	name := Name{Registry: strings.ToLower(reference.Domain(parsed)), Repository: reference.Path(parsed)}
	if name.Registry == "index.docker.io" {
		name.Registry = DockerHub
	}
	if !strings.ContainsAny(name.Registry, ".:") && name.Registry != "localhost" {
		// Acme/app is taken for an image of the registry Acme, and in lower case it is one of Docker Hub.
		return Name{}, errLowercaseOnly
	}
	if isNumber(Host(name.Registry)) { // some resolvers take 127.1 and 0x7f000001 for addresses
		return Name{}, errRegistry
	}
	if CheckHost(name.Registry) != nil { // the kubelet takes [0]:0, which no client connects to
		return Name{}, errRegistry
	}
	if digested, ok := parsed.(reference.Digested); ok {
		// A tag beside a digest has no meaning to the kubelet, and must have none to an allowlist.
		name.Digest = digested.Digest().String()
		return name, nil
	}
	if tagged, ok := reference.TagNameOnly(parsed).(reference.Tagged); ok {
		name.Tag = tagged.Tag()
	}
	return name, nil
}

// isNumber reports whether a host ends in a number, as no name of DNS does, and is no IP address in its usual form.
func isNumber(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	hexadecimal, isHex := strings.CutPrefix(last, "0x")
	return isHex && strings.Trim(hexadecimal, "0123456789abcdef") == "" || strings.Trim(last, "0123456789") == ""
}

var (
	errLowercaseOnly = errors.New("a repository has lowercase letters only")
	errForm          = errors.New("it is not of the form [registry/]repository[:tag][@digest]")
	errRegistry      = errors.New("its registry is not a host, or host:port")
)

func whyInvalid(text string, err error) error {
	switch {
	case errors.Is(err, reference.ErrNameTooLong):
		return errors.New("its repository is longer than 255 characters")
	case isName(strings.ToLower(text)):
		return errLowercaseOnly
	case strings.Contains(text, "@"):
		return errors.New("it is not of the form [registry/]repository[:tag][@digest], or its digest is not sha256: and 64 hexadecimal digits")
	}
	return errForm
}

func isName(text string) bool {
	_, err := reference.ParseNormalizedNamed(text)
	return err == nil
}

// String returns the whole name: docker.io/library/postgres:16.
func (n Name) String() string {
	switch {
	case n.Digest != "":
		return n.Pinned(n.Digest)
	case n.Tag != "":
		return n.Registry + "/" + n.Repository + ":" + n.Tag
	}
	return n.Registry + "/" + n.Repository
}

// Pinned is the image of that digest in the same repository.
func (n Name) Pinned(digest string) string { return n.Registry + "/" + n.Repository + "@" + digest }

// Host is the host of a registry, without port and brackets.
func Host(registry string) string {
	if host, _, err := net.SplitHostPort(registry); err == nil {
		return host
	}
	return strings.Trim(registry, "[]")
}
