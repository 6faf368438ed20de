package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
)

// servingFile is what the names of the certificates begin with that a node serves with.
const servingFile = "bullpen-node-serving"

// ServingOptions of OpenServing; all are required but Lifetime and Log.
type ServingOptions struct {
	// Name of the node, and the address at which it serves.
	Name    string
	Address net.IP
	// Config is how to reach the API server as the node.
	Config *rest.Config
	// Dir keeps keys and certificates, for this node alone; it is created.
	Dir string
	// Lifetime to ask for; the signer's own when zero. The signer may give less.
	Lifetime time.Duration
	Log      *slog.Logger
}

// Serving is the node's serving certificate, for clients that read its logs. It is requested from the cluster's signer of serving
// certificates (kubernetes.io/kubelet-serving) and renewed until Close. No controller of a cluster approves such requests: until an
// administrator does, the node serves with a self-signed one, which an API server that verifies its nodes refuses.
type Serving struct {
	store   *store
	manager certificate.Manager
	own     tls.Certificate
	log     *slog.Logger
	said    sync.Once
}

// OpenServing requests a certificate, or uses the existing one, without waiting for it.
func OpenServing(opt ServingOptions) (*Serving, error) {
	if opt.Name == "" || opt.Address == nil || opt.Config == nil || opt.Dir == "" {
		return nil, errors.New("a serving certificate needs the node's name and IP address, a client configuration and a directory")
	}
	s := &Serving{log: opt.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the node's certificates: %w", err)
	}
	var err error
	if s.store, err = newStore(servingFile, opt.Dir); err != nil {
		return nil, fmt.Errorf("opening the directory of the node's certificates: %w", err)
	}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: UserPrefix + opt.Name, Organization: []string{Group}},
		DNSNames: []string{opt.Name}, IPAddresses: []net.IP{opt.Address},
	}
	cfg := &certificate.Config{
		Name: servingFile, SignerName: certificatesv1.KubeletServingSignerName, CertificateStore: s.store,
		// A function, so that a certificate for another address is replaced.
		GetTemplate: func() *x509.CertificateRequest { return template },
		GetUsages:   certificate.DefaultKubeletServingGetUsages,
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return kubernetes.NewForConfig(opt.Config) },
	}
	if opt.Lifetime != 0 {
		cfg.RequestedCertificateLifetime = &opt.Lifetime
	}
	if s.manager, err = certificate.NewManager(cfg); err != nil {
		return nil, fmt.Errorf("reading the certificate that the node serves with: %w", err)
	}
	if s.own, err = selfSigned(template, time.Now()); err != nil {
		return nil, fmt.Errorf("making a certificate to serve with: %w", err)
	}
	s.manager.Start()
	return s, nil
}

// Certificate is the one to serve with now: for tls.Config.GetCertificate.
func (s *Serving) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := s.manager.Current(); current != nil {
		return current, nil
	}
	s.said.Do(func() {
		s.log.Warn("serving logs and commands with a self-signed certificate, which an API server may reject: approve the node's request "+
			"(kubectl get csr, kubectl certificate approve NAME) or give --tls-cert-file", "signer", certificatesv1.KubeletServingSignerName)
	})
	return &s.own, nil
}

// Signed reports whether the cluster's signer has signed what is served with.
func (s *Serving) Signed() bool { return s.manager.Current() != nil }

// Close stops keeping the certificate valid. Nothing is written to the directory once it has returned.
func (s *Serving) Close() {
	s.manager.Stop()
	s.store.close()
}

// selfSigned makes a certificate for the names of a request.
func selfSigned(request *x509.CertificateRequest, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &x509.Certificate{Subject: request.Subject}, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// FromFiles is a certificate that another program renews in files (PEM), read again when they change: for tls.Config.GetCertificate.
func FromFiles(certFile, keyFile string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	pair := whenChanged([]string{certFile, keyFile}, func() (*tls.Certificate, error) {
		loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &loaded, err
	})
	if _, err := pair(); err != nil {
		return nil, fmt.Errorf("reading the certificate to serve with: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair() }, nil
}

// AuthoritiesFromFile are certificate authorities in a file (PEM) that another program updates, read again when it changes. Unusable
// content is ignored, and the last authorities stay in use.
func AuthoritiesFromFile(file string) (func() *x509.CertPool, error) {
	roots := whenChanged([]string{file}, func() (*x509.CertPool, error) {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s is not a PEM certificate", file)
		}
		return pool, nil
	})
	if _, err := roots(); err != nil {
		return nil, fmt.Errorf("reading the authorities of clients: %w", err)
	}
	return func() *x509.CertPool {
		pool, _ := roots() // there is one: the first reading went well
		return pool
	}, nil
}

// whenChanged loads again when a file is another one, or has another time or size. A later load that fails leaves the earlier
// result in use, and is tried again.
func whenChanged[T any](files []string, load func() (*T, error)) func() (*T, error) {
	var mu sync.Mutex
	var loaded *T
	var seen []os.FileInfo
	return func() (*T, error) {
		mu.Lock()
		defer mu.Unlock()
		now := make([]os.FileInfo, len(files))
		changed := loaded == nil
		for i, file := range files {
			now[i], _ = os.Stat(file) // one that is not there fails to load
			changed = changed || !sameFile(seen[i], now[i])
		}
		if !changed {
			return loaded, nil
		}
		fresh, err := load()
		if err != nil {
			if loaded == nil {
				return nil, err
			}
			return loaded, nil
		}
		loaded, seen = fresh, now
		return loaded, nil
	}
}

func sameFile(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
