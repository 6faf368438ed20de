package image_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

func mirrors(t *testing.T, texts ...string) []image.Mirror {
	t.Helper()
	var parsed []image.Mirror
	for _, text := range texts {
		mirror, err := image.ParseMirror(text)
		require.NoError(t, err, text)
		parsed = append(parsed, mirror)
	}
	return parsed
}

// records keeps the whole requests of a front.
type records struct {
	mu       sync.Mutex
	requests []*http.Request
}

func record(front *registrytest.Front) *records {
	r := &records{}
	for _, stage := range append([]registrytest.Stage{registrytest.Other}, stages...) {
		front.Replace(stage, func(w http.ResponseWriter, request *http.Request) {
			r.add(request)
			front.Pass(w, request)
		})
	}
	return r
}

func (r *records) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request.Clone(request.Context()))
}

func (r *records) uris() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var uris []string
	for _, request := range r.requests {
		uris = append(uris, request.URL.RequestURI())
	}
	return uris
}

// newMirrored is a registry with credentials and a mirror of it, which has the same images.
func newMirrored(t *testing.T) (h *hostile, mirror *registrytest.Front) {
	t.Helper()
	h = newHostile(t)
	mirror = registrytest.StartFront(t, h.registry)
	h.resolver = newResolver(t, h.now, image.Options{Mirrors: mirrors(t, h.front.Host+"=http://"+mirror.Host)})
	return h, mirror
}

func TestMirror_IsAskedInsteadOfTheRegistry(t *testing.T) {
	h, mirror := newMirrored(t)
	want := succeeds(t, newResolver(t, h.now, image.Options{}), h.query)
	h.front.Forget()
	h.query.Policy = imagename.Policy{} // the pool names neither the mirror, nor another host
	seen := record(mirror)
	resolved := succeeds(t, h.resolver, h.query)
	require.Equal(t, want, resolved)
	require.Contains(t, resolved.Reference, h.front.Host+"/acme/app@sha256:", "nodes have mirrors of their own")
	require.Equal(t, []string{"GET tag", "GET digest", "GET blob"}, mirror.Requests())
	for _, uri := range seen.uris() {
		require.Contains(t, uri, "?ns="+strings.ReplaceAll(h.front.Host, ":", "%3A"))
	}

	mirror.Forget()
	h.now.advance(4 * time.Second)
	require.Equal(t, resolved, succeeds(t, h.resolver, h.query))
	require.Equal(t, []string{"HEAD tag"}, mirror.Requests(), "an older tag is compared at the mirror")
	require.Empty(t, h.front.Requests())

	// The mirror is gone: the registry is asked, under the pool's policy.
	for _, stage := range stages {
		mirror.Replace(stage, http.NotFound)
	}
	h.now.advance(4 * time.Second)
	problem := fails(t, h.resolver, h.query, image.AddressRefused, strings.Replace(refusedAddress, "HOST", h.front.Host, 1))
	require.Contains(t, problem.Detail, "; mirror "+mirror.Host+": ResponseInvalid status 404")
	h.query.Policy = plain(t, h.front.Host)
	require.Equal(t, resolved, succeeds(t, h.resolver, h.query))
	h.front.Forget()
	h.now.advance(4 * time.Second)
	require.Equal(t, resolved, succeeds(t, h.resolver, h.query))
	require.Equal(t, []string{"HEAD tag"}, h.front.Requests())
}

func TestMirror_OfDockerHubWithAPath(t *testing.T) {
	registry := registrytest.Shared(t)
	digest := registry.Push(t, "hub-proxy/all/library/postgres:17", postgres(t))
	mirror := registrytest.StartFront(t, registry)
	seen := record(mirror)
	signed := ""
	mirror.Replace(registrytest.Blob, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("signature") == "" {
			http.Redirect(w, r, r.URL.Path+"?signature=x", http.StatusTemporaryRedirect)
			return
		}
		signed = r.URL.RawQuery
		mirror.Pass(w, r)
	})
	for _, path := range []string{"/hub-proxy/all", "/hub-proxy/all/"} {
		dns := registrytest.StartDNS(t, nil)
		r := newResolver(t, newClock(), image.Options{DNS: dns.Resolver(), Mirrors: mirrors(t, "*=http://"+mirror.Host+path)})
		query := image.Query{Tenant: "acme", Image: "postgres:17", Platform: amd64}
		require.Equal(t, "docker.io/library/postgres@"+digest, succeeds(t, r, query).Reference)
		require.Empty(t, dns.Queries())
		require.Equal(t, "signature=x", signed, "the URL of a redirect stays as it is")
	}
	require.Equal(t, []string{"/v2/?ns=docker.io", "/v2/hub-proxy/all/library/postgres/manifests/17?ns=docker.io"}, seen.uris()[:2])
}

// Whatever a mirror does, the registry is asked at last.
func TestMirror_ThatFailsIsFollowedByTheRegistry(t *testing.T) {
	h, mirror := newMirrored(t)
	target, reached := victim(t)
	named, namedReached := victim(t)
	policy, err := imagename.ParsePolicy(nil, []string{"http://" + h.front.Host, named})
	require.NoError(t, err)
	h.query.Policy = policy
	other, err := registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"another"}}).RawManifest()
	require.NoError(t, err)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", code) }
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, http.StatusFound) }
	}
	want := succeeds(t, newResolver(t, h.now, image.Options{}), h.query)
	for name, handler := range map[string]http.HandlerFunc{
		"not found": status(404), "failed": status(500), "limited": status(429), "refused": status(401), "forbidden": status(403),
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"another manifest":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(other) },
		"too much":            func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat(" ", 2*mib))) },
		"a loop":              redirect("http://" + mirror.Host),
		"elsewhere":           redirect("https://" + target),
		"elsewhere, no TLS":   redirect("http://" + target),
		"named, but no TLS":   redirect("http://" + named),
		"a token service": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="x"`, strings.Replace(target, "127.0.0.1", "localhost", 1)))
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		for _, stage := range []registrytest.Stage{registrytest.Tag, registrytest.Digest, registrytest.Blob} {
			if stage == registrytest.Tag && name == "another manifest" {
				continue // a mirror decides what a tag is
			}
			mirror.Replace(stage, handler)
			h.front.Forget()
			h.now.advance(2 * time.Hour) // nothing is cached
			require.Equal(t, want, succeeds(t, h.resolver, h.query), "%s at %s", name, stage)
			require.NotEmpty(t, h.front.Requests(), "%s at %s", name, stage)
			mirror.Replace(stage, nil)
		}
	}
	require.Zero(t, reached())
	require.Zero(t, namedReached(), "the pool names it with TLS, and a mirror without TLS changes nothing of that")
	require.Empty(t, h.now.delays, "a mirror is not asked again")

	// The digest of an image is verified, also of one from a mirror.
	h.query.Image = want.Reference
	mirror.Replace(registrytest.Digest, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(other) })
	h.now.advance(2 * time.Hour)
	h.front.Forget()
	require.Equal(t, want, succeeds(t, h.resolver, h.query))
	require.NotEmpty(t, h.front.Requests())
}

func TestMirror_TheErrorIsThatOfTheRegistry(t *testing.T) {
	h, mirror := newMirrored(t)
	mirror.Replace(registrytest.Tag, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
	h.front.Replace(registrytest.Tag, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusForbidden) })
	problem := fails(t, h.resolver, h.query, image.CredentialsRefused,
		"Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' refused the credentials. Check the user name and the password, and that they may read this image.")
	require.Equal(t, "status 403; mirror "+mirror.Host+": RegistryFailed status 500", problem.Detail)
}

func TestMirror_IsGivenNoCredentials(t *testing.T) {
	registry := registrytest.Start(t, registrytest.Options{Users: map[string]string{"ann": secret}})
	registry.Push(t, "acme/app:1", postgres(t))
	mirror := registrytest.StartFront(t, registry)
	seen := record(mirror)
	r := newResolver(t, newClock(), image.Options{Mirrors: mirrors(t, registry.Host+"=http://"+mirror.Host)})
	query := image.Query{
		Tenant: "acme", Image: registry.Host + "/acme/app:1", Platform: amd64, Policy: plain(t, registry.Host, mirror.Host),
		Credentials: credentials("ann", secret, registry.Host),
	}
	succeeds(t, r, query)
	asked := len(seen.requests)
	require.NotZero(t, asked)
	for _, challenge := range []string{`Basic realm="x"`, fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, mirror.Host)} {
		mirror.Replace(registrytest.Version, func(w http.ResponseWriter, r *http.Request) {
			seen.add(r)
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
		})
		query.Platform.Variant += "v1" // another key of the cache
		succeeds(t, r, query)
	}
	require.Greater(t, len(seen.requests), asked)
	for _, request := range seen.requests {
		_, _, basic := request.BasicAuth()
		require.False(t, basic, request.URL)
		require.NotContains(t, request.URL.String()+fmt.Sprint(request.Header), secret)
	}
	require.Contains(t, seen.uris(), "/token?scope=repository%3Aacme%2Fapp%3Apull&service=x", "and ns is for the API of registries alone")
}

func TestMirror_ThatHangsLeavesTimeForTheRegistry(t *testing.T) {
	h, first := newMirrored(t)
	second := registrytest.StartFront(t, h.registry)
	entry := h.front.Host + "=http://"
	for _, stage := range stages {
		reached := make(chan struct{})
		first.Replace(stage, hang(reached, ""))
		resolver := newResolver(t, h.now, image.Options{Mirrors: mirrors(t, entry+first.Host)})
		done := start(t, resolver, h.query)
		await.Receive(t, reached, "the request to the mirror")
		h.now.advance(shared - time.Millisecond)
		require.Empty(t, done)
		h.now.advance(time.Millisecond)
		require.NoError(t, await.Receive(t, done, "the resolution").err)
		first.Replace(stage, nil)
	}

	// Two have a half each. The rest is the registry's, and all together is the time of an image.
	reached := make(chan struct{})
	first.Replace(registrytest.Tag, hang(reached, ""))
	second.Replace(registrytest.Tag, hang(reached, ""))
	h.front.Replace(registrytest.Tag, hang(reached, ""))
	resolver := newResolver(t, h.now, image.Options{Mirrors: mirrors(t, entry+first.Host, entry+second.Host)})
	done := start(t, resolver, h.query)
	for _, wait := range []time.Duration{shared / 2, shared / 2, timeout - shared} {
		await.Receive(t, reached, "the next request")
		h.now.advance(wait - time.Millisecond)
		require.Empty(t, done)
		h.now.advance(time.Millisecond)
	}
	problem := failed(t, await.Receive(t, done, "the end of the wait").err, h.query, image.TimedOut,
		"Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' did not respond within 15s. Run the job again later.")
	require.Equal(t, fmt.Sprintf("; mirror %s: TimedOut; mirror %s: TimedOut", first.Host, second.Host), problem.Detail)
}

func TestMirror_AnExactOneIsAskedBeforeOneOfEveryRegistry(t *testing.T) {
	h := newHostile(t)
	var mu sync.Mutex
	var asked []string
	start := func(name string) string {
		front := registrytest.StartFront(t, h.registry)
		front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, name)
			mu.Unlock()
			http.NotFound(w, r)
		})
		return "=http://" + front.Host
	}
	r := newResolver(t, h.now, image.Options{Timeout: time.Minute, Mirrors: mirrors(t, "*"+start("every 1"), h.front.Host+start("exact 1"),
		"docker.io"+start("another"), "*"+start("every 2"), h.front.Host+start("exact 2"))})
	succeeds(t, r, h.query)
	require.Equal(t, []string{"exact 1", "exact 2", "every 1", "every 2"}, asked)
}

// A workflow that names a mirror, or what only a mirror could reach, gets no further than without mirrors.
func TestMirror_JOB7_GivesWorkflowsNoReach(t *testing.T) {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/app:1", postgres(t))
	mirror := registrytest.StartFront(t, registry)
	seen := record(mirror)
	_, port, _ := strings.Cut(mirror.Host, ":")
	dns := registrytest.StartDNS(t, map[string][]netip.Addr{
		"private.evil.example": {netip.MustParseAddr("10.0.0.1")},
		"public.example":       {netip.MustParseAddr("140.82.112.34")},
		"mirror.internal":      {netip.MustParseAddr("127.0.0.1")},
		"metadata.internal":    {netip.MustParseAddr("169.254.169.254")},
	})
	r := newResolver(t, newClock(), image.Options{DNS: dns.Resolver(), Mirrors: mirrors(t, "*=http://"+mirror.Host)})
	query := image.Query{Tenant: "acme", Platform: amd64}
	for _, host := range []string{mirror.Host, "localhost:" + port, "[::1]:" + port, "mirror.internal:" + port, "10.0.0.1", "[fd00::1]:443", "private.evil.example:5000", "metadata.internal"} {
		query.Image = host + "/acme/app:1"
		fails(t, r, query, image.AddressRefused, strings.Replace(refusedAddress, "HOST", host, 1))
	}
	for _, host := range []string{"registry:5000", "kubernetes.default.svc:443", "kubernetes.default.svc.cluster.local"} { // as a mirror in a cluster may look them up
		query.Image = host + "/acme/app:1"
		fails(t, r, query, image.Unreachable, "Image 'IMAGE' could not be pulled: registry '"+host+"' is unreachable: no such host.")
	}
	for _, host := range []string{"127.1:5000", "0x7f.1", "2852039166:80", "169.254.43518", "010.0.0.1:80", "0177.0.0.1", "10.0x1"} {
		query.Image = host + "/acme/app:1"
		_, err := r.Resolve(t.Context(), query)
		require.ErrorContains(t, err, "its registry is not a host", "some resolvers read it as an address")
	}
	require.Empty(t, seen.uris())

	for _, host := range []string{"public.example", "only-the-mirror-knows.example", "docker.io"} {
		query.Image = host + "/acme/app:1"
		succeeds(t, r, query)
	}
	require.Contains(t, seen.uris(), "/v2/acme/app/manifests/1?ns=only-the-mirror-knows.example")

	// A pool that names the host has it as a registry.
	seen.requests = nil
	query.Image, query.Policy = mirror.Host+"/acme/app:1", plain(t, mirror.Host)
	succeeds(t, r, query)
	require.NotContains(t, strings.Join(seen.uris(), " "), "ns=")
}

// The fence of addresses holds for mirrors, except that an administrator named their hosts.
func TestMirror_JOB7_ConnectsToNoForbiddenAddress(t *testing.T) {
	h, mirror := newMirrored(t)
	seen := record(mirror)
	_, port, _ := strings.Cut(mirror.Host, ":")
	dns := registrytest.StartDNS(t, map[string][]netip.Addr{
		"loopback.internal": {netip.MustParseAddr("127.0.0.1")},
		"metadata.internal": {netip.MustParseAddr("169.254.169.254")},
	})
	h.front.Replace(registrytest.Tag, http.NotFound)
	for url, detail := range map[string]string{
		"http://loopback.internal:" + port: "AddressRefused loopback.internal has the address 127.0.0.1",
		"http://metadata.internal":         "AddressRefused metadata.internal has the address 169.254.169.254",
		"https://" + mirror.Host:           "CertificateInvalid no TLS", // although the pool permits requests without TLS
	} {
		h.resolver = newResolver(t, h.now, image.Options{DNS: dns.Resolver(), Mirrors: mirrors(t, h.front.Host+"="+url)})
		h.query.Policy = plain(t, h.front.Host, mirror.Host, "loopback.internal:"+port, "metadata.internal")
		problem := fails(t, h.resolver, h.query, image.NotFound, "Image 'IMAGE' does not exist in registry '"+h.front.Host+"'. Check its name and its tag.")
		require.Contains(t, problem.Detail, detail, url)
	}
	require.Empty(t, seen.uris())
}

func TestMirror_JOB7_BehindAProxy(t *testing.T) {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/app:1", postgres(t))
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host = registry.Host }}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	target, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	dns := registrytest.StartDNS(t, map[string][]netip.Addr{"mirror.internal": {netip.MustParseAddr("10.0.0.2")}})
	r := newResolver(t, newClock(), image.Options{DNS: dns.Resolver(), Proxy: http.ProxyURL(target), Mirrors: mirrors(t, "docker.io=http://mirror.internal")})
	query := image.Query{Tenant: "acme", Image: "acme/app:1", Platform: amd64}
	require.Equal(t, []string{"postgres"}, succeeds(t, r, query).Config.Cmd)
}

func TestParseMirror(t *testing.T) {
	for text, want := range map[string][2]string{
		"docker.io=https://mirror.example.com":             {"docker.io", "https://mirror.example.com"},
		"Index.Docker.io=https://Mirror.Example.com:8443/": {"docker.io", "https://mirror.example.com:8443"},
		"*=http://10.0.0.1:5000":                           {"*", "http://10.0.0.1:5000"},
		"ghcr.io:443=http://[fd00::1]:5000/a/b.c/":         {"ghcr.io:443", "http://[fd00::1]:5000/a/b.c"},
		"localhost=http://mirror":                          {"localhost", "http://mirror"},
	} {
		mirror, err := image.ParseMirror(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]string{mirror.Registry, mirror.URL.String()}, text)
	}
	const (
		form     = "it is not REGISTRY=URL, such as docker.io=https://mirror.example.com"
		registry = `its registry is not one of an image name. Before the "=" write docker.io, another host or host:port, or "*" for every registry`
		address  = "mirror of docker.io: its URL is not http:// or https:// and a host or host:port. Write, for example, https://mirror.example.com"
		user     = "mirror of docker.io: its URL has a user name or a password. Remove them: mirrors are asked without credentials"
		query    = "mirror of docker.io: its URL has a query or a fragment. Remove it"
		path     = "mirror of docker.io: its path is not one of a repository. Use lowercase letters, digits, '.', '_', '-' and '/'"
		version  = "mirror of docker.io: its path begins with /v2, which is put before it in each request. Remove /v2"
		special  = "mirror of docker.io: its URL has a link-local or special address, to which the controller never connects. Use another address of the mirror"
		itself   = "mirror of a.b: its URL is that of the registry. Remove the entry, or name the mirror's own host"
	)
	for text, want := range map[string]string{
		"": form, "docker.io": form, "https://ann:" + secret + "@m.io": form,
		"=https://m.io": registry, "docker=https://m.io": registry, "https://docker.io=https://m.io": registry, "**=https://m.io": registry, "*.io=https://m.io": registry,
		"https://ann:" + secret + "=@m.io": registry,
		"docker.io=":                       address, "docker.io=m.io": address, "docker.io=ftp://m.io": address, "docker.io=https://": address, "docker.io=https://m.io:0": address,
		"docker.io=https:m.io": address, "docker.io=https://m.io:x" + secret: address, "docker.io=https://%zz" + secret + "@m.io": address, "docker.io=https://-m": address,
		"docker.io=https://ann:" + secret + "@m.io": user, "docker.io=https://" + secret + "@m.io": user,
		"docker.io=https://m.io?token=" + secret: query, "docker.io=https://m.io?": query, "docker.io=https://m.io#": query, "docker.io=https://m.io/x#" + secret: query,
		"docker.io=https://m.io/Hub": path, "docker.io=https://m.io/a//b": path, "docker.io=https://m.io/a%2fb": path, "docker.io=https://m.io/../a": path, "docker.io=https://m.io/a:1": path,
		"docker.io=https://m.io/v2": version, "docker.io=https://m.io/v2/hub": version,
		"docker.io=http://169.254.169.254": special, "docker.io=http://[fe80::1]": special, "docker.io=http://0.0.0.0:5000": special,
		"a.b=https://a.b": itself, "A.b=https://a.B:443/hub": itself, "a.b=http://a.b": itself,
	} {
		_, err := image.ParseMirror(text)
		require.EqualError(t, err, want, text)
		require.NotContains(t, err.Error(), secret)
	}
}

// A name service that never responds, as on a machine without a network, leaves the mirror of every registry half of its time.
func TestMirror_IsAskedWhereNoNameServiceResponds(t *testing.T) {
	registry := registrytest.Shared(t)
	digest := registry.Push(t, "acme/loaded:1", postgres(t))
	mirror := registrytest.StartFront(t, registry)
	silent, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	reached := make(chan struct{}, 16)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		reached <- struct{}{}
		return new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
	}}
	now := newClock()
	r := newResolver(t, now, image.Options{DNS: resolver, Mirrors: mirrors(t, "*=http://"+mirror.Host)})
	done := start(t, r, image.Query{Tenant: "acme", Image: "ghcr.example/acme/loaded:1", Platform: amd64})
	await.Receive(t, reached, "the lookup")
	now.advance(shared / 2)
	found := await.Receive(t, done, "the resolution")
	require.NoError(t, found.err)
	require.Equal(t, "ghcr.example/acme/loaded@"+digest, found.resolved.Reference)
}
