package node_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// event waits until the API server has an Event of that reason whose message holds a text.
func (f *fixture) event(kind, name, reason, text string) {
	f.Helper()
	selector := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name, "reason": reason}.String()
	var last []string
	require.Eventually(f, func() bool {
		list, err := f.kube.CoreV1().Events("").List(f.Context(), metav1.ListOptions{FieldSelector: selector})
		last = nil
		for i := range list.Items {
			last = append(last, list.Items[i].Message)
		}
		return err == nil && strings.Contains(strings.Join(last, "\n"), text)
	}, patience, 50*time.Millisecond, "%s of %s %s with %q: %q", reason, kind, name, text, last)
}

// storehouse is a back end with images, on a disk of 100 GiB.
type storehouse struct {
	sandbox.Sandbox
	dir string

	mu     sync.Mutex
	free   int64
	unused int64 // what CollectImages can free
	fails  error
	wants  []int64
}

const gib = int64(1 << 30)

func (s *storehouse) ImagesDir() string { return s.dir }

func (s *storehouse) CollectImages(_ context.Context, want int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wants = append(s.wants, want)
	freed := min(want, s.unused)
	s.unused -= freed
	s.free += freed
	return freed, s.fails
}

func (s *storehouse) space(string) (free, total uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.free), uint64(100 * gib), nil //nolint:gosec // not negative
}

func (s *storehouse) fill(free, unused int64, fails error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free, s.unused, s.fails = free, unused, fails
}

func (s *storehouse) collected() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64{}, s.wants...)
}

// A full disk costs images that nothing uses, then the node's readiness for more pods, and never a pod.
func TestDisk_UnusedImagesGoBeforeTheNodeIsShortAndNoPodEver(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	s := &storehouse{Sandbox: synthetic.New(machine), dir: t.TempDir(), free: 50 * gib}
	f.run(s, func(o *node.Options) {
		o.DiskSpace, o.StatusInterval, o.MinDiskFree = s.space, 100*time.Millisecond, node.DefaultDiskReserve
	})
	pod := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	require.Empty(t, s.collected(), "there is room")

	s.fill(14*gib, 40*gib, nil)
	f.event("Node", f.name, "ImagesRemoved", "freed 11264 MiB of 11264 MiB needed")
	n := f.node(nodeReady)
	require.Equal(t, corev1.ConditionFalse, nodeCondition(n, "DiskPressure").Status)
	require.Equal(t, []int64{11 * gib}, s.collected())

	s.fill(5*gib, 0, errors.New("it is in use"))
	n = f.node(func(n *corev1.Node) bool { return nodeCondition(n, "DiskPressure").Status == corev1.ConditionTrue })
	require.Contains(t, nodeCondition(n, "DiskPressure").Message, "5120 MiB of 102400 MiB are free")
	f.event("Node", f.name, "NodeHasDiskPressure", "5120 MiB")
	f.event("Node", f.name, "ImageGCFailed", "it is in use")
	require.LessOrEqual(t, len(s.collected()), 3, "what has nothing to give is not asked all the time")

	s.fill(11*gib, 0, nil)
	f.never(func() bool { return nodeCondition(f.node(nodeReady), "DiskPressure").Status == corev1.ConditionFalse }, "it would come and go")
	s.fill(50*gib, 0, nil)
	f.node(func(n *corev1.Node) bool { return nodeCondition(n, "DiskPressure").Status == corev1.ConditionFalse })
	f.event("Node", f.name, "NodeHasNoDiskPressure", "DiskPressure is False now")
	same, err := f.kube.CoreV1().Pods(f.ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, same.DeletionTimestamp)
	require.Equal(t, corev1.PodRunning, same.Status.Phase)
}

// With a reserve in bytes the size of the disk does not count, and the node says what it misses.
func TestDisk_AReserveInBytes(t *testing.T) {
	f := newFixture(t)
	s := &storehouse{Sandbox: synthetic.New(synthetic.NewMachine(nil)), dir: t.TempDir(), free: 5 * gib}
	f.run(s, func(o *node.Options) {
		o.DiskSpace, o.StatusInterval, o.MinDiskFree = s.space, 100*time.Millisecond, node.DiskReserve{Bytes: 2 * gib}
	})
	n := f.node(nodeReady)
	require.Equal(t, corev1.ConditionFalse, nodeCondition(n, "DiskPressure").Status, "5 % of it are enough")
	require.Empty(t, s.collected())

	s.fill(gib, 0, nil)
	n = f.node(func(n *corev1.Node) bool { return nodeCondition(n, "DiskPressure").Status == corev1.ConditionTrue })
	require.Contains(t, nodeCondition(n, "DiskPressure").Message, "1024 MiB of 102400 MiB are free")
	require.Contains(t, nodeCondition(n, "DiskPressure").Message, ", 2Gi required")
	require.Eventually(t, func() bool { return len(s.collected()) > 0 }, patience, 10*time.Millisecond, "its images are asked for room by themselves")
	require.Equal(t, 4*gib, s.collected()[0])
}

// No more is wanted than a disk can have.
func TestDisk_ALargeReserveWantsNoMoreThanThereIs(t *testing.T) {
	f := newFixture(t)
	s := &storehouse{Sandbox: synthetic.New(synthetic.NewMachine(nil)), dir: t.TempDir(), free: 70 * gib, unused: 100 * gib}
	f.run(s, func(o *node.Options) {
		o.DiskSpace, o.StatusInterval, o.MinDiskFree = s.space, 100*time.Millisecond, node.DiskReserve{Percent: 50}
	})
	f.event("Node", f.name, "ImagesRemoved", "freed 5120 MiB of 5120 MiB needed")
	require.Equal(t, []int64{5 * gib}, s.collected())
}

// Nor is more to be free than half of a disk, whatever number of bytes is asked for: DiskPressure would never end.
func TestDisk_AReserveThatIsLargerThanTheDisk(t *testing.T) {
	f := newFixture(t)
	s := &storehouse{Sandbox: synthetic.New(synthetic.NewMachine(nil)), dir: t.TempDir(), free: 70 * gib, unused: 100 * gib}
	f.run(s, func(o *node.Options) {
		o.DiskSpace, o.StatusInterval, o.MinDiskFree = s.space, 100*time.Millisecond, node.DiskReserve{Bytes: 200 * gib}
	})
	f.event("Node", f.name, "ImagesRemoved", "freed 5120 MiB of 5120 MiB needed")
	require.Equal(t, []int64{5 * gib}, s.collected())
}

func TestParseDiskReserve(t *testing.T) {
	for text, want := range map[string]node.DiskReserve{
		"10%": {Percent: 10}, "2.5%": {Percent: 2.5}, "50%": {Percent: 50}, "20Gi": {Bytes: 20 * gib}, "1000000": {Bytes: 1e6},
		"10%,2Gi": {Percent: 10, Bytes: 2 * gib}, "2Gi,10%": {Percent: 10, Bytes: 2 * gib},
	} {
		got, err := node.ParseDiskReserve(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		again, err := node.ParseDiskReserve(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "%", "0%", "-1%", "51%", "NaN%", "Inf%", "0", "-1Gi", "much", "10 %", "10%,", "10%,5%", "1Gi,2Gi", "10%,2Gi,3Gi", "20m", "10%,20m"} {
		_, err := node.ParseDiskReserve(text)
		require.ErrorContains(t, err, "20Gi", text)
	}
}

// never looks for a second.
func (f *fixture) never(happens func() bool, why string) {
	f.Helper()
	require.Never(f, happens, time.Second, 200*time.Millisecond, why)
}

// telling is a back end whose pods wait for an image, of which it tells; then it fails.
type telling struct {
	sandbox.Sandbox
	tell func(string, sandbox.News)
	pull chan error
}

func (s *telling) TellNews(tell func(string, sandbox.News)) { s.tell = tell }

func (s *telling) Prepare(ctx context.Context, pod *corev1.Pod) error {
	s.tell(string(pod.UID), sandbox.News{Reason: "Pulling", Message: "pulling image macos:1"})
	select {
	case err := <-s.pull:
		if err != nil {
			return err
		}
		return s.Sandbox.Prepare(ctx, pod)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestStatus_PeopleOnTheHostSeeWhatPodsWaitFor(t *testing.T) {
	f := newFixture(t)
	s := &telling{Sandbox: synthetic.New(synthetic.NewMachine(nil)), pull: make(chan error)}
	_, _, err := node.ReadReport(t.Context(), f.stateDir)
	require.ErrorIs(t, err, node.ErrNoAgent)

	opts := options(f.name, f.stateDir, f.identity(), s)
	agent, err := node.New(opts)
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(agent.Collector()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	t.Cleanup(func() { cancel(); await.Receive(t, done, "the agent stops") })

	pod := f.create(nil, sh("main", ""))
	f.event("Pod", pod.Name, "Pulling", "pulling image macos:1")
	f.await(pod, "waiting for its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting.Message == "pulling image macos:1"
	})
	report := f.report(func(r node.Report) bool { return len(r.Pods) == 1 && len(r.Pods[0].WaitsFor) == 1 })
	require.Contains(t, report.Pods[0].WaitsFor[0], "prepare, since ")
	require.Equal(t, node.ReportContainer{Name: "main", State: "waiting", Detail: "pulling image macos:1"}, report.Pods[0].Containers[0])

	for range 4 {
		s.pull <- errors.New("no such image")
	}
	f.event("Pod", pod.Name, "FailedCreatePodSandBox", "no such image; retrying within ")
	report = f.report(func(r node.Report) bool {
		return strings.Contains(strings.Join(r.Pods[0].WaitsFor, ""), "prepare, again at")
	})
	require.Contains(t, report.Pods[0].WaitsFor[0], "no such image")
	s.pull <- nil
	f.awaitPhase(pod, corev1.PodRunning)
	report = f.report(func(r node.Report) bool {
		return r.Pods[0].Phase == "Running" && r.Pods[0].Containers[0].State == "ready" && len(r.Pods[0].WaitsFor) == 0
	})
	require.True(t, report.Registered)
	require.Empty(t, report.Problem)
	require.False(t, report.LeaseRenewed.IsZero())
	require.Len(t, report.Conditions, 4)
	names := make([]string, len(report.Resources))
	for i, r := range report.Resources {
		names[i] = r.Name
	}
	require.Equal(t, []string{"cpu", "ephemeral-storage", "memory", "pods"}, names)

	families, err := registry.Gather()
	require.NoError(t, err)
	gauges := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 1 && m.GetGauge() != nil {
				gauges[family.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
			for _, label := range m.GetLabel() {
				require.NotContains(t, label.GetValue(), pod.Name, "no label names a pod")
				require.NotContains(t, label.GetValue(), string(pod.UID))
				require.False(t, label.GetName() == "operation" && strings.Contains(label.GetValue(), "/"), label.GetValue())
			}
		}
	}
	for name, want := range map[string]float64{
		"bullpen_node_pods Running": 1, "bullpen_node_pods Terminating": 0, "bullpen_node_condition Ready": 1, "bullpen_node_condition DiskPressure": 0,
		"bullpen_node_capacity pods": 50, "bullpen_node_allocatable cpu": 8,
	} {
		require.Contains(t, gauges, name)
		require.InDelta(t, want, gauges[name], 0, name)
	}

	cancel()
	require.NoError(t, await.Receive(t, done, "the agent stops"))
	done <- nil
	last, running, err := node.ReadReport(t.Context(), f.stateDir)
	require.NoError(t, err)
	require.False(t, running)
	require.Equal(t, f.name, last.Node)
}

// report waits until the agent's report satisfies ok.
func (f *fixture) report(ok func(node.Report) bool) node.Report {
	f.Helper()
	var last node.Report
	require.Eventually(f, func() bool {
		report, running, err := node.ReadReport(f.Context(), f.stateDir)
		last = report
		return err == nil && running && ok(report)
	}, patience, 20*time.Millisecond)
	return last
}
