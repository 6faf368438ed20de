package imagename

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Policy is what a pool permits. The zero value permits every image of every registry with a public address.
//
// A pattern of images is [registry/]repository[:tag][@digest]:
//
//   - As in a workflow, a pattern without a registry is one of Docker Hub: "postgres" is docker.io/library/postgres, and
//     "acme/*" is docker.io/acme/*.
//   - "*" is any number of characters within one part: between two slashes, or the dots of a registry's name.
//   - "/**" at the end is everything below: "ghcr.io/acme/**". "**" alone is every image.
//   - A pattern without a tag and a digest permits all of them. A pattern with a tag permits no digests, and reverse.
//
// A pattern whose registry has no "*" names that registry, and so does an entry of registries (host[:port], for registries,
// token services and the storage that they redirect to). A named host may have a private address. An entry "http://host:port"
// permits requests without TLS as well, which the nodes' containerd must be configured for, too.
type Policy struct {
	patterns []pattern
	named    map[string]bool // host[:port] → whether plain HTTP is permitted
	reach    [sha256.Size]byte
}

type pattern struct {
	every      bool // "**"
	registry   string
	repository string
	below      bool // "/**": repository is what is before it
	tag        string
	digest     string
}

// ParsePolicy reads the patterns of images that a pool permits (none: every image) and the registries that may have a private
// address. The errors say which entry is wrong, and how.
func ParsePolicy(images, registries []string) (Policy, error) {
	policy := Policy{named: map[string]bool{}}
	var problems []error
	for _, text := range images {
		p, err := parsePattern(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("image pattern %q: %w", text, err))
			continue
		}
		policy.patterns = append(policy.patterns, p)
		if !p.every && !strings.Contains(p.registry, "*") && !policy.named[p.registry] {
			policy.named[p.registry] = false
		}
	}
	for _, text := range registries {
		host, plain := strings.CutPrefix(text, "http://")
		if err := CheckHost(host); err != nil {
			problems = append(problems, fmt.Errorf("registry %q: %w", text, err))
			continue
		}
		host = strings.ToLower(host)
		policy.named[host] = policy.named[host] || plain
	}
	if err := errors.Join(problems...); err != nil {
		return Policy{}, err
	}
	policy.reach = reachOf(policy.named)
	return policy, nil
}

// Permits reports whether a pool permits the image.
func (p Policy) Permits(name Name) bool {
	return len(p.patterns) == 0 || slices.ContainsFunc(p.patterns, func(p pattern) bool { return p.matches(name) })
}

// Names reports whether the pool names this host, with the port if the host has one in a URL that is not that of its scheme.
func (p Policy) Names(hostport string) bool {
	_, ok := p.named[strings.ToLower(hostport)]
	return ok
}

// PermitsPlain reports whether requests to the host may be sent without TLS.
func (p Policy) PermitsPlain(hostport string) bool { return p.named[strings.ToLower(hostport)] }

// Reach is equal for policies that reach the same hosts.
func (p Policy) Reach() [sha256.Size]byte { return p.reach }

// reachOf is equal for policies that reach the same hosts, so that one pool is shown nothing that only another one can reach.
func reachOf(named map[string]bool) [sha256.Size]byte {
	lines := make([]string, 0, len(named))
	for host, plain := range named {
		lines = append(lines, fmt.Sprintf("%s %t\n", host, plain))
	}
	slices.Sort(lines)
	return sha256.Sum256([]byte(strings.Join(lines, "")))
}

func parsePattern(text string) (pattern, error) {
	if text == "**" {
		return pattern{every: true}, nil
	}
	if strings.Contains(text, "://") {
		return pattern{}, errNoHost
	}
	rest, digest, digested := strings.Cut(text, "@")
	if digested && digest == "" {
		return pattern{}, errors.New("nothing is after the @")
	}
	tag := ""
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, '/') {
		rest, tag = rest[:colon], rest[colon+1:]
		if tag == "" {
			return pattern{}, errors.New("nothing is after the colon")
		}
	}
	p := pattern{registry: DockerHub, tag: tag, digest: digest}
	first, others, several := strings.Cut(rest, "/")
	if several && (first == "localhost" || strings.ContainsAny(first, ".:")) {
		p.registry, rest = strings.ToLower(first), others
	} else if !several {
		rest = "library/" + rest
	}
	if p.registry == "index.docker.io" {
		p.registry = DockerHub
	}
	p.repository, p.below = strings.CutSuffix("/"+rest, "/**")
	p.repository = strings.TrimPrefix(p.repository, "/")
	return p, p.check()
}

func (p pattern) check() error {
	if err := CheckHost(strings.ReplaceAll(p.registry, "*", "x")); err != nil {
		return err
	}
	if p.repository == "" && !p.below {
		return errors.New("it has no repository")
	}
	if p.repository == "" && (p.tag != "" || p.digest != "") {
		return errors.New("a tag or a digest needs a repository")
	}
	if strings.Contains(p.repository, "**") {
		return errors.New(`"**" is allowed as the last part only`)
	}
	if p.tag != "" && p.digest != "" {
		return errors.New("it has a tag and a digest; a digest alone is enough")
	}
	if p.repository == "" {
		return nil
	}
	// Whatever the stars stand for, the rest must be what a name can have.
	example := p.registry + "/" + p.repository
	if p.tag != "" {
		example += ":" + p.tag
	}
	if p.digest != "" {
		example += "@" + p.digest
	}
	if _, err := Parse(strings.ReplaceAll(example, "*", "x")); err != nil {
		return errForm
	}
	return nil
}

func (p pattern) matches(name Name) bool {
	if p.every {
		return true
	}
	if !matchParts(p.registry, name.Registry, ".") {
		return false
	}
	repository := name.Repository
	if p.below {
		parts := strings.Split(repository, "/")
		depth := 0
		if p.repository != "" {
			depth = strings.Count(p.repository, "/") + 1
		}
		if len(parts) <= depth {
			return false
		}
		repository = strings.Join(parts[:depth], "/")
	}
	if !matchParts(p.repository, repository, "/") {
		return false
	}
	switch {
	case p.digest != "":
		return p.digest == name.Digest
	case p.tag != "":
		return name.Tag != "" && matchStar(p.tag, name.Tag)
	}
	return true
}

// matchParts matches part by part, so that no star crosses a separator.
func matchParts(pattern, text, separator string) bool {
	patterns, texts := strings.Split(pattern, separator), strings.Split(text, separator)
	return slices.EqualFunc(patterns, texts, matchStar)
}

// matchStar matches text with a pattern in which "*" is any number of characters.
func matchStar(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == text
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		at := strings.Index(text, piece)
		if at < 0 {
			return false
		}
		text = text[at+len(piece):]
	}
	return true
}

var errNoHost = errors.New("a registry is host or host:port, without a scheme and a path")

// CheckHost wants host or host:port, as in an image name.
func CheckHost(hostport string) error {
	if strings.ContainsAny(hostport, "/@") {
		return errNoHost
	}
	host := hostport
	if h, port, err := net.SplitHostPort(hostport); err == nil {
		host = h
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return errors.New("its port is not a number from 1 to 65535")
		}
	}
	if strings.HasPrefix(hostport, "[") {
		if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil || !address.Is6() || address.Zone() != "" {
			return errNoHost
		}
		return nil
	}
	valid := strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
	for _, label := range strings.Split(host, ".") {
		valid = valid && label != "" && label[0] != '-' && label[len(label)-1] != '-'
	}
	if !valid {
		return errNoHost
	}
	return nil
}
