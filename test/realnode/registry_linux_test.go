package realnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
	"github.com/bullpen-ci/bullpen/test/soak/containers"
)

const (
	// registryHost is where images of jobs are: a Service, whose address is private, so the pool names it.
	registryHost = "registry." + outside + ".svc"
	// publicRepositories need no credentials.
	publicRepositories   = "/v2/public/"
	pullUser, pullSecret = "puller", "only-for-the-registry"
	// puller is what workflows have as credentials.
	puller = `{username: ` + pullUser + `, password: ` + pullSecret + `}`
)

// jobRegistry is where images of jobs are. Other repositories than public ones need credentials. The controller reaches it as a Service, with TLS, whose CA the
// values name; the node has its address. It fails as a test asks it to.
type jobRegistry struct {
	certificate tls.Certificate
	ca          []byte     // PEM
	lasts       testing.TB // as long as the registry
	running     *registrytest.Registry
	bases       map[string]v1.Image // by the last part of their name
	next        http.Handler

	mu    sync.Mutex
	fault containers.Kind
	over  chan struct{} // closed at the fault's end
}

func newRegistry(t testing.TB) *jobRegistry {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registries"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{registryHost}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), key)
	require.NoError(t, err)
	return &jobRegistry{
		certificate: tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}, ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		lasts: t, bases: map[string]v1.Image{},
	}
}

// storeRegistryCA makes the Secret that the values name.
func (w *world) storeRegistryCA() {
	_, err := w.kube.CoreV1().Secrets(systemNamespace).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registries"}, Data: map[string][]byte{"ca.crt": w.registry.ca},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}

// startRegistry starts the registry, if it does not run, and stores the images that others are made of.
func (w *world) startRegistry() {
	r := w.registry
	if r.running != nil {
		return
	}
	r.running = registrytest.Start(r.lasts, registrytest.Options{Users: map[string]string{pullUser: pullSecret}})
	target := &url.URL{Scheme: "http", Host: r.running.Host}
	r.next = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		if strings.HasPrefix(p.In.URL.Path, publicRepositories) {
			p.Out.SetBasicAuth(pullUser, pullSecret)
		}
	}}
	front, plain := httptest.NewUnstartedServer(r), httptest.NewServer(r)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{r.certificate}, MinVersion: tls.VersionTLS12}
	front.StartTLS()
	r.lasts.Cleanup(front.Close)
	r.lasts.Cleanup(plain.Close)
	w.in(r.lasts).serve("registry", netip.AddrPortFrom(jobImagesAt, 443), front.Listener.Addr().String())
	forNodes := netip.AddrPortFrom(jobImagesAt, 80)
	require.NoError(w, w.cluster.Forward(context.WithoutCancel(r.lasts.Context()), forNodes, plain.Listener.Addr().String()))
	require.NoError(w, w.node.Mirror(registryHost, forNodes))
	w.makeJobImages()
}

func (w *world) makeJobImages() {
	greeter := filepath.Join(w.dir, "greeter")
	require.NoError(w, compile(w.Context(), greeter, ".", "./test/realnode/greeter"))
	tools, err := realnode.HostPrograms("bash", "sh", "cat", "id", "env", "getent", "sleep", "timeout", "true")
	require.NoError(w, err)
	etc := func(path, content string) realnode.File {
		return realnode.File{Path: path, Content: []byte(content), Mode: 0o644}
	}
	users, tmp := etc("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky}
	w.makeImage("tools", realnode.Image{Files: append(tools, users, tmp, etc("/etc/image", "tools\n")), Env: []string{"PATH=/usr/bin:/bin"}})
	shell, err := realnode.HostPrograms("sh") // runs the health check, as in Docker
	require.NoError(w, err)
	w.makeImage("db", realnode.Image{
		Files: append(shell, users, tmp, realnode.File{Path: "/greeter", From: greeter}), Entrypoint: []string{"/greeter"}, Env: []string{"PATH=/usr/bin:/bin"},
	})
	for repository, base := range map[string]string{"contained/tools": "tools", "public/tools": "tools", "contained/db": "db"} {
		w.registry.running.Push(w.TB, repository+":v1", w.registry.bases[base])
	}
}

func (w *world) makeImage(base string, i realnode.Image) {
	archive := filepath.Join(w.dir, base+".tar")
	file, err := os.Create(archive)
	require.NoError(w, err)
	i.Ref = registryHost + "/" + base + ":v1"
	require.NoError(w, i.Write(file))
	require.NoError(w, file.Close())
	ref, err := name.NewTag(i.Ref)
	require.NoError(w, err)
	w.registry.bases[base], err = tarball.ImageFromPath(archive, &ref) // which reads the file whenever it is pushed
	require.NoError(w, err)
}

// pushOwn stores an image with a layer of its own, so that a node that has others of the base must pull it nevertheless, and returns its name without the tag, which is v1.
func (w *world) pushOwn(base, repository string) string {
	w.Helper()
	layer, err := random.Layer(64<<10, types.DockerLayer)
	require.NoError(w, err)
	image, err := mutate.AppendLayers(w.registry.bases[base], layer)
	require.NoError(w, err)
	w.registry.running.Push(w.TB, repository+":v1", image)
	return registryHost + "/" + repository
}

// fail makes requests fail until repair is called.
func (r *jobRegistry) fail(fault containers.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.over = fault, make(chan struct{})
}

func (r *jobRegistry) repair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = ""
	close(r.over)
}

func (r *jobRegistry) state() (fault containers.Kind, over <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault, r.over
}

// ServeHTTP passes a request to the registry, unless there is a fault.
func (r *jobRegistry) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	fault, over := r.state()
	switch fault {
	case containers.RegistryFails:
		http.Error(to, "maintenance", http.StatusServiceUnavailable)
	case containers.RegistryHangs:
		select { // bounded: the fault ends
		case <-over:
		case <-request.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case containers.RegistryCuts:
		to.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(to, "{")
		_ = http.NewResponseController(to).Flush()
		panic(http.ErrAbortHandler)
	default:
		r.next.ServeHTTP(to, request)
	}
}
