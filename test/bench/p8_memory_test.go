package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

const p8Count = 10_000

// inUse is what the program holds: the heap after two collections, and its stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // finalizers of the first free what the second finds
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func since(before uint64) float64 { return float64(inUse()) - float64(before) }

func mib(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }

func memoryRow(b *testing.B, what, limit string, ours, theirs float64) {
	b.Helper()
	ratio := ours / theirs
	b.ReportMetric(ratio, "ratio")
	report(row{
		id: "P8", what: what, measured: mib(ours), limit: limit + ": " + mib(theirs), result: fmt.Sprintf("%.2f×", ratio), value: ratio,
		samples: 1, budget: "≤ 2×", kept: ratio <= 2,
	})
}

// BenchmarkP8 compares memory: the controller's for 10,000 runner pods with that of an informer of the same objects that
// does nothing else, and the server's for 10,000 polls with that of an HTTP server for as many requests that it never
// answers. Each is measured by the growth of this process; the other side of the connections is another process.
func BenchmarkP8(b *testing.B) {
	b.Run("controller", controllerMemory)
	b.Run("server", serverMemory)
}

func controllerMemory(b *testing.B) {
	for b.Loop() {
		env := startPlane(b)
		s := newSide(b, env)
		pool := s.newPool()
		s.createAll(pool, p8Count)
		s.await(p8Count, added)
		s.scale(pool, p8Count)
		bare := s.informerHolds(b)
		before := inUse()
		s.runController(b, 0)
		require.Eventually(b, func() bool {
			err := s.admin.Get(b.Context(), client.ObjectKeyFromObject(pool), pool)
			return err == nil && pool.Status.Replicas == p8Count
		}, 5*time.Minute, 100*time.Millisecond)
		memoryRow(b, "the controller, 10,000 runner pods", "a bare informer of the same pods and ServiceAccounts", since(before), bare)
	}
}

// createAll makes what a pool of n would, as fast as 16 clients can. No controller reconciles it.
func (s *side) createAll(pool *v1alpha1.RunnerPool, n int) {
	s.tb.Helper()
	names := make(chan string)
	var wg sync.WaitGroup
	for range p4Clients {
		wg.Go(func() {
			for suffix := range names {
				s.create(pool, suffix)
			}
		})
	}
	for range n {
		names <- runnerpod.NewSuffix()
	}
	close(names)
	await.ReturnWithin(s.tb, 10*time.Minute, wg.Wait, "all pods are created")
}

// informerHolds is what plain informers hold of the namespace's pods and ServiceAccounts.
func (s *side) informerHolds(b *testing.B) float64 {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); await.Return(b, wg.Wait, "the informers end") }()
	before := inUse()
	var informers []cache.SharedInformer
	for resource, object := range map[string]kruntime.Object{"pods": &corev1.Pod{}, "serviceaccounts": &corev1.ServiceAccount{}} {
		list := cache.NewListWatchFromClient(s.env.Kube.CoreV1().RESTClient(), resource, s.ns, fields.Everything())
		informer := cache.NewSharedInformer(list, object, 0)
		wg.Go(func() { informer.RunWithContext(ctx) })
		require.True(b, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
		informers = append(informers, informer)
	}
	held := since(before)
	runtime.KeepAlive(informers)
	return held
}

func serverMemory(b *testing.B) {
	for b.Loop() {
		r := newRig(b, dispatchtest.InstantGitHub{})
		var tokens []string
		for range p8Count {
			tokens = append(tokens, r.newPod().UID)
		}
		var held atomic.Int64
		bare := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			held.Add(1)
			<-req.Context().Done()
		}))
		theirs := holdPolls(b, bare.URL, tokens, func() int { return int(held.Load()) })
		bare.Close()
		ours := holdPolls(b, r.internal.URL, tokens, r.dispatcher.WaitingPolls)
		memoryRow(b, "the server, 10,000 polls held", "a bare HTTP server holding as many", ours, theirs)
	}
}

// pollerEnv has the test's program be the other side: it names the server to poll, and tokens come on standard input.
const pollerEnv = "BULLPEN_BENCH_POLLS"

// holdPolls has another process poll with every token, and returns what this one holds then.
func holdPolls(b *testing.B, url string, tokens []string, held func() int) float64 {
	b.Helper()
	before := inUse()
	other := exec.CommandContext(b.Context(), os.Args[0]) //nolint:gosec // ourselves
	other.Env = append(os.Environ(), pollerEnv+"="+url)
	other.Stdin, other.Stderr = strings.NewReader(strings.Join(tokens, "\n")), os.Stderr
	require.NoError(b, other.Start())
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait() // it was killed
	}()
	require.Eventually(b, func() bool { return held() == len(tokens) }, 2*time.Minute, 50*time.Millisecond, "not all polls are held")
	return since(before)
}

// pollForever is the other side, until it is killed.
func pollForever(url string) {
	client := &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{}}
	var polls sync.WaitGroup
	tokens := bufio.NewScanner(os.Stdin)
	for tokens.Scan() {
		token := tokens.Text()
		polls.Go(func() {
			for {
				req, err := http.NewRequest(http.MethodPost, url+runnerapi.PathDispatch, strings.NewReader("{}"))
				if err != nil {
					return
				}
				req.Header.Set("Authorization", "Bearer "+token)
				if resp, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	polls.Wait() // bounded: the benchmark kills this process
}
