package onebox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// NET-1: the chart's own policy leads idle runners to the pod that stands for the server, at the port where it listens.
func TestRelay_NET1_IsWhatTheChartsPolicyAllows(t *testing.T) {
	objects, err := relayObjects("10.112.0.1")
	require.NoError(t, err)
	require.Len(t, objects, 2)
	pod, _, err := unstructured.NestedStringMap(objects[1].Object, "spec", "template", "metadata", "labels")
	require.NoError(t, err)
	selected, _, err := unstructured.NestedStringMap(objects[0].Object, "spec", "selector")
	require.NoError(t, err)
	require.Equal(t, pod, selected)

	policies := 0
	files, err := charts.Rendered()
	require.NoError(t, err)
	for _, file := range files {
		found, err := decodeAll(file.Content)
		require.NoError(t, err)
		for _, object := range found {
			if object.GetKind() != "NetworkPolicy" || object.GetName() != "runners-dispatch-egress" {
				continue
			}
			policies++
			var policy networkingv1.NetworkPolicy
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy))
			rule := policy.Spec.Egress[0]
			selector, err := metav1.LabelSelectorAsSelector(rule.To[0].PodSelector)
			require.NoError(t, err)
			require.True(t, selector.Matches(labels.Set(pod)))
			require.Equal(t, objects[0].GetNamespace(), rule.To[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
			require.EqualValues(t, dispatchPort, rule.Ports[0].Port.IntValue())
		}
	}
	require.Equal(t, 1, policies)
	require.False(t, standInAddress().IsPrivate(), "policies let runners reach public addresses only")
}

func TestContainerPools_RunTheImageThatFits(t *testing.T) {
	own, err := ContainerPools(3, false)
	require.NoError(t, err)
	image, _, _ := unstructured.NestedString(own[0].Object, "spec", "template", "image")
	require.Equal(t, RunnerImage, image)
	replicas, _, _ := unstructured.NestedInt64(own[0].Object, "spec", "replicas")
	require.EqualValues(t, 3, replicas)
	require.NoError(t, checkPools("the default pool", own))

	github, err := ContainerPools(0, true)
	require.NoError(t, err)
	image, _, _ = unstructured.NestedString(github[0].Object, "spec", "template", "image")
	require.Equal(t, GitHubRunnerImage, image)
	_, found, _ := unstructured.NestedFieldNoCopy(github[0].Object, "spec", "template", "command")
	require.False(t, found, "its own command runs GitHub's runner")
	require.NoError(t, checkPools("the default pool", github))
}

func TestFitting_LeavesRoomForTheNode(t *testing.T) {
	pools, err := ContainerPools(0, false)
	require.NoError(t, err)
	require.Equal(t, 3, fitting(pools[0], 1))
	require.Equal(t, 6, fitting(pools[0], 2))
	require.Equal(t, 13, fitting(pools[0], 4))
	helpers := int64(0)
	for _, container := range defaultPod(t, pools[0]).Spec.Containers {
		if container.Name != runnerpod.ContainerRunner {
			helpers += container.Resources.Requests.Cpu().MilliValue()
		}
	}
	require.EqualValues(t, helpersMilliCPU, helpers)
	require.NoError(t, unstructured.SetNestedField(pools[0].Object, int64(8), "spec", "resources", "cpu"))
	require.Equal(t, 1, fitting(pools[0], 4), "one, which stays pending, and its pool says why")
	require.Equal(t, 1, fitting(&unstructured.Unstructured{Object: map[string]any{}}, 4))
}

// defaultPod is a pod of a pool as the controller makes it.
func defaultPod(t *testing.T, pool *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	typed := &v1alpha1.RunnerPool{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(pool.Object, typed))
	pod, _, err := runnerpod.Build(typed, runnerpod.Options{DispatchURL: dispatchURL, AgentImage: agentImage, JobContainersKey: "key"}, "abcd1234")
	require.NoError(t, err)
	return pod
}

func waitingPod(name, image, reason, message string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	return pod
}

func TestImageProblems_SayWhatToDo(t *testing.T) {
	problems := imageProblems([]corev1.Pod{
		waitingPod("a", "x:1", "ImagePullBackOff", "Back-off pulling image"),
		waitingPod("b", "x:1", "ErrImagePull", "failed to resolve\n  reference"),
		waitingPod("c", "x:1", "ImagePullBackOff", "Back-off pulling image"),
		waitingPod("d", "y:1", "ErrImagePull", "no match for platform in manifest: not found"),
		waitingPod("e", "z:1", "PodInitializing", ""),
		{},
	})
	require.Equal(t, map[string]string{
		"x:1": "image x:1 of pod b cannot be pulled: failed to resolve reference. Load it with `bullpen images load FILE`, or correct the pool's image",
		"y:1": "image y:1 of pod d cannot be pulled: it is not for this machine's architecture. Load it with `bullpen images load FILE`, or correct the pool's image",
	}, problems)
}

func TestPlan_ContainersReachServerAndStandInByAddressesOfTheCluster(t *testing.T) {
	s := testSetting()
	s.containers = true
	require.Contains(t, s.controllerCommand().Args, "--dispatch-url="+dispatchURL)
	require.Contains(t, s.controllerCommand().Args, "--agent-image="+agentImage)
	require.NotContains(t, strings.Join(s.controllerCommand().Args, " "), "--agent-command")
	require.Contains(t, s.controllerCommand().Args, "--job-containers")
	require.Contains(t, s.controllerCommand().Args, "--registry-mirror=*=http://"+s.addresses.Images)
	require.Contains(t, s.standInCommand().Args, "--url="+standInURL)

	require.Equal(t, []string{partServer, partController, partKubelet, partContainerd}, planRestarts(DemoContainerJobs, true).parts())
}

func TestLayout_CheckKindRefusesTheOtherKind(t *testing.T) {
	for _, containers := range []bool{true, false} {
		l := Layout{Dir: t.TempDir()}
		require.NoError(t, l.checkKind(containers), "a fresh directory")
		require.NoError(t, l.prepare(false, containers))
		require.NoError(t, l.checkKind(containers))
		err := l.checkKind(!containers)
		require.ErrorAs(t, err, new(*StaleFolderError))
		require.ErrorContains(t, err, "bullpen down --delete")
	}
}

func TestCountLeft_CountsRunnersThatHaveNotExited(t *testing.T) {
	pooled := func(pod corev1.Pod) corev1.Pod {
		pod.Labels = map[string]string{runnerpod.LabelPool: "default"}
		return pod
	}
	exited := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	left, busy := countLeft([]corev1.Pod{pooled(exited), pooled(corev1.Pod{}), pooled(busyPod()), {}})
	require.Equal(t, 2, left)
	require.Equal(t, 1, busy)
}

func busyPod() corev1.Pod {
	pod := corev1.Pod{}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "runner", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "poller", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	return pod
}

func TestService_UnitRunsTheCommandAndLetsJobsFinish(t *testing.T) {
	text, err := Service{
		Binary: "/opt/my bullpen/bullpen", Args: []string{"up", "--drain", `--state-dir=/a"b%c$d\e`}, Containers: true,
		Environ: []string{"PATH=/bin", "GITHUB_TOKEN=secret", "BULLPEN_DATABASE_URL=postgres://u:p@h/d", "BULLPEN_NODE_ASSETS=/n"},
	}.unit()
	require.NoError(t, err)
	require.Contains(t, text, `ExecStart="/opt/my bullpen/bullpen" "up" "--drain" "--state-dir=/a\"b%%c$$d\\e"`+"\n")
	require.Contains(t, text, "Environment=\"PATH=/bin\"\nEnvironment=\"BULLPEN_NODE_ASSETS=/n\"\n")
	require.NotContains(t, text, "secret")
	require.NotContains(t, text, "postgres://")
	require.Contains(t, text, "KillMode=mixed\n")
	require.Contains(t, text, "TimeoutStopSec=22290\n")
	require.Contains(t, text, "Delegate=yes\n")

	_, err = Service{Binary: "/b", Args: []string{"a\nExecStartPre=/bin/false"}}.unit()
	require.ErrorContains(t, err, "line break")
}

func TestJudge_WhatIsLeftOfTheNodeIsAProblem(t *testing.T) {
	verdict := Judge(Evidence{Expected: demoExpected, Containers: true, Remains: []string{"cgroup /sys/fs/cgroup/x"}})
	require.Contains(t, verdict.Problems, "left of the node: cgroup /sys/fs/cgroup/x")
	var text strings.Builder
	verdict.Print(&text, nil)
	require.NotContains(t, text.String(), "0 mounts")
	verdict = Judge(Evidence{Expected: demoExpected, Containers: true})
	require.True(t, verdict.Passed())
	verdict.Print(&text, nil)
	require.Contains(t, text.String(), "0 mounts, cgroups, links or files left")
}
