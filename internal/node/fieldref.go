package node

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// machine is what a pod may ask about the node it runs on.
type machine struct {
	HostIP      string
	PodIP       string
	Allocatable corev1.ResourceList
	APIService  netip.AddrPort
}

// fieldValue evaluates a fieldRef. The API server has checked the path; what it allows and this does not is an error.
func fieldValue(pod *corev1.Pod, m machine, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return m.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return m.HostIP, nil
	}
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("the field %s is not supported", path)
}

// subscript reads KEY out of of['KEY'].
func subscript(path, of string) (string, bool) {
	key, ok := strings.CutPrefix(path, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(key, "']")
}

// formatMap writes a map as the downward API does: key="value" lines, sorted.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, k+"="+strconv.Quote(v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// resourceValue evaluates a resourceFieldRef of a container. A limit that is not set is what the node has.
func resourceValue(c *corev1.Container, m machine, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok {
		return "", fmt.Errorf("the resource %s is not supported", ref.Resource)
	}
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = c.Resources.Limits
	case "requests":
		list = c.Resources.Requests
	default:
		return "", fmt.Errorf("the resource %s is not supported", ref.Resource)
	}
	q, set := list[corev1.ResourceName(name)]
	if !set && kind == "limits" {
		q = m.Allocatable[corev1.ResourceName(name)]
	}
	return strconv.FormatInt(inUnits(q, ref.Divisor, name == string(corev1.ResourceCPU)), 10), nil
}

// inUnits divides and rounds up; no divisor means 1.
func inUnits(q, divisor resource.Quantity, milli bool) int64 {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if milli {
		return int64(math.Ceil(float64(q.MilliValue()) / float64(divisor.MilliValue())))
	}
	return int64(math.Ceil(float64(q.Value()) / float64(divisor.Value())))
}
