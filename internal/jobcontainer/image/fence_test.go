package image_test

import (
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

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

const refusedAddress = "Image 'IMAGE' could not be pulled: registry 'HOST' has an address, or refers to one, " +
	"that this runner pool does not permit. An administrator can permit the registry in the pool."

// victim is a server that no image name may reach.
func victim(t *testing.T) (host string, reached func() int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	connections := 0
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			connections++
			mu.Unlock()
			connection.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		await.Return(t, accepting.Wait, "the victim ends")
	})
	return listener.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return connections
	}
}

func TestResolve_JOB7_ConnectsToNoAddressOfTheClusterOrTheController(t *testing.T) {
	host, reached := victim(t)
	_, port, err := net.SplitHostPort(host)
	require.NoError(t, err)
	dns := registrytest.StartDNS(t, map[string][]netip.Addr{
		"loopback.evil.example": {netip.MustParseAddr("127.0.0.1")},
		"mapped.evil.example":   {netip.MustParseAddr("::1")},
		"mixed.evil.example":    {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")},
		"metadata.evil.example": {netip.MustParseAddr("169.254.169.254")},
		"ula.evil.example":      {netip.MustParseAddr("fd00::1")},
		"cluster.evil.example":  {netip.MustParseAddr("20.5.0.1")},
		"named.internal":        {netip.MustParseAddr("127.0.0.1")},
		"metadata.internal":     {netip.MustParseAddr("169.254.169.254")},
	})
	r := newResolver(t, newClock(), image.Options{DNS: dns.Resolver(), ClusterNetworks: []netip.Prefix{netip.MustParsePrefix("20.5.0.0/16")}})
	policy, err := imagename.ParsePolicy(nil, []string{"named.internal:" + port, "metadata.internal", "169.254.169.254", "http://169.254.169.254:80"})
	require.NoError(t, err)
	for _, host := range []string{
		"127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port, "[::ffff:7f00:1]:" + port, "0.0.0.0:" + port, "[::]:" + port, "127.0.0.2:" + port,
		"10.0.0.1", "192.168.0.1:5000", "172.20.0.1", "[fd00::1]:443", "169.254.169.254", "169.254.169.254:80", "[fe80::1]:443", "100.64.0.1:10250", "20.5.0.1",
		"loopback.evil.example:" + port, "mapped.evil.example:" + port, "mixed.evil.example:" + port, "metadata.evil.example", "ula.evil.example", "cluster.evil.example",
		"named.internal:" + port, "metadata.internal",
	} {
		query := image.Query{Tenant: "acme", Image: host + "/app:1", Platform: amd64, Policy: policy}
		problem := fails(t, r, query, image.AddressRefused, strings.Replace(refusedAddress, "HOST", host, 1))
		require.NotEmpty(t, problem.Detail, "the controller's log names the address")
	}
	require.Zero(t, reached())
}

// A registry leads the controller elsewhere by each of its responses.
func TestResolve_JOB7_RedirectsAndTokenServicesPassTheSameFence(t *testing.T) {
	h := newHostile(t)
	host, reached := victim(t)
	local := strings.Replace(host, "127.0.0.1", "localhost", 1)
	refused := strings.Replace(refusedAddress, "HOST", h.front.Host, 1)
	for i, target := range []string{"https://" + host, "http://" + host, "https://" + local, "http://169.254.169.254", "https://10.0.0.1", "http://[::1]:1"} {
		leads := stages
		if i > 0 {
			leads = stages[1:2] // each stage once, and each target once
		}
		for _, stage := range leads {
			h.front.Replace(stage, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target+"/latest/meta-data", http.StatusTemporaryRedirect)
			})
			err := resolveError(t, h)
			require.Contains(t, []string{refused, invalid(h)}, strings.ReplaceAll(err.Error(), h.query.Image, "IMAGE"), "%s at %s", target, stage)
			h.front.Replace(stage, nil)
		}
		h.front.Replace(registrytest.Version, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, target))
			w.WriteHeader(http.StatusUnauthorized)
		})
		err := resolveError(t, h)
		require.Contains(t, []string{refused, invalid(h)}, strings.ReplaceAll(err.Error(), h.query.Image, "IMAGE"), target)
		h.front.Replace(registrytest.Version, nil)
	}
	require.Zero(t, reached())
	succeeds(t, h.resolver, h.query)
}

func resolveError(t *testing.T, h *hostile) error {
	t.Helper()
	got := <-start(t, h.resolver, h.query) // bounded: by the context of start
	require.Error(t, got.err)
	require.NotContains(t, got.err.Error(), secret)
	return got.err
}

// invalid is the sentence when the client refuses a URL before the fence does.
func invalid(h *hostile) string {
	return "Image 'IMAGE' could not be pulled: registry '" + h.front.Host + "' sent a response that is not understood."
}

func TestResolve_ARedirectIsGivenNoCredentials(t *testing.T) {
	registry := registrytest.Start(t, registrytest.Options{Users: map[string]string{"ann": secret}})
	registry.Push(t, "acme/app:1", postgres(t))
	front := registrytest.StartFront(t, registry)
	var mu sync.Mutex
	var headers []http.Header
	config, err := registrytest.Image(t, "linux/amd64", v1.Config{}).RawConfigFile()
	require.NoError(t, err)
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		headers = append(headers, r.Header.Clone())
		mu.Unlock()
		_, _ = w.Write(config)
	}))
	defer storage.Close()
	front.Replace(registrytest.Blob, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, storage.URL+"/bucket/blob?signature=x", http.StatusTemporaryRedirect)
	})
	storageHost := strings.TrimPrefix(storage.URL, "http://")
	r := newResolver(t, newClock(), image.Options{})
	query := image.Query{
		Tenant: "acme", Image: front.Host + "/acme/app:1", Platform: amd64, Policy: plain(t, front.Host, storageHost),
		Credentials: credentials("ann", secret, front.Host),
	}
	// Its content is another config: what matters is what it was sent.
	fails(t, r, query, image.ResponseInvalid, "Image 'IMAGE' could not be pulled: registry '"+front.Host+"' sent a response that is not understood.")
	require.Len(t, headers, 1)
	require.Empty(t, headers[0].Get("Authorization"))
}

// What one pool reaches is of no use to another: neither its cache, nor its connections.
func TestResolve_APoolSeesNothingThatOnlyAnotherReaches(t *testing.T) {
	h := newHostile(t)
	succeeds(t, h.resolver, h.query)
	other := h.query
	other.Policy = imagename.Policy{}
	h.front.Forget()
	fails(t, h.resolver, other, image.AddressRefused, strings.Replace(refusedAddress, "HOST", h.front.Host, 1))
	require.Empty(t, h.front.Requests())

	// A policy that names a registry by its images alone permits it, with TLS.
	policy, err := imagename.ParsePolicy([]string{h.front.Host + "/acme/*"}, nil)
	require.NoError(t, err)
	other.Policy = policy
	fails(t, h.resolver, other, image.CertificateInvalid, "Image 'IMAGE' could not be pulled: the connection to registry '"+h.front.Host+"' is not secure: no TLS.")
}

func TestResolve_JOB7_ProxiesPassTheSameFence(t *testing.T) {
	registry := registrytest.Shared(t)
	registry.Push(t, "acme/app:1", postgres(t))
	var mu sync.Mutex
	var forwarded []string
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host = registry.Host }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		forwarded = append(forwarded, r.Method+" "+r.Host)
		mu.Unlock()
		if r.Method == http.MethodConnect {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	target, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	dns := registrytest.StartDNS(t, map[string][]netip.Addr{
		"private.evil.example": {netip.MustParseAddr("10.0.0.1")},
		"named.internal":       {netip.MustParseAddr("10.0.0.2")},
	})
	options := image.Options{DNS: dns.Resolver(), Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == target.Host {
			return nil, nil // as NO_PROXY says
		}
		return target, nil
	}}
	r := newResolver(t, newClock(), options)
	query := image.Query{Tenant: "acme", Platform: amd64, Policy: plain(t, "named.internal", "only-the-proxy-knows.example")}
	for _, host := range []string{"private.evil.example", "10.0.0.1", "169.254.169.254", "127.0.0.1:80", target.Host} {
		query.Image = host + "/app"
		fails(t, r, query, image.AddressRefused, strings.Replace(refusedAddress, "HOST", host, 1))
	}
	require.Empty(t, forwarded)
	query.Image = "unknown.example/app"
	fails(t, r, query, image.Unreachable, "Image 'IMAGE' could not be pulled: registry 'unknown.example' is unreachable: the controller's proxy responds with status 502.")
	for _, host := range []string{"named.internal", "only-the-proxy-knows.example"} {
		query.Image = host + "/acme/app:1"
		require.Equal(t, []string{"postgres"}, succeeds(t, r, query).Config.Cmd)
		require.Contains(t, forwarded, "GET "+host)
	}
}
