package image_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

// certificate is valid for a host and signed by itself.
func certificate(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: []string{host},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// tunnels is a forward proxy that leads every host to one server.
type tunnels struct {
	target string

	mu      sync.Mutex
	opened  []string
	copiers sync.WaitGroup
}

func (p *tunnels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.opened = append(p.opened, r.Method+" "+r.Host)
	p.mu.Unlock()
	server, err := new(net.Dialer).DialContext(r.Context(), "tcp", p.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		server.Close()
		return
	}
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		p.copiers.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			pair[0].Close()
			pair[1].Close()
		})
	}
}

// Docker Hub has three names: none, docker.io, and that of its API. Here it is behind a proxy, as in many companies.
func TestResolve_DockerHubThroughAProxy(t *testing.T) {
	registry := registrytest.Shared(t)
	digest := registry.Push(t, "library/postgres:17", postgres(t))
	front := registrytest.StartFront(t, registry)
	hub := httptest.NewUnstartedServer(front)
	pair, roots := certificate(t, "index.docker.io")
	hub.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	hub.StartTLS()
	defer hub.Close()
	proxy := &tunnels{target: hub.Listener.Addr().String()}
	proxying := httptest.NewServer(proxy)
	defer await.Return(t, proxy.copiers.Wait, "the tunnels end")
	defer proxying.Close()
	target, err := url.Parse(proxying.URL)
	require.NoError(t, err)

	dns := registrytest.StartDNS(t, nil) // only the proxy can look up names
	r := newResolver(t, newClock(), image.Options{DNS: dns.Resolver(), RootCAs: roots, Proxy: http.ProxyURL(target)})
	defer r.Close()
	policy, err := imagename.ParsePolicy([]string{"postgres:*"}, nil)
	require.NoError(t, err)
	for _, name := range []string{"postgres:17", "docker.io/postgres:17", "library/postgres:17", "index.docker.io/library/postgres:17"} {
		resolved := succeeds(t, r, image.Query{Tenant: "acme", Image: name, Platform: amd64, Policy: policy})
		require.Equal(t, "docker.io/library/postgres@"+digest, resolved.Reference, name)
	}
	require.Equal(t, []string{"GET tag", "GET digest", "GET blob"}, front.Requests(), "all are one image")
	require.Equal(t, "CONNECT index.docker.io:443", proxy.opened[0])

	// Credentials without a server are those of Docker Hub.
	query := image.Query{Tenant: "acme", Image: "postgres:17", Platform: amd64, Policy: policy, Credentials: credentials("ann", secret, "")}
	front.Forget()
	front.Replace(registrytest.Version, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	sent := make(chan string, 1)
	front.Replace(registrytest.Tag, func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		sent <- password
		front.Pass(w, r)
	})
	succeeds(t, r, query)
	require.Equal(t, secret, <-sent) // bounded: it was sent
}
