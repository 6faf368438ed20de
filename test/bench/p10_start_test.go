package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

const p10Rounds = 3

const p10Workflow = `
name: first
on: workflow_dispatch
jobs:
  first: {runs-on: bullpen, steps: [{run: "true"}]}
`

// BenchmarkP10 measures from the start of `bullpen up`, on a machine that has everything built, until its first job has
// finished. It is compared with the development control plane alone, from its start until its scheduler has placed a first
// pod. They take turns.
func BenchmarkP10(b *testing.B) {
	bullpen := filepath.Join(b.TempDir(), "bullpen")
	require.NoError(b, gobuild.Product(bullpen))
	assets := kit.AssetsOrFail(b)
	file := filepath.Join(b.TempDir(), "first.yaml")
	require.NoError(b, os.WriteFile(file, []byte(p10Workflow), 0o600))
	for b.Loop() {
		var up, bare []time.Duration
		for range p10Rounds {
			bare = append(bare, firstPod(b))
			up = append(up, firstJob(b, bullpen, assets, file))
		}
		ratio, low, high := ratios(up, bare)
		b.Run("up", func(b *testing.B) { // a benchmark that has others in it reports nothing itself
			for b.Loop() {
				b.ReportMetric(ratio, "ratio")
			}
		})
		report(row{
			id: "P10", what: "cold start of bullpen up to the first job finished", measured: seconds(stats.Median(up)), limit: "the control plane alone, to its first placed pod: " + seconds(stats.Median(bare)),
			result: fmt.Sprintf("%.2f×", ratio), value: ratio, samples: p10Rounds, spread: fmt.Sprintf("%.2f–%.2f×", low, high), budget: "≤ 2.5×", kept: ratio <= 2.5,
		})
	}
}

// firstPod starts a control plane with nothing of the product in it, and stops it again.
func firstPod(b *testing.B) time.Duration {
	b.Helper()
	var took time.Duration
	b.Run("control plane", func(b *testing.B) { // which it lives for
		start := time.Now()
		env := kit.Bare(b)
		env.RegisterNode(b, "first", nil)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: metav1.NamespaceDefault},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		require.Eventually(b, func() bool { // the namespace's ServiceAccount comes a moment later
			_, err := env.Kube.CoreV1().Pods(pod.Namespace).Create(b.Context(), pod, metav1.CreateOptions{})
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		require.Eventually(b, func() bool {
			placed, err := env.Kube.CoreV1().Pods(pod.Namespace).Get(b.Context(), pod.Name, metav1.GetOptions{})
			return err == nil && placed.Spec.NodeName != ""
		}, time.Minute, 10*time.Millisecond)
		took = time.Since(start)
	})
	return took
}

// firstJob starts everything in a new directory, and takes it down again.
func firstJob(b *testing.B, bullpen, assets, workflow string) time.Duration {
	b.Helper()
	state, err := os.MkdirTemp("", "bullpen-bench-up-")
	require.NoError(b, err)
	defer func() { _ = os.RemoveAll(state) }()
	require.NoError(b, os.Chmod(state, 0o711)) //nolint:gosec // Postgres runs as another user when we are root
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	up := exec.CommandContext(ctx, bullpen, "up", "--json", "--state-dir", filepath.Join(state, "up"), "--assets", assets, "--workflow", workflow)
	up.Cancel = func() error { return up.Process.Signal(syscall.SIGTERM) }
	up.WaitDelay = time.Minute
	out, err := up.StdoutPipe()
	require.NoError(b, err)
	var complaints bytes.Buffer
	up.Stderr = &complaints
	start := time.Now()
	require.NoError(b, up.Start())
	took := time.Duration(0)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var event struct{ Job *struct{ Conclusion string } }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Job != nil && event.Job.Conclusion != "" && took == 0 {
			require.Equal(b, "success", event.Job.Conclusion, lines.Text())
			took = time.Since(start)
			require.NoError(b, up.Process.Signal(syscall.SIGTERM))
		}
	}
	_ = up.Wait() // it was stopped; // bounded: its context has a deadline
	require.NotZero(b, took, "no job has ended: %s", &complaints)
	return took
}
