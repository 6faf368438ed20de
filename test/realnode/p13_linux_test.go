package realnode

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/test/bench/results"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	// p13Containers is how many start on each side, one after the other.
	p13Containers = 15
	// p13Pods is how many pods ask for three containers each at the same time, and p13Lead when they do, after their creation.
	p13Pods = 20
	p13Lead = 90 * time.Second
)

// The budgets of P13.
const (
	p13Budget = 500 * time.Millisecond
	p13Ratio  = 0.3
)

// BenchmarkP13Start measures how long a job waits for a container whose image the node has, until a process has run in it: as an ephemeral container
// of its runner's pod, requested as the container hook does, and as a pod of its own, as hooks of other fleets make one.
func BenchmarkP13Start(b *testing.B) {
	for b.Loop() {
		requireMachine(b)
		ctx, cancel := context.WithTimeout(b.Context(), 6*patience)
		j := newJobNode(ctx, b)
		all, patched := j.steps(ctx)
		pods := j.podsOfOne(ctx)
		together := j.atOnce(ctx)
		rows := []results.Row{p13Row("a job's container, from its request until a process has run, image present, p50", all, pods)}
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		half, most := stats.Median(patched), stats.Median(together)
		rows = append(rows,
			results.Row{
				ID: "P13", What: "the part of it after the controller's response has arrived, p50", Measured: ms(half), Limit: "budget", Result: ms(half), Value: half.Seconds(),
				Samples: len(patched), Budget: "≤ " + ms(p13Budget), Kept: half <= p13Budget,
			},
			results.Row{
				ID: "P13", What: fmt.Sprintf("%d pods that ask for three containers each at once, until all have run a process, p50 of the pods", p13Pods), Measured: ms(most),
				Limit: "none: " + ms(slices.Max(together)) + " at most", Result: ms(most), Value: most.Seconds(), Samples: len(together), Budget: "all start", Kept: true,
			})
		for _, row := range rows {
			b.Logf("%s: %s, against %s: %s (budget %s)", row.What, row.Measured, row.Limit, row.Result, row.Budget)
		}
		b.ReportMetric(rows[0].Value, "start-ratio")
		require.NoError(b, results.Merge(*resultsFile, results.Run{
			At: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Rows: rows,
		}))
		cancel()
	}
}

func p13Row(what string, of, to []time.Duration) results.Row {
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	middle, limit := stats.Median(of), stats.Median(to)
	ratio := float64(middle) / float64(limit)
	return results.Row{
		ID: "P13", What: what, Measured: ms(middle), Limit: "a pod of one container: " + ms(limit), Result: fmt.Sprintf("%.2f×", ratio), Value: ratio, Samples: len(of),
		Spread: ms(stats.Quantile(slices.Sorted(slices.Values(of)), .25)) + "–" + ms(stats.Quantile(slices.Sorted(slices.Values(of)), .75)),
		Budget: fmt.Sprintf("≤ %s and ≤ %.1f×", ms(p13Budget), p13Ratio), Kept: middle <= p13Budget && ratio <= p13Ratio,
	}
}

// steps has pods ask for two containers, one after the other: the first begins with the pod, as a job container does.
func (j *jobNode) steps(ctx context.Context) (all, afterResponse []time.Duration) {
	for i := range p13Containers {
		pod := j.runner(ctx, fmt.Sprintf("steps-%d", i), "500m", "/asker", "steps", "2")
		j.running(ctx, pod)
		lines := j.follow(ctx, pod)
		for range 2 {
			waited, ran := j.asked(lines)
			j.Logf("response %s, container %s", waited, ran)
			all, afterResponse = append(all, waited+ran), append(afterResponse, ran)
		}
		j.remove(ctx, pod.Name)
	}
	return all, afterResponse
}

// asked reads what asker prints for one request: when the response came, and when its containers had run a process after that.
func (j *jobNode) asked(lines <-chan said) (waited, ran time.Duration) {
	for {
		switch l := await.ReceiveWithin(j, patience, lines, "a line of asker"); l.What {
		case "begin":
		case "response":
			require.Empty(j, l.Error+l.Response.Refusal)
			waited = time.Duration(l.Seconds * float64(time.Second))
		case "ran":
			return waited, time.Duration(l.Seconds * float64(time.Second))
		default:
			require.Fail(j, "asker has failed", "%+v", l)
		}
	}
}

// podsOfOne makes pods of one container, and runs a process in each by the API server.
func (j *jobNode) podsOfOne(ctx context.Context) (took []time.Duration) {
	pods := j.kube.CoreV1().Pods(j.namespace)
	for i := range p13Containers {
		name := fmt.Sprintf("alone-%d", i)
		watch, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		require.NoError(j, err)
		begun := time.Now()
		_, err = pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Containers:                    []corev1.Container{{Name: "job", Image: askerRef, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/asker", "wait"}}},
				RestartPolicy:                 corev1.RestartPolicyNever,
				AutomountServiceAccountToken:  ptr.To(false),
				TerminationGracePeriodSeconds: ptr.To[int64](0),
			},
		}, metav1.CreateOptions{})
		require.NoError(j, err)
		for running := false; !running; {
			event := await.ReceiveWithin(j, patience, watch.ResultChan(), "the pod runs")
			pod, is := event.Object.(*corev1.Pod)
			running = is && pod.Status.Phase == corev1.PodRunning
		}
		watch.Stop()
		j.exec(ctx, name)
		took = append(took, time.Since(begun))
		j.remove(ctx, name)
	}
	return took
}

// exec runs a process in a pod of one container.
func (j *jobNode) exec(ctx context.Context, pod string) {
	request := j.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(j.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"/asker", "nothing"}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(j.admin, http.MethodGet, request.URL().String())
	require.NoError(j, err)
	var output bytes.Buffer
	require.NoError(j, executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &output}), output.String())
}

// atOnce has many pods ask at the same time, and returns how long each waited for all of its containers.
func (j *jobNode) atOnce(ctx context.Context) (took []time.Duration) {
	at := time.Now().Add(p13Lead)
	var pods []*corev1.Pod
	for i := range p13Pods {
		pods = append(pods, j.runner(ctx, fmt.Sprintf("many%d", i), "50m", "/asker", "at", strconv.FormatInt(at.Unix(), 10)))
	}
	var all []<-chan said
	for _, pod := range pods {
		j.running(ctx, pod)
		all = append(all, j.follow(ctx, pod))
	}
	require.Less(j, time.Now(), at, "all pods run before they ask")
	for _, lines := range all {
		waited, ran := j.asked(lines)
		took = append(took, waited+ran)
	}
	for _, pod := range pods {
		j.remove(ctx, pod.Name)
	}
	return took
}

func (j *jobNode) remove(ctx context.Context, pod string) {
	require.NoError(j, j.kube.CoreV1().Pods(j.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}
