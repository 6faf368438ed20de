package onebox

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bullpen-ci/bullpen/examples"
)

// This file has what differs when runners are containers on a real kubelet (docs/adr/0060): pure functions. containers_linux.go runs the node.

// Images that are made of this machine's programs. No registry has them.
const (
	localRegistry = "bullpen.local"
	agentImage    = localRegistry + "/bullpen:up"
	// RunnerImage has the development runner, a shell and the usual tools.
	RunnerImage = localRegistry + "/runner:up"
	// PostgresImage is a database for services of jobs.
	PostgresImage = localRegistry + "/postgres:up"
	// GitHubRunnerImage is GitHub's own, for a real App.
	GitHubRunnerImage = "ghcr.io/actions/actions-runner:latest"
)

const (
	// dispatchName is the Service that runners ask for work, as in the chart, and dispatchURL its URL for them.
	dispatchName = "bullpen-dispatch"
	dispatchURL  = "http://" + dispatchName + "." + SystemNamespace + ".svc.cluster.local"
	// relayName is the pod behind the Service. Network policies know pods, and the server is a process of this machine.
	relayName = "bullpen-server"
	// standInURL is the stand-in for GitHub as runners reach it. Policies let them reach public addresses, and this one is not in use on the internet.
	standInURL = "http://11.0.0.2"
)

func standInAddress() netip.Addr {
	return netip.MustParseAddr(strings.TrimPrefix(standInURL, "http://"))
}

// The programs of a node that a demonstration restarts.
const (
	partKubelet    = "kubelet"
	partContainerd = "containerd"
)

// relayObjects are the Service that runners reach the server by, and a pod with the labels of the chart's server. It passes connections on to
// gateway, where this machine's server is listened for. The chart's network policies apply to it as to any server pod.
func relayObjects(gateway string) ([]*unstructured.Unstructured, error) {
	labels := serverPod().Labels
	objects := []runtime.Object{
		&corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: dispatchName, Namespace: SystemNamespace},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(dispatchPort), Protocol: corev1.ProtocolTCP}}},
		},
		&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: relayName, Namespace: SystemNamespace, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: relaySpec(gateway)},
			},
		},
	}
	all := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("describing the way to the server: %w", err)
		}
		delete(content, "status")
		all[i] = &unstructured.Unstructured{Object: content}
	}
	return all, nil
}

func relaySpec(gateway string) corev1.PodSpec {
	no, yes, user := false, true, int64(65532)
	return corev1.PodSpec{
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		PriorityClassName:            "system-cluster-critical",
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "relay", Image: agentImage, ImagePullPolicy: corev1.PullNever,
			Command: []string{"/usr/local/bin/bullpen", "dev", "relay"},
			Args:    []string{fmt.Sprintf("--listen=:%d", dispatchPort), "--to=" + net.JoinHostPort(gateway, fmt.Sprint(dispatchPort))},
			Ports:   []corev1.ContainerPort{{Name: "dispatch", ContainerPort: dispatchPort}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(dispatchPort)}}, PeriodSeconds: 1,
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// ContainerPools is the default pool of runners in containers. With githubRunner they run GitHub's own image, else the one that is made of this
// machine's programs. runners, when positive, is their number.
func ContainerPools(runners int, githubRunner bool) ([]*unstructured.Unstructured, error) {
	pools, err := decodePools("the default pool", examples.ContainerPool())
	if err != nil {
		return nil, err
	}
	if githubRunner {
		if err := unstructured.SetNestedField(pools[0].Object, GitHubRunnerImage, "spec", "template", "image"); err != nil {
			return nil, fmt.Errorf("changing the default pool: %w", err)
		}
		unstructured.RemoveNestedField(pools[0].Object, "spec", "template", "command")
	}
	if runners > 0 {
		err = unstructured.SetNestedField(pools[0].Object, int64(runners), "spec", "replicas")
	}
	return pools, err
}

// Requests of a runner pod of the default pool beside its runner: those of the containers poller, idle and courier; and of what runs on a node beside
// runners: DNS and the way to the server.
const (
	helpersMilliCPU = 30
	nodeMilliCPU    = 120
)

// fitting is how many runners of the pool a node with so many CPUs has room for.
func fitting(pool *unstructured.Unstructured, cpus int) int {
	text, _, _ := unstructured.NestedFieldNoCopy(pool.Object, "spec", "resources", "cpu")
	size, err := resource.ParseQuantity(fmt.Sprint(text))
	if err != nil || size.MilliValue() <= 0 {
		return 1
	}
	return max(1, (cpus*1000-nodeMilliCPU)/(int(size.MilliValue())+helpersMilliCPU))
}

// imageProblems are sentences about images that the node cannot get, of what the pods' containers wait for, one for each image.
func imageProblems(pods []corev1.Pod) map[string]string {
	problems := map[string]string{}
	for i := range pods {
		status := &pods[i].Status
		for _, container := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
			waiting := container.State.Waiting
			if waiting == nil {
				continue
			}
			switch waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError":
			default:
				continue
			}
			if problems[container.Image] == "" || waiting.Reason == "ErrImagePull" { // it has the cause
				problems[container.Image] = fmt.Sprintf("image %s of pod %s cannot be pulled: %s. Load it with `bullpen images load FILE`, or correct the pool's image",
					container.Image, pods[i].Name, imageCause(waiting))
			}
		}
	}
	return problems
}

// imageCause is the runtime's error as one line.
func imageCause(waiting *corev1.ContainerStateWaiting) string {
	text := strings.Join(strings.Fields(waiting.Message), " ")
	if strings.Contains(text, "no match for platform") {
		return "it is not for this machine's architecture"
	}
	if text == "" {
		return waiting.Reason
	}
	const most = 300
	return cut(text, most)
}
