package image_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

func TestResolve_AnIndexAndItsVariants(t *testing.T) {
	registry := registrytest.Shared(t)
	front := registrytest.StartFront(t, registry)
	digest := registry.Push(t, "acme/postgres:16", postgres(t))
	now := newClock()
	r := newResolver(t, now, image.Options{})
	query := image.Query{Tenant: "acme", Image: front.Host + "/acme/postgres:16", Platform: amd64, Policy: plain(t, front.Host)}
	want := image.Resolved{
		Reference: front.Host + "/acme/postgres@" + digest,
		Config: jobcontainer.ImageConfig{
			OS: "linux", Architecture: "amd64", Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"postgres"}, Env: []string{"PGDATA=/data"},
			User: "postgres", StopSignal: "SIGINT", ExposedPorts: []string{"5432/tcp"}, Volumes: []string{"/data"},
			Healthcheck: &jobcontainer.Healthcheck{Test: []string{"CMD", "pg_isready"}, Interval: time.Second},
		},
	}
	first := succeeds(t, r, query)
	require.Equal(t, want, first)
	require.Equal(t, []string{"GET tag", "GET digest", "GET blob"}, front.Requests())
	first.Config.Env[0] = "changed by a caller"

	front.Forget()
	now.advance(2 * time.Second)
	require.Equal(t, want, succeeds(t, r, query))
	require.Empty(t, front.Requests(), "jobs of a matrix ask once")

	now.advance(2 * time.Second)
	require.Equal(t, want, succeeds(t, r, query))
	require.Equal(t, []string{"HEAD tag"}, front.Requests(), "an older tag costs what no registry counts")

	front.Forget()
	byDigest := query
	byDigest.Image = want.Reference
	require.Equal(t, want, succeeds(t, r, byDigest))
	require.Empty(t, front.Requests(), "a digest never changes")
	now.advance(time.Hour)
	require.Equal(t, want, succeeds(t, r, byDigest))
	require.Equal(t, []string{"GET digest", "GET digest", "GET blob"}, front.Requests(), "what could be read an hour ago is asked for again")

	other := query
	other.Platform = arm64
	resolved := succeeds(t, r, other)
	require.Equal(t, []string{"postgres-arm"}, resolved.Config.Cmd)
	require.Equal(t, want.Reference, resolved.Reference)

	front.Forget()
	moved := registry.Push(t, "acme/postgres:16", registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"new"}}))
	now.advance(4 * time.Second)
	resolved = succeeds(t, r, query)
	require.Equal(t, front.Host+"/acme/postgres@"+moved, resolved.Reference)
	require.Equal(t, []string{"new"}, resolved.Config.Cmd)
	require.Equal(t, []string{"HEAD tag", "GET tag", "GET blob"}, front.Requests())

	front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			http.Error(w, "", http.StatusMethodNotAllowed)
			return
		}
		front.Pass(w, r)
	})
	front.Forget()
	now.advance(4 * time.Second)
	require.Equal(t, resolved, succeeds(t, r, query))
	require.Equal(t, []string{"HEAD tag", "GET tag", "GET blob"}, front.Requests(), "a registry without HEAD requests is asked as before")
}

func TestResolve_SaysWhyAnImageCannotBeUsed(t *testing.T) {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/amd:1", registrytest.Image(t, "linux/amd64", v1.Config{}))
	registry.Push(t, "acme/multi:1", postgres(t))
	registry.Push(t, "acme/attested:1", registrytest.Index(t, nil))
	chart := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.cncf.helm.config.v1+json")
	registry.Push(t, "acme/chart:1", chart)
	zero := registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"a\x00b"}})
	registry.Push(t, "acme/zero:1", zero)
	lies := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: registrytest.Image(t, "linux/s390x", v1.Config{}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}},
	})
	registry.Push(t, "acme/lies:1", lies)

	r := newResolver(t, newClock(), image.Options{})
	policy, err := imagename.ParsePolicy([]string{registry.Host + "/acme/*"}, []string{"http://" + registry.Host})
	require.NoError(t, err)
	for _, test := range []struct {
		image    string
		platform image.Platform
		reason   image.Reason
		sentence string
	}{
		{"acme/amd:1", arm64, image.PlatformMissing, "Image 'IMAGE' has no linux/arm64 variant (found: linux/amd64)."},
		{"acme/multi:1", image.Platform{OS: "linux", Architecture: "s390x"}, image.PlatformMissing, "Image 'IMAGE' has no linux/s390x variant (found: linux/amd64, linux/arm64)."},
		{"acme/attested:1", amd64, image.PlatformMissing, "Image 'IMAGE' has no linux/amd64 variant (found: none)."},
		{"acme/lies:1", arm64, image.PlatformMissing, "Image 'IMAGE' has no linux/arm64 variant (found: linux/s390x)."},
		{"acme/amd:2", amd64, image.NotFound, "Image 'IMAGE' does not exist in registry '" + registry.Host + "'. Check its name and its tag."},
		{"acme/none", amd64, image.NotFound, "Image 'IMAGE' does not exist in registry '" + registry.Host + "'. Check its name and its tag."},
		{"acme/chart:1", amd64, image.NotAnImage, "Image 'IMAGE' cannot be run: it is an artifact of the type application/vnd.cncf.helm.config.v1+json."},
		{"acme/zero:1", amd64, image.NotAnImage, "Image 'IMAGE' cannot be run: its config has a text with a zero byte."},
		{"other/app:1", amd64, image.NotPermitted, "Image 'IMAGE' is not permitted in this runner pool. Use a permitted image, or ask an administrator to permit this one."},
	} {
		query := image.Query{Tenant: "acme", Image: registry.Host + "/" + test.image, Platform: test.platform, Policy: policy}
		problem := fails(t, r, query, test.reason, test.sentence)
		require.False(t, problem.Temporary())
	}
	query := image.Query{Image: "A b", Platform: amd64}
	fails(t, r, query, image.InvalidName, "Image 'A b' is not a valid image name: it is not of the form [registry/]repository[:tag][@digest].")
}

func TestResolve_BasicAuthentication(t *testing.T) {
	registry := registrytest.Start(t, registrytest.Options{Users: map[string]string{"ann": secret}})
	registry.Push(t, "acme/app:1", registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"private"}}))
	front := registrytest.StartFront(t, registry)
	r := newResolver(t, newClock(), image.Options{})
	query := image.Query{Tenant: "acme", Image: front.Host + "/acme/app:1", Platform: amd64, Policy: plain(t, front.Host)}

	missing := "Image 'IMAGE' could not be pulled: it does not exist, or it is private and no credentials were given for registry '" + front.Host + "'."
	refused := "Image 'IMAGE' could not be pulled: registry '" + front.Host + "' refused the credentials. Check the user name and the password, and that they may read this image."
	fails(t, r, query, image.CredentialsMissing, missing)

	query.Credentials = credentials("ann", "wrong", front.Host)
	fails(t, r, query, image.CredentialsRefused, refused)
	query.Credentials = credentials("ann", secret, front.Host)
	require.Equal(t, []string{"private"}, succeeds(t, r, query).Config.Cmd)

	// What one may read is shown to no other: the registry is asked again.
	query.Credentials = credentials("ann", "wrong", front.Host)
	fails(t, r, query, image.CredentialsRefused, refused)
	query.Credentials = nil
	fails(t, r, query, image.CredentialsMissing, missing)

	// Credentials of another registry are not sent.
	query.Credentials = credentials("ann", secret, "ghcr.io")
	fails(t, r, query, image.CredentialsMissing, missing)
	query.Credentials = credentials("ann", "", front.Host)
	fails(t, r, query, image.CredentialsRefused, "Image 'IMAGE' could not be pulled: the password for registry '"+front.Host+"' is empty. "+
		"Check the secret that it comes from; workflows of forks are given no secrets.")
}

func TestResolve_Tokens(t *testing.T) {
	tokens := registrytest.StartTokens(t, map[string]registrytest.User{
		"ann": {Password: secret, Repositories: []string{"acme/private"}}, "bob": {Password: secret},
	}, "acme/public")
	registry := registrytest.Start(t, registrytest.Options{Tokens: tokens})
	registry.Push(t, "acme/private:1", postgres(t))
	registry.Push(t, "acme/public:1", postgres(t))
	r := newResolver(t, newClock(), image.Options{})
	query := image.Query{Tenant: "acme", Image: registry.Host + "/acme/public:1", Platform: amd64, Policy: plain(t, registry.Host, tokens.Host)}
	succeeds(t, r, query)

	query.Image = registry.Host + "/acme/private:1"
	fails(t, r, query, image.CredentialsMissing, "Image 'IMAGE' could not be pulled: it does not exist, or it is private and no credentials were given for registry '"+registry.Host+"'.")
	refused := "Image 'IMAGE' could not be pulled: registry '" + registry.Host + "' refused the credentials. Check the user name and the password, and that they may read this image."
	for _, wrong := range []*jobcontainer.Credentials{credentials("bob", secret, registry.Host), credentials("ann", "wrong", registry.Host)} {
		query.Credentials = wrong
		fails(t, r, query, image.CredentialsRefused, refused)
	}
	query.Credentials = credentials("ann", secret, registry.Host)
	require.Equal(t, []string{"postgres"}, succeeds(t, r, query).Config.Cmd)

	// A pool that does not name the token service does not reach it.
	query.Policy = plain(t, registry.Host)
	problem := fails(t, r, query, image.AddressRefused, "Image 'IMAGE' could not be pulled: registry '"+registry.Host+"' has an address, or refers to one, "+
		"that this runner pool does not permit. An administrator can permit the registry in the pool.")
	require.Contains(t, problem.Detail, "request without TLS to localhost:")
}

func TestResolve_TheErrorOfItsContextIsItsOwn(t *testing.T) {
	r := newResolver(t, newClock(), image.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Resolve(ctx, image.Query{Tenant: "acme", Image: "ghcr.io/acme/app", Platform: amd64})
	require.ErrorIs(t, err, context.Canceled, "and no registry is asked")
	var problem *image.Error
	require.NotErrorAs(t, err, &problem)
}
