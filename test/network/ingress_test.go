package network

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// The addresses of the neighbourhood, and of what is outside the cluster.
const (
	serverAt, controllerAt                            = "10.0.1.1", "10.0.1.2"
	idleAt, busyAt, registeredAt, hookAt              = "10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.4"
	testAt, besideAt, prometheusAt, ingressAt, shopAt = "10.0.3.1", "10.0.3.2", "10.0.3.3", "10.0.3.4", "10.0.3.5"
	macAt, internetAt                                 = "10.9.8.7", "140.82.112.3"
)

var everyone = []string{
	controllerAt, idleAt, busyAt, registeredAt, hookAt, testAt, besideAt, prometheusAt, ingressAt, shopAt, macAt, internetAt,
}

// neighbourhood is the chart's pods among those of other namespaces, with the chart's policies.
func neighbourhood(t *testing.T, values map[string]any) *netpolicy.Evaluator {
	t.Helper()
	var policies []networkingv1.NetworkPolicy
	for _, object := range render(t, system, values, "templates/networkpolicy.yaml", "templates/ingresspolicy.yaml") {
		policies = append(policies, policyOf(t, object))
	}
	pod := func(namespace, ip string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "at-" + ip, Labels: labels}, Status: corev1.PodStatus{PodIP: ip}}
	}
	runner := func(more map[string]string) map[string]string {
		more[runnerpod.LabelRunner] = "true"
		return more
	}
	test := map[string]string{"app.kubernetes.io/name": "bullpen", "app.kubernetes.io/instance": "bullpen", "app.kubernetes.io/component": "test"}
	pods := []corev1.Pod{
		pod(system, serverAt, labelsOf(t, "templates/server/deployment.yaml")), pod(system, controllerAt, labelsOf(t, "templates/controller/deployment.yaml")),
		pod(runners, idleAt, runner(map[string]string{runnerpod.LabelPool: "small"})),
		pod(runners, busyAt, runner(map[string]string{runnerpod.LabelPool: "small", runnerpod.LabelOwner: "acme"})),
		pod(runners, registeredAt, runner(map[string]string{runnerpod.LabelSelfRegistering: "true"})),
		pod(runners, hookAt, map[string]string{runnerpod.LabelHookPod: "small-abcd1234"}),
		pod(system, testAt, test), pod(system, besideAt, map[string]string{"app": "postgres"}),
		pod("monitoring", prometheusAt, map[string]string{"app.kubernetes.io/name": "prometheus"}),
		pod("ingress-nginx", ingressAt, map[string]string{"app.kubernetes.io/name": "ingress-nginx"}), pod("shop", shopAt, nil),
	}
	var spaces []corev1.Namespace
	for _, name := range []string{system, runners, "monitoring", "ingress-nginx", "shop"} {
		spaces = append(spaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
	}
	e, err := netpolicy.New(policies, pods, spaces)
	require.NoError(t, err)
	return e
}

func labelsOf(t *testing.T, template string) map[string]string {
	t.Helper()
	for _, object := range render(t, system, map[string]any{}, template) {
		if object.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d))
			return d.Spec.Template.Labels
		}
	}
	t.Fatalf("%s has no Deployment", template)
	return nil
}

// reach are those of everyone from whom the ingress of a pod allows connections to a port.
func reach(e *netpolicy.Evaluator, at string, port uint16) []string {
	var found []string
	for _, from := range everyone {
		if from != at && e.AllowsIngress(keyOf(system, at), port, tcp, netip.MustParseAddr(from)) {
			found = append(found, from)
		}
	}
	return found
}

func keyOf(namespace, at string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "at-" + at}
}

func peer(namespace string) []any {
	return []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}}}}
}

func ingressValues(ingress map[string]any) map[string]any {
	return map[string]any{"networkPolicy": map[string]any{"ingress": ingress}}
}

// NET-5: each port of the server and the controller is open to its own clients, and nothing else of the cluster connects to either.
func TestIngress_NET5_EachPortIsOpenToItsOwnClients(t *testing.T) {
	e := neighbourhood(t, map[string]any{})
	require.Equal(t, everyone, reach(e, serverAt, 8080), "webhooks: the signature is verified")
	require.Equal(t, []string{controllerAt, idleAt, busyAt, registeredAt, testAt}, reach(e, serverAt, dispatchPort),
		"the label of a busy runner does not change the server's network; its own egress keeps it away")
	require.False(t, e.Allows(keyOf(runners, busyAt), netip.MustParseAddrPort(serverAt+":8081"), tcp), "NET-2")
	require.True(t, e.Allows(keyOf(runners, idleAt), netip.MustParseAddrPort(serverAt+":8081"), tcp))
	require.Empty(t, reach(e, serverAt, 8082), "administrators forward a port")
	require.Equal(t, []string{prometheusAt}, reach(e, serverAt, 9090))
	require.Empty(t, reach(e, serverAt, 22))
	require.Equal(t, []string{testAt}, reach(e, controllerAt, 8081))
	require.Equal(t, []string{prometheusAt}, reach(e, controllerAt, 9090))
	require.Empty(t, reach(e, controllerAt, 22))

	open := neighbourhood(t, ingressValues(map[string]any{"enabled": false}))
	for _, port := range []uint16{8080, dispatchPort, 8082, 9090} {
		require.Equal(t, everyone, reach(open, serverAt, port), "control: without them anything of the cluster connects")
	}
	require.Equal(t, everyone, reach(neighbourhood(t, map[string]any{"networkPolicy": map[string]any{"enabled": false}}), serverAt, 8082))
}

func TestIngress_ValuesName_OtherClients(t *testing.T) {
	block := []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.9.8.0/24"}}}
	e := neighbourhood(t, ingressValues(map[string]any{
		"webhooks": map[string]any{"from": peer("ingress-nginx")}, "dispatch": map[string]any{"from": block},
		"admin": map[string]any{"from": peer("ingress-nginx")}, "metrics": map[string]any{"from": peer("shop")},
	}))
	require.Equal(t, []string{testAt, ingressAt}, reach(e, serverAt, 8080), "helm test asks for its readiness")
	require.Equal(t, []string{controllerAt, idleAt, busyAt, registeredAt, testAt, macAt}, reach(e, serverAt, dispatchPort))
	require.Equal(t, []string{ingressAt}, reach(e, serverAt, 8082))
	require.Equal(t, []string{shopAt}, reach(e, serverAt, 9090))
	require.Equal(t, []string{shopAt}, reach(e, controllerAt, 9090))

	none := neighbourhood(t, ingressValues(map[string]any{"metrics": map[string]any{"from": []any{}}}))
	require.Empty(t, reach(none, serverAt, 9090), "a rule without peers would allow all")
	require.Empty(t, reach(none, controllerAt, 9090))
}

// A policy on busy runners must not change with the server (NET-1), and one on the server not with each job.
func TestIngress_NET1_SelectsNoRunnerAndNoLabelOfAJob(t *testing.T) {
	e := neighbourhood(t, map[string]any{})
	busy, known := e.View(keyOf(runners, busyAt))
	require.True(t, known)
	require.Equal(t, []string{"runners-default-deny"}, busy.Policies)
	server, known := e.View(keyOf(system, serverAt))
	require.True(t, known)
	require.Equal(t, []string{"bullpen-server-ingress"}, server.Policies)
	for _, object := range render(t, system, map[string]any{}, "templates/ingresspolicy.yaml") {
		content, err := object.MarshalJSON()
		require.NoError(t, err)
		require.NotContains(t, string(content), runnerpod.LabelOwner)
		for _, versioned := range []string{"app.kubernetes.io/version", "helm.sh/chart"} {
			require.NotContains(t, object.GetLabels(), versioned, "every upgrade would change the object")
		}
	}
}

// The policies name ports by number: they are those that the pods have, and the Services lead to.
func TestIngress_PortsAreThoseOfThePods(t *testing.T) {
	for template, want := range map[string]map[string]int32{
		"templates/server/deployment.yaml":     {"webhooks": 8080, "dispatch": dispatchPort, "admin": 8082, "metrics": 9090},
		"templates/controller/deployment.yaml": {"health": 8081, "metrics": 9090},
	} {
		declared := map[string]int32{}
		for _, object := range render(t, system, map[string]any{}, template) {
			if object.GetKind() != "Deployment" {
				continue
			}
			d := &appsv1.Deployment{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d))
			for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
				declared[p.Name] = p.ContainerPort
			}
		}
		require.Equal(t, want, declared, template)
	}
}

func TestIngress_MistakesAreRefused(t *testing.T) {
	for _, ingress := range []map[string]any{
		{"console": map[string]any{}},
		{"webhooks": map[string]any{"from": []any{map[string]any{}}}},
		{"dispatch": map[string]any{"from": []any{"10.0.0.0/8"}}},
		{"admin": map[string]any{"to": []any{}}},
	} {
		values := ingressValues(ingress)
		values["github"] = map[string]any{"appID": 1.0}
		_, err := helmchart.Render(helmchart.Release{Values: values})
		require.ErrorContains(t, err, "networkPolicy", "%v", ingress)
	}
}
