package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
)

// Names that Kubernetes gives to the identity of a node.
const (
	UserPrefix = "system:node:"
	Group      = "system:nodes"
)

// file is what the certificates' names begin with.
const file = "bullpen-node"

const (
	askTimeout = 15 * time.Second
	// How long the first certificate may take before the log says what to check. Signing takes less than a second.
	sayAfter = 10 * time.Second
	look     = 50 * time.Millisecond
)

// ErrNotAccepted: neither the certificate that is there nor the bootstrap credentials are accepted by the API server.
var ErrNotAccepted = errors.New("the API server rejects this node's certificate and the bootstrap token: create a new token")

// Options of Open; all are required but Lifetime and Log.
type Options struct {
	// Name of the node.
	Name string
	// Bootstrap is how to reach the API server before there is a certificate: usually with a bootstrap token. It is used again only when
	// the certificate has expired, or is no longer accepted.
	Bootstrap *rest.Config
	// Dir keeps keys and certificates, for this node alone; it is created.
	Dir string
	// Lifetime to ask for, ten minutes at least; the signer's own when zero. The signer may give less.
	Lifetime time.Duration
	// Log receives what the node waits for; discarded when nil. client-go's manager logs failed requests itself.
	Log *slog.Logger
}

// Identity is a node's certificate, kept valid until Close.
type Identity struct {
	opt     Options
	store   *store
	manager certificate.Manager
}

// Open returns when there is a certificate for requests to the API server. Without an earlier one it requests one, and waits until that is
// approved and signed, or ctx ends. An existing one is used without a request, unless the API server is reachable and refuses it (another
// cluster has taken its place, say) while it accepts the bootstrap credentials.
func Open(ctx context.Context, opt Options) (*Identity, error) {
	if opt.Name == "" || opt.Bootstrap == nil || opt.Dir == "" {
		return nil, errors.New("a node's identity needs its name, a client configuration and a directory")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the node's certificate: %w", err)
	}
	i := &Identity{opt: opt}
	if err := i.begin(ctx); err != nil {
		return nil, err
	}
	i.manager.Start()
	if err := i.await(ctx); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// begin makes the manager, with or without the certificate that is there.
func (i *Identity) begin(ctx context.Context) error {
	if err := i.newManager(); err != nil {
		return err
	}
	current := i.manager.Current()
	if current == nil {
		return nil
	}
	if usable, err := i.usable(ctx, current.Leaf.Subject.CommonName == UserPrefix+i.opt.Name); usable || err != nil {
		return err
	}
	i.opt.Log.Warn("the stored certificate is invalid or another node's; requesting a new one", "node", i.opt.Name)
	former := i.store.CurrentPath()
	if err := os.Rename(former, former+".refused"); err != nil {
		return fmt.Errorf("putting the refused certificate aside: %w", err)
	}
	return i.newManager()
}

func (i *Identity) newManager() (err error) {
	if i.store, err = newStore(file, i.opt.Dir); err != nil {
		return fmt.Errorf("opening the directory of the node's certificate: %w", err)
	}
	cfg := &certificate.Config{
		Name: file, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, CertificateStore: i.store,
		Template: &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: UserPrefix + i.opt.Name, Organization: []string{Group},
		}},
		GetUsages:   certificate.DefaultKubeletClientGetUsages,
		ClientsetFn: i.client,
	}
	if i.opt.Lifetime != 0 {
		cfg.RequestedCertificateLifetime = &i.opt.Lifetime
	}
	if i.manager, err = certificate.NewManager(cfg); err != nil {
		return fmt.Errorf("reading the node's certificate: %w", err)
	}
	return nil
}

// client is what certificates are requested with: the current one while it is valid, or the bootstrap credentials.
func (i *Identity) client(current *tls.Certificate) (kubernetes.Interface, error) {
	if current == nil {
		return kubernetes.NewForConfig(i.opt.Bootstrap)
	}
	config, err := i.withContent()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// withContent is Config with the present certificate inline. Its requests share no connection with the clients of Config: client-go caches
// those by file name, with the certificate that they started with.
func (i *Identity) withContent() (*rest.Config, error) {
	text, err := os.ReadFile(i.store.CurrentPath())
	if err != nil {
		return nil, fmt.Errorf("reading the node's certificate: %w", err)
	}
	config := rest.AnonymousClientConfig(i.opt.Bootstrap)
	config.CertData, config.KeyData = text, text
	return config, nil
}

// usable reports whether the certificate is to be used. An existing one is dropped only if the API server refuses it and accepts the
// bootstrap credentials. If the server is unreachable, or refuses both, the certificate is kept: it may be the better one.
func (i *Identity) usable(ctx context.Context, ours bool) (bool, error) {
	if ours {
		own, err := i.withContent()
		if err != nil {
			return false, err
		}
		if accepted, asked := i.accepted(ctx, own); accepted || !asked {
			return true, nil
		}
	}
	accepted, asked := i.accepted(ctx, i.opt.Bootstrap)
	if asked && !accepted {
		return false, ErrNotAccepted
	}
	return ours && !accepted, nil
}

// accepted asks the API server who we are; asked is false if it did not answer that.
func (i *Identity) accepted(ctx context.Context, config *rest.Config) (accepted, asked bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kube, err := kubernetes.NewForConfig(config)
	if err == nil {
		_, err = kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	// A client that is known and lacks the right (Forbidden) is accepted as well.
	return err == nil || apierrors.IsForbidden(err), err == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// await waits for the first certificate.
func (i *Identity) await(ctx context.Context) error {
	tick := time.NewTicker(look) // the manager has no signal for it
	defer tick.Stop()
	say := time.NewTimer(sayAfter)
	defer say.Stop()
	for i.manager.Current() == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the certificate of node %s: check that the request is approved (kubectl get csr): %w", i.opt.Name, ctx.Err())
		case <-say.C:
			i.opt.Log.Warn("this node's certificate is not signed yet: list requests with kubectl get csr; if nothing approves it, "+
				"run kubectl certificate approve NAME; for other causes see docs/guides/credentials.md", "node", i.opt.Name)
		case <-tick.C:
		}
	}
	return nil
}

// Config is how to reach the API server as the node. It names files instead of holding the certificate: client-go reads them again, and
// reconnects, when the certificate has been replaced.
func (i *Identity) Config() *rest.Config {
	config := rest.AnonymousClientConfig(i.opt.Bootstrap)
	config.CertFile, config.KeyFile = i.store.CurrentPath(), i.store.CurrentPath()
	return config
}

// Current is the certificate in use; nil when it has expired.
func (i *Identity) Current() *tls.Certificate { return i.manager.Current() }

// Close stops keeping the certificate valid. Nothing is written to Dir once it has returned.
func (i *Identity) Close() {
	i.manager.Stop()
	i.store.close()
}

// Dir is where a node agent with that state directory keeps its identity.
func Dir(stateDir string) string { return filepath.Join(stateDir, "identity") }

// File is where the certificate and the key that are in use then are (PEM, both in one file).
func File(stateDir string) string { return filepath.Join(Dir(stateDir), file+"-current.pem") }
