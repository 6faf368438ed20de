package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// shownAs is the column STATUS of kubectl get pods. The API server computes it.
func (y *yard) shownAs(pod *corev1.Pod) string {
	y.t.Helper()
	var table metav1.Table
	require.NoError(y.t, y.env.Kube.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(y.t.Context()).Into(&table))
	require.Len(y.t, table.Rows, 1)
	for i, column := range table.ColumnDefinitions {
		if column.Name == "Status" {
			text, ok := table.Rows[0].Cells[i].(string)
			require.True(y.t, ok)
			return text
		}
	}
	y.t.Fatal("there is no column Status")
	return ""
}

// A busy runner must not look like one that has finished: scripts delete those.
func TestBusyRunner_NeverLooksCompletedInKubectl(t *testing.T) {
	y := newYard(t)
	ran := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(started)}}
	with := func(poller, idleSign corev1.ContainerState) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			idle(pod)
			pod.Status.ContainerStatuses[1].State, pod.Status.ContainerStatuses[1].Ready = poller, poller.Running != nil
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: runnerpod.ContainerIdle, Image: "x", State: idleSign, Ready: idleSign.Running != nil,
			})
			if poller.Running == nil {
				containersReady(pod, corev1.ConditionFalse, 0)
			}
		}
	}
	for name, c := range map[string]struct {
		state func(*corev1.Pod)
		want  string
	}{
		"idle":                  {with(running(), running()), "Running"},
		"delivered":             {with(ran, running()), "NotReady"},
		"busy":                  {with(ran, ran), "NotReady"},
		"control-by-readiness":  {working, "Completed"},
		"control-it-has-exited": {func(pod *corev1.Pod) { with(ran, ran)(pod); pod.Status.ContainerStatuses[0].State = ran }, "Completed"},
	} {
		require.Equal(t, c.want, y.shownAs(y.runner(name, c.state)), name)
	}
}
