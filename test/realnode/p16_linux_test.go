package realnode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/bench/results"
	"github.com/bullpen-ci/bullpen/test/kit"
)

var resultsFile = flag.String("results", "", "file that the rows of benchmarks are written to as JSON")

// p16Jobs is how many jobs run on each side, one after the other. Each takes an idle runner, which is replaced.
const p16Jobs = 20

// The budgets of P16, as factors of what the process sandbox takes.
const (
	p16PodBudget = 10
	p16JobBudget = 2
)

const p16Workflow = `
name: first
on: workflow_dispatch
jobs:
  first: {runs-on: bullpen, steps: [{run: "true"}]}
`

// BenchmarkP16 measures how long a runner's pod takes from its creation until it is idle, and a job from being queued until an idle runner has it: with
// the chart on a node with a kubelet and containerd, and with `bullpen up`, whose node agent runs plain processes. One side runs at a time.
func BenchmarkP16(b *testing.B) {
	for b.Loop() {
		var kubelet, processes starts
		w := newWorld(b)
		w.giveCPU()
		w.install()
		kubelet = (&p16Side{kube: w.kube, github: w.github.Admin}).measure(b)
		w.uninstall()
		processes = upSide(b, filepath.Join(w.dir, "bin", "bullpen"))
		rows := []results.Row{
			p16Row("a runner's pod on a kubelet, from its creation until it is idle, p50", kubelet.pods, processes.pods, p16PodBudget),
			p16Row("a job for an idle runner on a kubelet, from queued to started, p50", kubelet.jobs, processes.jobs, p16JobBudget),
		}
		for _, row := range rows {
			b.Logf("%s: %s, against %s: %s (budget %s)", row.What, row.Measured, row.Limit, row.Result, row.Budget)
		}
		b.ReportMetric(rows[0].Value, "pod-ratio")
		b.ReportMetric(rows[1].Value, "job-ratio")
		require.NoError(b, results.Merge(*resultsFile, results.Run{
			At: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Rows: rows,
		}))
	}
}

// giveCPU makes the pool's runners fewer, with as much CPU as the node has for three: with the 50m of the other tests a job's start would wait for its
// pod's share of CPU, which the process sandbox does not limit.
func (w *world) giveCPU() {
	file := filepath.Join(w.dir, "work", "values.yaml")
	values, err := os.ReadFile(file)
	require.NoError(w, err)
	more := strings.NewReplacer("replicas: 6", "replicas: 3", "resources: {cpu: 50m, memory: 256Mi}", "resources: {cpu: 500m, memory: 256Mi}").Replace(string(values))
	require.NotEqual(w, string(values), more)
	require.NoError(w, os.WriteFile(file, []byte(more), 0o600))
}

func p16Row(what string, of, to []time.Duration, budget float64) results.Row {
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	middle, limit := stats.Median(of), stats.Median(to)
	ratio := float64(middle) / float64(limit)
	return results.Row{
		ID: "P16", What: what, Measured: ms(middle), Limit: "process sandbox: " + ms(limit), Result: fmt.Sprintf("%.1f×", ratio), Value: ratio, Samples: len(of),
		Spread: ms(stats.Quantile(slices.Sorted(slices.Values(of)), .25)) + "–" + ms(stats.Quantile(slices.Sorted(slices.Values(of)), .75)),
		Budget: fmt.Sprintf("≤ %.0f×", budget), Kept: ratio <= budget,
	}
}

// starts are what one side took.
type starts struct{ pods, jobs []time.Duration }

// p16Side is a fleet that jobs are submitted to, and that nothing else uses.
type p16Side struct {
	kube   kubernetes.Interface
	github *standin.AdminClient

	mu      sync.Mutex
	created map[types.UID]time.Time
	idle    map[types.UID]bool
	took    []time.Duration
}

func (s *p16Side) measure(b *testing.B) starts {
	s.created, s.idle = map[types.UID]time.Time{}, map[types.UID]bool{}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(s.kube, 0, informers.WithNamespace(runnersNamespace))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { s.see(object, !initial) },
		UpdateFunc: func(_, object any) { s.see(object, false) },
		DeleteFunc: func(object any) { s.gone(object) },
	})
	require.NoError(b, err)
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()
	var all starts
	for range p16Jobs {
		require.Eventually(b, func() bool { return s.idleRunners() > 0 }, patience, 10*time.Millisecond, "an idle runner")
		runs, err := s.github.Submit(ctx, standin.Submission{FileName: "first.yaml", Content: p16Workflow, Repo: "acme/app"})
		require.NoError(b, err)
		run, err := s.github.WaitRun(ctx, runs[0].ID)
		require.NoError(b, err)
		require.Equal(b, "success", run.Conclusion)
		jobs, err := s.github.Jobs(ctx, run.ID, "")
		require.NoError(b, err)
		all.jobs = append(all.jobs, jobs[0].StartedAt.Sub(*jobs[0].QueuedAt))
	}
	require.Eventually(b, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.took) >= p16Jobs/2 }, patience, interval, "pods that were replaced are idle")
	s.mu.Lock()
	defer s.mu.Unlock()
	all.pods = append(all.pods, s.took...)
	return all
}

// see notes a pod's creation, if it was seen, and the moment in which it is idle for the first time.
func (s *p16Side) see(object any, created bool) {
	pod, is := object.(*corev1.Pod)
	if !is || pod.Labels[runnerpod.LabelRunner] != "true" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if created {
		s.created[pod.UID] = now
	}
	was := s.idle[pod.UID]
	s.idle[pod.UID] = isIdle(pod)
	if began, seen := s.created[pod.UID]; seen && !was && s.idle[pod.UID] {
		s.took = append(s.took, now.Sub(began))
		delete(s.created, pod.UID)
	}
}

func (s *p16Side) gone(object any) {
	if last, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = last.Obj
	}
	if pod, is := object.(*corev1.Pod); is {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.idle, pod.UID)
	}
}

func (s *p16Side) idleRunners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, idle := range s.idle {
		if idle {
			count++
		}
	}
	return count
}

// upSide measures a `bullpen up`, and takes it down again.
func upSide(b *testing.B, bullpen string) starts {
	state, err := os.MkdirTemp("", "bullpen-bench-up-")
	require.NoError(b, err)
	defer func() { _ = os.RemoveAll(state) }()
	require.NoError(b, os.Chmod(state, 0o711)) //nolint:gosec // Postgres runs as another user when we are root
	dir := filepath.Join(state, "up")
	require.NoError(b, compile(b.Context(), filepath.Join(filepath.Dir(bullpen), "bullpen-agent"), ".", "-ldflags=-X main.version=development", "./cmd/bullpen-agent"))
	ctx, cancel := context.WithTimeout(b.Context(), 2*patience)
	defer cancel()
	up := exec.CommandContext(ctx, bullpen, "up", "--json", "--state-dir", dir, "--assets", kit.AssetsOrFail(b), "--runners", "3")
	up.Cancel = func() error { return up.Process.Signal(syscall.SIGTERM) }
	up.WaitDelay = time.Minute
	var said bytes.Buffer
	up.Stderr = &said
	out, err := up.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, up.Start())
	var all starts
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Event string
			Where struct{ GitHub, Kubeconfig string }
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Event != "ready" || all.jobs != nil {
			continue
		}
		token, err := os.ReadFile(filepath.Join(dir, "secrets", "admin-token"))
		require.NoError(b, err)
		config, err := clientcmd.BuildConfigFromFlags("", event.Where.Kubeconfig)
		require.NoError(b, err)
		kube, err := kubernetes.NewForConfig(config)
		require.NoError(b, err)
		all = (&p16Side{kube: kube, github: &standin.AdminClient{URL: event.Where.GitHub, Token: strings.TrimSpace(string(token))}}).measure(b)
		require.NoError(b, up.Process.Signal(syscall.SIGTERM))
	}
	_ = up.Wait() // it was stopped; // bounded: its context has a deadline
	require.NotNil(b, all.jobs, "it was never ready: %s", &said)
	return all
}
