package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityValidity = 10 * 365 * 24 * time.Hour
	leafValidity      = 365 * 24 * time.Hour
	// clockSlack lets a certificate be used by a machine (or a virtual one) whose clock is a little behind.
	clockSlack = time.Hour
)

// pair is a certificate and its private key, both in PEM.
type pair struct{ cert, key []byte }

// authority signs certificates. etcd has one of its own, so that no identity of the cluster opens the database.
type authority struct {
	pair
	parsed *x509.Certificate
	signer crypto.Signer
}

// pki is everything the components authenticate with. The authorities and the service account key persist in the state
// directory; the other certificates are issued again at each start, so that they never expire in an old directory.
type pki struct {
	dir     string
	cluster *authority
	etcd    *authority
	proxy   *authority // for API servers behind this one; without it the other components log errors forever
	admin   pair
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func loadPKI(dir string, now func() time.Time) (*pki, error) {
	p := &pki{dir: dir}
	var err error
	if p.cluster, err = loadAuthority(p.path("ca"), "bullpen-dev-ca", now()); err != nil {
		return nil, err
	}
	if p.etcd, err = loadAuthority(p.path("etcd-ca"), "bullpen-dev-etcd-ca", now()); err != nil {
		return nil, err
	}
	if p.proxy, err = loadAuthority(p.path("front-proxy-ca"), "bullpen-dev-front-proxy-ca", now()); err != nil {
		return nil, err
	}
	if err := ensureSigningKey(p.path("sa.key")); err != nil {
		return nil, err
	}
	if p.admin, err = p.cluster.issueClient("bullpen-admin", []string{"system:masters"}, now()); err != nil {
		return nil, fmt.Errorf("issuing the admin certificate: %w", err)
	}
	return p, p.issueServing(now())
}

// issueServing writes the certificates that the components serve with, and the API server's for etcd.
func (p *pki) issueServing(now time.Time) error {
	for _, leaf := range []struct {
		file  string
		by    *authority
		usage []x509.ExtKeyUsage
	}{
		{"apiserver", p.cluster, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{"controller-manager", p.cluster, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{"scheduler", p.cluster, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{"etcd", p.etcd, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, // it also calls its own peer port
		{"apiserver-etcd-client", p.etcd, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{KubeletClient, p.cluster, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{"front-proxy-client", p.proxy, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		issued, err := leaf.by.issue(&x509.Certificate{
			Subject:     pkix.Name{CommonName: leaf.file},
			ExtKeyUsage: leaf.usage,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(ServiceAddress)},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		}, now)
		if err != nil {
			return fmt.Errorf("issuing the %s certificate: %w", leaf.file, err)
		}
		if err := errors.Join(writeFile(p.path(leaf.file+".key"), issued.key), writeFile(p.path(leaf.file+".crt"), issued.cert)); err != nil {
			return fmt.Errorf("writing the %s certificate: %w", leaf.file, err)
		}
	}
	return nil
}

// loadAuthority reads base.crt and base.key, or makes them when there is no certificate yet (it is written last, so a
// key alone is the remnant of a start that was cut short).
func loadAuthority(base, name string, now time.Time) (*authority, error) {
	cert, err := os.ReadFile(base + ".crt")
	if errors.Is(err, os.ErrNotExist) {
		return makeAuthority(base, name, now)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	key, err := os.ReadFile(base + ".key")
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	loaded, err := parseAuthority(pair{cert: cert, key: key})
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority %s.crt: %w; remove the state directory to start afresh", base, err)
	}
	if now.After(loaded.parsed.NotAfter) {
		return nil, fmt.Errorf("the certificate authority %s.crt expired at %s; remove the state directory to start afresh",
			base, loaded.parsed.NotAfter.Format(time.RFC3339))
	}
	return loaded, nil
}

func makeAuthority(base, name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	made, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil, key, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	if err := errors.Join(writeFile(base+".key", made.key), writeFile(base+".crt", made.cert)); err != nil {
		return nil, fmt.Errorf("writing the certificate authority: %w", err)
	}
	return parseAuthority(made)
}

func parseAuthority(p pair) (*authority, error) {
	certBlock, _ := pem.Decode(p.cert)
	keyBlock, _ := pem.Decode(p.key)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("it is not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the key: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("key and certificate do not belong together")
	}
	return &authority{pair: p, parsed: cert, signer: key}, nil
}

// issueClient makes a client certificate: Kubernetes reads the user from its common name, the groups from its organizations.
func (a *authority) issueClient(user string, groups []string, now time.Time) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now)
}

func (a *authority) issue(template *x509.Certificate, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generating a key: %w", err)
	}
	template.NotBefore = now.Add(-clockSlack)
	template.NotAfter = now.Add(leafValidity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return sign(template, a.parsed, key, a.signer)
}

// sign completes a certificate for key. A nil parent makes it self-signed.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("signing a certificate: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ensureSigningKey makes the key that service account tokens are signed with; tokens stay valid over restarts with it.
func ensureSigningKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the service account key: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := writeFile(path, encoded); err != nil {
		return fmt.Errorf("writing the service account key: %w", err)
	}
	return nil
}

// writeFile replaces a private file whole, so that no reader and no crash ever sees half of it.
func writeFile(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
