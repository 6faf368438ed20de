package portforward

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultNamespace is where the chart is installed by default.
const DefaultNamespace = "bullpen-system"

// selector matches the Services of the chart's server, and adminPort is the port of its pods that serves administrators.
const (
	selector  = "app.kubernetes.io/name=bullpen,app.kubernetes.io/component=server"
	adminPort = "admin"
)

// Service is a release's Service for administrators.
type Service struct {
	Namespace, Name string
	Port            int32
	Secure          bool // clients use TLS

	target   intstr.IntOrString
	selector map[string]string
}

// String is namespace/name.
func (s Service) String() string { return s.Namespace + "/" + s.Name }

// Host is the name that a client in the cluster uses, and that a certificate has.
func (s Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

// URL is that of a client in the cluster.
func (s Service) URL() string {
	scheme := "http"
	if s.Secure {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, s.Host(), s.Port)
}

// ServiceAccount is the chart's for administrators, as namespace and name. The chart gives it the name of the Service.
func (s Service) ServiceAccount() (namespace, name string) { return s.Namespace, s.Name }

// servicesOf are those for administrators among Services of the chart, by name. The chart gives all Services of the server the same labels.
func servicesOf(all []corev1.Service) []Service {
	var found []Service
	for _, service := range all {
		for _, port := range service.Spec.Ports {
			if port.TargetPort.StrVal != adminPort || len(service.Spec.Selector) == 0 {
				continue
			}
			found = append(found, Service{
				Namespace: service.Namespace, Name: service.Name, Port: port.Port, Secure: secure(port),
				target: port.TargetPort, selector: service.Spec.Selector,
			})
			break
		}
	}
	slices.SortFunc(found, func(a, b Service) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// secure says whether a Service's port names TLS as Kubernetes' conventions do. The chart's port is plain HTTP.
func secure(port corev1.ServicePort) bool {
	return port.Name == "https" || port.AppProtocol != nil && *port.AppProtocol == "https"
}

// readyPod is the newest pod that is ready: a rollout deletes the others first.
func readyPod(pods []corev1.Pod) (corev1.Pod, bool) {
	var best *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || !ready(pod) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&pod.CreationTimestamp) {
			best = pod
		}
	}
	if best == nil {
		return corev1.Pod{}, false
	}
	return *best, true
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// portOf is the number of a pod's port to which a Service's leads; false if the pod has no port of that name.
func portOf(pod corev1.Pod, target intstr.IntOrString) (int32, bool) {
	if target.Type == intstr.Int {
		return target.IntVal, target.IntVal > 0
	}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == target.StrVal {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}
