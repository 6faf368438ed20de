package github

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
)

// newHTTPTransport connects by the proxy that the environment names (HTTPS_PROXY, HTTP_PROXY, NO_PROXY). nil roots are the system's.
func newHTTPTransport(roots *x509.CertPool) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	transport.OnProxyConnectResponse = proxyAnswer
	if roots != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return transport
}

// proxyAnswer names the proxy in the error of a refusal, which would otherwise read as GitHub's. Its URL may hold a password.
func proxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("the proxy %s refused to connect: %s", proxy.Host, answer.Status)
}

// Transport carries the requests of clients to a GitHub whose certificate a private CA has signed. The CA may change at any time. It is safe
// for concurrent use.
type Transport struct {
	current atomic.Pointer[http.Transport]
}

// NewTransport trusts what the system trusts, until UseCA.
func NewTransport() *Transport {
	t := &Transport{}
	t.current.Store(newHTTPTransport(nil))
	return t
}

// UseCA trusts these certificates (PEM) beside the system's, from the next connection on, and no longer those of the call before. Its error
// quotes nothing of what it was given.
func (t *Transport) UseCA(_ context.Context, certificates []byte) error {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // the platform has none
	}
	if !roots.AppendCertsFromPEM(certificates) {
		return errors.New("it holds no certificate: put the CA's certificates there, as PEM (-----BEGIN CERTIFICATE-----)")
	}
	t.current.Swap(newHTTPTransport(roots)).CloseIdleConnections()
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.current.Load().RoundTrip(r)
}
