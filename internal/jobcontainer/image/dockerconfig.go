package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// Pull is an image and the credentials that its registry is given. Without credentials it is pulled anonymously.
type Pull struct {
	Image       string // as written in the workflow, or pinned
	Credentials *jobcontainer.Credentials
}

type dockerConfig struct {
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

// DockerConfigJSON is the value of .dockerconfigjson in the Secret that the kubelet pulls these images with. Each credential has
// the repository of its image as its key, so one registry may have several: the kubelet takes the longest key that is a prefix of
// the image (kubernetes 1.36, pkg/credentialprovider/keyring.go). The value contains the passwords.
//
// Two different credentials for one repository are a *ConflictError. A name that cannot be parsed is an *Error. Credentials that
// are for another registry than the image's are left out, as by Resolve.
func DockerConfigJSON(pulls []Pull) ([]byte, error) {
	config := dockerConfig{Auths: map[string]dockerAuth{}}
	for _, pull := range pulls {
		name, err := ParseName(pull.Image)
		if err != nil {
			return nil, err
		}
		credentials := credentialsFor(name, pull.Credentials)
		if credentials == nil {
			continue
		}
		key := name.Registry + "/" + name.Repository
		auth := dockerAuth{
			Username: credentials.Username, Password: credentials.Password,
			Auth: base64.StdEncoding.EncodeToString([]byte(credentials.Username + ":" + credentials.Password)),
		}
		if other, ok := config.Auths[key]; ok && other != auth {
			return nil, &ConflictError{Registry: name.Registry, Repository: name.Repository}
		}
		config.Auths[key] = auth
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the credentials of %d images: %w", len(pulls), err)
	}
	return text, nil
}

// credentialsFor is the credentials if they are for the image's registry, and nil otherwise: no registry is given what is meant for
// another.
func credentialsFor(name imagename.Name, given *jobcontainer.Credentials) *jobcontainer.Credentials {
	if given == nil || given.Username == "" && given.Password == "" || serverOf(given.Server) != name.Registry {
		return nil
	}
	return given
}

// serverOf is the registry of Credentials.Server, which may be written as Docker does: https://index.docker.io/v1/.
func serverOf(server string) string {
	if server == "" {
		return imagename.DockerHub
	}
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server = rest
	}
	parsed, err := url.Parse("//" + server)
	if err != nil {
		return ""
	}
	switch host := strings.ToLower(parsed.Host); host {
	case "index.docker.io", "registry-1.docker.io":
		return imagename.DockerHub
	default:
		return host
	}
}
