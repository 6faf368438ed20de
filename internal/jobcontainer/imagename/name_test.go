package imagename

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const someDigest = "sha256:9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a"

func TestParse(t *testing.T) {
	for text, want := range map[string]Name{
		"postgres":                            {"docker.io", "library/postgres", "latest", ""},
		"postgres:16":                         {"docker.io", "library/postgres", "16", ""},
		"docker.io/postgres":                  {"docker.io", "library/postgres", "latest", ""},
		"index.docker.io/acme/app:1":          {"docker.io", "acme/app", "1", ""},
		"acme/app":                            {"docker.io", "acme/app", "latest", ""},
		"GHCR.io/acme/app:x":                  {"ghcr.io", "acme/app", "x", ""},
		"localhost/app":                       {"localhost", "app", "latest", ""},
		"registry:5000/a/b/c:d":               {"registry:5000", "a/b/c", "d", ""},
		"[::1]:5000/app":                      {"[::1]:5000", "app", "latest", ""},
		"ghcr.io/acme/app@" + someDigest:      {"ghcr.io", "acme/app", "", someDigest},
		"ghcr.io/acme/app:tag@" + someDigest:  {"ghcr.io", "acme/app", "", someDigest},
		"127.0.0.1/app":                       {"127.0.0.1", "app", "latest", ""},
		"gcr.io/distroless/base-debian12:dev": {"gcr.io", "distroless/base-debian12", "dev", ""},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := Parse(got.String())
		require.NoError(t, err, text)
		require.Equal(t, got, again, "the whole name is a name")
	}
}
