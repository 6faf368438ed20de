package image

import (
	"context"
	"errors"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// errSize says that a config has another size than its manifest says, as container runtimes check.
var errSize = errors.New("a config of another size than its manifest says")

// session is the conversation with one registry, or one mirror, about one image.
type session struct {
	exchange *exchange
	puller   *remote.Puller
	repo     name.Repository
}

func newSession(e *exchange, image imagename.Name, credentials *jobcontainer.Credentials) (*session, error) {
	host, repository, plain := image.Registry, image.Repository, e.policy.PermitsPlain(image.Registry)
	if e.mirror != nil {
		host, repository, plain = e.mirror.URL.Host, e.mirror.repository(image), e.mirror.URL.Scheme == "http"
	}
	if host == imagename.DockerHub {
		host = name.DefaultRegistry
	}
	var options []name.Option
	if plain {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(host, options...)
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if credentials != nil {
		auth = &authn.Basic{Username: credentials.Username, Password: credentials.Password}
	}
	// The resolver retries, with its own clock and within its own limits.
	puller, err := remote.NewPuller(remote.WithTransport(e), remote.WithAuth(auth), remote.WithUserAgent("bullpen"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(),
		remote.WithRetryPredicate(func(error) bool { return false }))
	if err != nil {
		return nil, err
	}
	return &session{exchange: e, puller: puller, repo: registry.Repo(repository)}, nil
}

func (s *session) reference(image imagename.Name) name.Reference {
	if image.Digest != "" {
		return s.repo.Digest(image.Digest)
	}
	return s.repo.Tag(image.Tag)
}

// head is the digest that a tag has now. Registries do not count it as a pull.
func (s *session) head(ctx context.Context, image imagename.Name) (string, error) {
	found, err := s.puller.Head(ctx, s.reference(image))
	if err != nil {
		return "", err
	}
	return found.Digest.String(), nil
}

// fetch reads the image's manifest, that of the platform if it is an index, and its config. The digest of each is that of its
// content, or was verified by the one that names it. Of the layers it asks for the first byte.
func (s *session) fetch(ctx context.Context, image imagename.Name, wanted Platform) (cached, error) {
	top, err := s.puller.Get(ctx, s.reference(image))
	if err != nil {
		return cached{}, err
	}
	parsed, err := parseManifest(top.Manifest, string(top.MediaType))
	if err != nil {
		return cached{}, err
	}
	if parsed.config == nil {
		chosen, err := parsed.choose(wanted)
		if errors.Is(err, errNoVariant) {
			return cached{}, &noVariant{wanted, parsed.variants()}
		} else if err != nil {
			return cached{}, err
		}
		variant, err := s.puller.Get(ctx, s.repo.Digest(chosen.Digest))
		if err != nil {
			return cached{}, err
		}
		if parsed, err = parseManifest(variant.Manifest, string(variant.MediaType)); err != nil {
			return cached{}, err
		}
		if parsed.config == nil {
			return cached{}, &notImage{"its index contains another index"}
		}
	}
	body, err := s.blob(ctx, *parsed.config)
	if err != nil {
		return cached{}, err
	}
	config, platform, err := parseConfig(body)
	if err != nil {
		return cached{}, err
	}
	if platform.suits(wanted) == 0 {
		return cached{}, &noVariant{wanted, []string{printable(platform.String())}}
	}
	if err := s.probeLayers(ctx, parsed.layers); err != nil {
		return cached{}, err
	}
	return cached{digest: top.Digest.String(), config: config}, nil
}

// blob reads content that has the descriptor's digest.
func (s *session) blob(ctx context.Context, d descriptor) ([]byte, error) {
	layer, err := s.puller.Layer(ctx, s.repo.Digest(d.Digest))
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if int64(len(content)) != d.Size {
		return nil, errSize
	}
	return content, nil
}

// noVariant is an image without one for the platform.
type noVariant struct {
	wanted Platform
	found  []string
}

func (e *noVariant) Error() string { return "no variant for the platform" }
