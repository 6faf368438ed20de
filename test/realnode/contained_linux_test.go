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
	"io/fs"
	"math/big"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

// registryHost is where images of jobs are: a Service, whose address is private, so the pool names it.
const registryHost = "registry." + outside + ".svc"

const containedPool = `---
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: contained, namespace: ` + runnersNamespace + `}
spec:
  platform: linux
  labels: [contained]
  replicas: 2
  resources: {cpu: 500m, memory: 512Mi}
  template:
    image: ` + runnerRef + `
    command: [/usr/local/bin/bullpen, dev, runner, --work, /home/runner]
    jobContainers: {registries: [` + registryHost + `]}
`

// containedWorkflow has what common workflows use containers for: a job in one, a database beside it that has to become healthy, a step in an image of
// its own, a user that is not root, and services of a job that runs on the runner.
const containedWorkflow = `
name: contained
on: [workflow_dispatch]
jobs:
  contained:
    runs-on: [contained]
    container: {image: "` + registryHost + `/contained/tools:v1", env: {FROM: workflow}}
    services:
      db: &db
        image: ` + registryHost + `/contained/db:v1
        env: {GREETING: hello}
        ports: ["15432:5432"]
        options: --health-cmd "/greeter check" --health-interval 1s --health-retries 60
    steps:
      - run: test "$FROM" = workflow && test "$(id -u)" = 0 && test "$(cat /etc/image)" = tools
      - id: greet
        shell: bash
        run: |
          exec 3<>/dev/tcp/db/5432
          read -r line <&3
          echo "line=$line" >> "$GITHUB_OUTPUT"
      - run: test "${{ steps.greet.outputs.line }}" = hello && echo made > made
      - uses: docker://` + registryHost + `/contained/tools:v1
        with: {entrypoint: /usr/bin/cat, args: made}
  user:
    runs-on: [contained]
    container: {image: "` + registryHost + `/contained/tools:v1", options: --user 1500}
    steps:
      - run: test "$(id -u)" = 1500 && echo "MADE=by-1500" >> "$GITHUB_ENV"
      - run: test "$MADE" = by-1500
  beside:
    runs-on: [contained]
    services:
      db: *db
    steps:
      - shell: bash
        run: |
          exec 3<>/dev/tcp/localhost/15432
          read -r line <&3
          test "$line" = hello && test ! -e /etc/image
`

// runJobContainers runs jobs whose containers the controller adds to the runners' pods (JOB-1), with images that the node pulls from a registry.
func (w *world) runJobContainers() {
	w.startRegistry()
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "contained.pool.yaml"), []byte(containedPool), 0o600))
	w.run("kubectl apply -f contained.pool.yaml")
	w.submit("contained.yaml", containedWorkflow, 3)
	w.awaitJobs("jobs with containers", 0)
	for _, job := range w.jobs() {
		if slices.Contains(job.Labels, "contained") {
			said, err := w.github.Admin.JobLog(w.Context(), job.ID)
			require.NoError(w, err)
			require.Equal(w, "success", job.Conclusion, "job %s\n%s", job.Name, said)
			w.Logf("job %s took %s", job.Name, job.CompletedAt.Sub(*job.StartedAt))
		}
	}
	w.run("kubectl delete -f contained.pool.yaml", "--timeout=10m")
}

// startRegistry starts a registry with the images. The controller reaches it as a Service, with TLS; the node has its address.
func (w *world) startRegistry() {
	registry := registrytest.Start(w.TB, registrytest.Options{})
	front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry.Host}))
	front.TLS = &tls.Config{Certificates: []tls.Certificate{w.registry.certificate}, MinVersion: tls.VersionTLS12}
	front.StartTLS()
	w.Cleanup(front.Close)
	w.serve("registry", netip.AddrPortFrom(jobImagesAt, 443), front.Listener.Addr().String())
	forNodes := netip.AddrPortFrom(jobImagesAt, 80)
	require.NoError(w, w.cluster.Forward(context.WithoutCancel(w.Context()), forNodes, registry.Host))
	require.NoError(w, w.node.Mirror(registryHost, forNodes))

	greeter := filepath.Join(w.dir, "greeter")
	require.NoError(w, compile(w.Context(), greeter, ".", "./test/realnode/greeter"))
	tools, err := realnode.HostPrograms("bash", "sh", "cat", "id", "env", "true")
	require.NoError(w, err)
	etc := func(path, content string) realnode.File {
		return realnode.File{Path: path, Content: []byte(content), Mode: 0o644}
	}
	users, tmp := etc("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky}
	w.push(registry, realnode.Image{Ref: registryHost + "/contained/tools:v1", Files: append(tools, users, tmp, etc("/etc/image", "tools\n")), Env: []string{"PATH=/usr/bin:/bin"}})
	shell, err := realnode.HostPrograms("sh") // runs the health check, as in Docker
	require.NoError(w, err)
	w.push(registry, realnode.Image{
		Ref: registryHost + "/contained/db:v1", Files: append(shell, users, tmp, realnode.File{Path: "/greeter", From: greeter}),
		Entrypoint: []string{"/greeter"}, Env: []string{"PATH=/usr/bin:/bin"},
	})
}

// push stores an image in the registry.
func (w *world) push(registry *registrytest.Registry, i realnode.Image) {
	archive := filepath.Join(w.dir, "image.tar")
	file, err := os.Create(archive)
	require.NoError(w, err)
	require.NoError(w, i.Write(file))
	require.NoError(w, file.Close())
	ref, err := name.NewTag(i.Ref)
	require.NoError(w, err)
	image, err := tarball.ImageFromPath(archive, &ref)
	require.NoError(w, err)
	registry.Push(w.TB, ref.RepositoryStr()+":"+ref.TagStr(), image)
	require.NoError(w, os.Remove(archive))
}

// registryIdentity is the registry's certificate, and that of the CA that has signed it.
type registryIdentity struct {
	certificate tls.Certificate
	ca          []byte // PEM
}

func newRegistryIdentity(t testing.TB) registryIdentity {
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
	return registryIdentity{tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})}
}

// storeRegistryCA makes the Secret that the values name.
func (w *world) storeRegistryCA() {
	_, err := w.kube.CoreV1().Secrets(systemNamespace).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registries"}, Data: map[string][]byte{"ca.crt": w.registry.ca},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}
