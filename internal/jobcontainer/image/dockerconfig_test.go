package image

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

func login(user, password, server string) *jobcontainer.Credentials {
	return &jobcontainer.Credentials{Username: user, Password: password, Server: server}
}

func TestDockerConfigJSON_HasAKeyPerRepository(t *testing.T) {
	text, err := DockerConfigJSON([]Pull{
		{Image: "ghcr.io/acme/app:1", Credentials: login("ann", "a", "ghcr.io")},
		{Image: "ghcr.io/acme/app@" + someDigest, Credentials: login("ann", "a", "ghcr.io")},
		{Image: "ghcr.io/other/app", Credentials: login("bob", "b", "GHCR.io")},
		{Image: "acme/private", Credentials: login("hub", "h", "")},
		{Image: "docker.io/acme/second", Credentials: login("hub", "h", "https://index.docker.io/v1/")},
		{Image: "postgres"},
		{Image: "quay.io/a/b", Credentials: login("ann", "not for quay", "ghcr.io")},
		{Image: "registry.internal:5000/x", Credentials: login("u", "p", "registry.internal:5000")},
		{Image: "registry.internal/x", Credentials: login("u", "p", "registry.internal:5000")},
		{Image: "ghcr.io/empty/app", Credentials: login("", "", "ghcr.io")},
	})
	require.NoError(t, err)
	auth := func(user, password, code string) map[string]any {
		return map[string]any{"username": user, "password": password, "auth": code}
	}
	var got map[string]map[string]map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, map[string]map[string]map[string]any{"auths": {
		"ghcr.io/acme/app":         auth("ann", "a", "YW5uOmE="),
		"ghcr.io/other/app":        auth("bob", "b", "Ym9iOmI="),
		"docker.io/acme/private":   auth("hub", "h", "aHViOmg="),
		"docker.io/acme/second":    auth("hub", "h", "aHViOmg="),
		"registry.internal:5000/x": auth("u", "p", "dTpw"),
	}}, got)

	text, err = DockerConfigJSON(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"auths":{}}`, string(text))
}

func TestDockerConfigJSON_RefusesTwoCredentialsForOneRepository(t *testing.T) {
	_, err := DockerConfigJSON([]Pull{
		{Image: "ghcr.io/acme/app:1", Credentials: login("ann", "hunter2", "ghcr.io")},
		{Image: "ghcr.io/acme/app:2", Credentials: login("bob", "hunter3", "ghcr.io")},
	})
	var conflict *ConflictError
	require.ErrorAs(t, err, &conflict)
	require.EqualError(t, err, "Two different credentials for registry 'ghcr.io' are given for images of the repository 'acme/app'. Use the same credentials for all of them.")

	_, err = DockerConfigJSON([]Pull{{Image: "a b"}})
	var problem *Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, InvalidName, problem.Reason)
}
