package github

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// privateCA signs the certificate of a server at 127.0.0.1.
type privateCA struct {
	pem    []byte
	server tls.Certificate
}

func newPrivateCA(t *testing.T, name string) privateCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	require.NoError(t, err)
	return privateCA{
		pem:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}),
		server: tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key},
	}
}

func (c privateCA) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{c.server}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// The CA of an Enterprise Server is trusted beside the system's, and is replaced while requests are made.
func TestTransport_R7_TrustsAPrivateCAUntilItIsReplaced(t *testing.T) {
	first, second := newPrivateCA(t, "first"), newPrivateCA(t, "second")
	one, two := first.serve(t), second.serve(t)
	transport := NewTransport()
	reaches := func(url string) bool {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			var unknown x509.UnknownAuthorityError
			require.ErrorAs(t, err, &unknown)
			return false
		}
		require.NoError(t, answer.Body.Close())
		return true
	}
	require.False(t, reaches(one), "the system does not know it")
	require.NoError(t, transport.UseCA(t.Context(), first.pem))
	require.True(t, reaches(one))
	require.False(t, reaches(two))
	require.NoError(t, transport.UseCA(t.Context(), append(first.pem, second.pem...)))
	require.True(t, reaches(one) && reaches(two), "both, while one is replaced by the other")
	require.NoError(t, transport.UseCA(t.Context(), second.pem))
	require.False(t, reaches(one))
	require.True(t, reaches(two))

	for _, broken := range []string{"", "s3cret", "-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----\n"} {
		err := transport.UseCA(t.Context(), []byte(broken))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.True(t, reaches(two), "what was trusted stays")

	system, err := x509.SystemCertPool()
	require.NoError(t, err)
	require.NotNil(t, transport.current.Load().Proxy, "a proxy of the environment is used")
	system.AppendCertsFromPEM(second.pem)
	require.True(t, system.Equal(transport.current.Load().TLSClientConfig.RootCAs), "beside the system's, and not in their place")
}
