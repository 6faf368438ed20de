package realnode

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const (
	pulledPool     = "pulled"
	pulledRegistry = "pulled.test"
)

// registryAt is the registry's address, which only nodes reach by its name.
var registryAt = netip.MustParseAddrPort("11.0.0.5:80")

const pulledValues = `apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: ` + pulledPool + `, namespace: ` + runnersNamespace + `}
spec:
  platform: linux
  labels: [` + pulledPool + `]
  replicas: 1
  imagePrepull: {enabled: true}
  resources: {cpu: 50m, memory: 256Mi}
  template:
    image: ` + pulledRegistry + `/runner:TAG
    command: [/usr/local/bin/bullpen, dev, runner, --work, /bullpen/work]
    terminationGracePeriodSeconds: 600
`

const pulledWorkflow = `
name: pulled
on: [workflow_dispatch]
jobs:
  pulled:
    runs-on: [` + pulledPool + `]
    steps: [{run: "true"}]
`

// pullImages has containerd pull a pool's image from a registry before a runner needs it (spec.imagePrepull). While the next image cannot be pulled, the
// runners keep the previous one and take jobs.
func (w *world) pullImages() {
	source := w.serveRegistry()
	for _, tag := range []string{"one", "two"} {
		image := runnerImage(w.TB, w.dir)
		// Of an image that it has pulled the kubelet lets other names pull it again, also that of the imported image with the same content.
		image.Files = append(image.Files, realnode.File{Path: "/etc/pulled", Content: []byte(tag), Mode: 0o644})
		source.push(w, image.Write, tag)
	}
	source.withhold("two")
	apply := func(tag string) {
		require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "pulled.yaml"), []byte(strings.ReplaceAll(pulledValues, "TAG", tag)), 0o600))
		w.run("kubectl apply -f pulled.yaml")
	}
	runJob := func() {
		before := w.unfinished()
		w.submit("pulled.yaml", pulledWorkflow, 1)
		w.awaitJobs("a job on an image of a registry", before)
	}
	apply("one")
	w.await("a runner with the image of the registry", ofPool(pulledPool), isIdle, withTag("one"))
	w.awaitPulled("True")
	runJob()

	w.await("the next runner", ofPool(pulledPool), isIdle, withTag("one")) // one that is made after the change has the next image
	apply("two")
	w.awaitPulled("False")
	w.eventually("the node asks for the withheld image", func() bool { return source.refused("two") > 0 })
	w.await("an idle runner with the previous image", ofPool(pulledPool), isIdle, withTag("one"))
	require.False(w, w.nodeHasImage("two"), "the withheld image is on the node")
	source.release("two")
	w.await("a runner with the next image", ofPool(pulledPool), isIdle, withTag("two"))
	w.awaitPulled("True")
	runJob()
	w.run("kubectl delete -f pulled.yaml", "--timeout=10m")
}

// awaitPulled waits for the pool's condition ImagesPulled.
func (w *world) awaitPulled(status string) {
	w.eventually("ImagesPulled is "+status, func() bool {
		said, err := w.kubectl("--namespace="+runnersNamespace, "get", "runnerpool", pulledPool, `--output=jsonpath={.status.conditions[?(@.type=="ImagesPulled")].status}`)
		return err == nil && said == status
	})
}

func (w *world) nodeHasImage(tag string) bool {
	node, err := w.kube.CoreV1().Nodes().Get(w.Context(), nodeName, metav1.GetOptions{})
	require.NoError(w, err)
	for _, image := range node.Status.Images {
		for _, ref := range image.Names {
			if ref == pulledRegistry+"/runner:"+tag {
				return true
			}
		}
	}
	return false
}

func withTag(tag string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return strings.HasSuffix(imageOf(pod), ":"+tag) }
}

func imageOf(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == runnerpod.ContainerRunner {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// images is a registry that can withhold tags.
type images struct {
	address string // on this machine
	handler http.Handler

	mu       sync.Mutex
	withheld map[string]int // refusals by tag
}

// serveRegistry starts a registry that the node's containerd pulls from, until the phase ends.
func (w *world) serveRegistry() *images {
	source := &images{handler: registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))), withheld: map[string]int{}}
	require.NoError(w, w.cluster.Address(registryAt.Addr()))
	inside, err := w.cluster.Listen(w.Context(), registryAt)
	require.NoError(w, err)
	here := listen(w.TB)
	source.address = here.Addr().String()
	server := &http.Server{Handler: source, ReadHeaderTimeout: patience}
	pushes := &http.Server{Handler: source.handler, ReadHeaderTimeout: patience}
	w.background(func(ctx context.Context) {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		_ = server.Serve(inside) // until then
	})
	w.background(func(ctx context.Context) {
		defer context.AfterFunc(ctx, func() { _ = pushes.Close() })()
		_ = pushes.Serve(here) // until then
	})
	require.NoError(w, w.node.Mirror(pulledRegistry, registryAt))
	return source
}

func (s *images) push(w *world, write func(io.Writer) error, tag string) {
	var archive bytes.Buffer
	require.NoError(w, write(&archive))
	image, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }, nil)
	require.NoError(w, err)
	ref, err := name.NewTag(s.address+"/runner:"+tag, name.Insecure)
	require.NoError(w, err)
	require.NoError(w, remote.Write(ref, image, remote.WithContext(w.Context())))
}

func (s *images) withhold(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld[tag] = 0
}

func (s *images) release(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.withheld, tag)
}

func (s *images) refused(tag string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withheld[tag]
}

func (s *images) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	tag := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	s.mu.Lock()
	count, withheld := s.withheld[tag]
	if withheld {
		s.withheld[tag] = count + 1
	}
	s.mu.Unlock()
	if withheld {
		http.Error(rw, "withheld", http.StatusServiceUnavailable)
		return
	}
	s.handler.ServeHTTP(rw, r)
}
