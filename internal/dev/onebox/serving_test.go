package onebox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// Only what the node agent of this machine asks for itself is approved, and nothing beside it.
func TestCheckServingRequest(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	spec := func(change func(*certificatesv1.CertificateSigningRequestSpec, *x509.CertificateRequest)) certificatesv1.CertificateSigningRequestSpec {
		made := certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:this-machine", Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		}
		request := &x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "system:node:this-machine", Organization: []string{"system:nodes"}},
			DNSNames: []string{"this-machine"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		change(&made, request)
		der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
		require.NoError(t, err)
		if made.Request == nil {
			made.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		}
		return made
	}
	check := func(spec certificatesv1.CertificateSigningRequestSpec) error {
		return checkServingRequest(spec, "this-machine", net.IPv4(127, 0, 0, 1))
	}
	require.NoError(t, check(spec(func(*certificatesv1.CertificateSigningRequestSpec, *x509.CertificateRequest) {})))

	type (
		s = *certificatesv1.CertificateSigningRequestSpec
		r = *x509.CertificateRequest
	)
	for what, change := range map[string]func(s, r){
		"another signer":      func(s s, _ r) { s.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName },
		"another node":        func(s s, _ r) { s.Username = "system:node:other" },
		"a user of that name": func(s s, _ r) { s.Groups = []string{"system:authenticated"} },
		"client usage":        func(s s, _ r) { s.Usages = append(s.Usages, certificatesv1.UsageClientAuth) },
		"no serving":          func(s s, _ r) { s.Usages = s.Usages[:1] },
		"no PEM":              func(s s, _ r) { s.Request = []byte("x") },
		"other's subject":     func(_ s, r r) { r.Subject.CommonName = "system:node:other" },
		"another group":       func(_ s, r r) { r.Subject.Organization = []string{"system:nodes", "system:masters"} },
		"another name":        func(_ s, r r) { r.DNSNames = []string{"this-machine", "kubernetes.default"} },
		"no name":             func(_ s, r r) { r.DNSNames = nil },
		"another address":     func(_ s, r r) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} },
		"two addresses":       func(_ s, r r) { r.IPAddresses = append(r.IPAddresses, net.IPv4(10, 0, 0, 1)) },
		"an e-mail address":   func(_ s, r r) { r.EmailAddresses = []string{"ada@example.com"} },
		"a URI":               func(_ s, r r) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} },
	} {
		require.Error(t, check(spec(change)), what)
	}
	twice := spec(func(s, r) {})
	twice.Request = append(twice.Request, twice.Request...)
	require.Error(t, check(twice), "two requests in one")
}
