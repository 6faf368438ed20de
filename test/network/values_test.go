package network

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

const (
	system  = "bullpen-system"
	runners = "bullpen-runners"
)

func renderPolicies(t *testing.T, values map[string]any) []networkingv1.NetworkPolicy {
	t.Helper()
	var found []networkingv1.NetworkPolicy
	for _, object := range render(t, system, map[string]any{"networkPolicy": values}, "templates/networkpolicy.yaml") {
		found = append(found, policyOf(t, object))
	}
	return found
}

// evaluate puts a busy runner, an idle one and a server's pod into a cluster with the chart's policies.
func evaluate(t *testing.T, values map[string]any, server string) (e *netpolicy.Evaluator, idle, busy types.NamespacedName) {
	t.Helper()
	pod := func(namespace, name, ip string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Status: corev1.PodStatus{PodIP: ip}}
	}
	space := func(name string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	}
	e, err := netpolicy.New(renderPolicies(t, values), []corev1.Pod{
		pod(runners, "idle", "10.0.0.1", map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "small"}),
		pod(runners, "busy", "10.0.0.2", map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "small", runnerpod.LabelOwner: "acme"}),
		pod(runners, "registered", "10.0.0.8", map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelSelfRegistering: "true"}),
		pod(system, "server", server, deployment(t).Spec.Template.Labels),
	}, []corev1.Namespace{space(system), space(runners)})
	require.NoError(t, err)
	return e, types.NamespacedName{Namespace: runners, Name: "idle"}, types.NamespacedName{Namespace: runners, Name: "busy"}
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	objects := render(t, system, map[string]any{}, "templates/server/deployment.yaml")
	require.Len(t, objects, 1)
	d := &appsv1.Deployment{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, d))
	return d
}

// The policy names the port by its number, because not every network plug-in resolves names: it is the one that the server has.
func TestValues_TheDispatchPortIsTheServers(t *testing.T) {
	declared := map[string]int32{}
	for _, p := range deployment(t).Spec.Template.Spec.Containers[0].Ports {
		declared[p.Name] = p.ContainerPort
	}
	require.EqualValues(t, dispatchPort, declared["dispatch"])
	e, idle, _ := evaluate(t, map[string]any{}, "10.0.1.1")
	for name, port := range declared {
		require.Equal(t, name == "dispatch", e.Allows(idle, netip.AddrPortFrom(netip.MustParseAddr("10.0.1.1"), uint16(port)), tcp), name)
		require.False(t, e.Allows(types.NamespacedName{Namespace: runners, Name: "registered"}, netip.AddrPortFrom(netip.MustParseAddr("10.0.1.1"), uint16(port)), tcp),
			"runners that register themselves have no business with the server")
	}
}

func TestValues_DisabledInstallsNone(t *testing.T) {
	require.Len(t, renderPolicies(t, map[string]any{}), 3, "enabled by default")
	require.Empty(t, renderPolicies(t, map[string]any{"enabled": false}))
}

// A pod that pulls images needs no network: its node pulls them.
func TestValues_PrepullPodsReachNothing(t *testing.T) {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: runners, Name: "prepull", Labels: map[string]string{runnerpod.LabelPrepull: "small"}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.9"},
	}
	spaces := []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: runners, Labels: map[string]string{corev1.LabelMetadataName: runners}}}}
	e, err := netpolicy.New(renderPolicies(t, map[string]any{}), []corev1.Pod{pod}, spaces)
	require.NoError(t, err)
	name := types.NamespacedName{Namespace: runners, Name: pod.Name}
	for _, to := range []string{"140.82.112.3:443", "[2606:50c0:8000::154]:443", "10.96.0.10:53", "169.254.169.254:80"} {
		require.False(t, e.Allows(name, netip.MustParseAddrPort(to), tcp), to)
	}
	without, err := netpolicy.New(nil, []corev1.Pod{pod}, spaces)
	require.NoError(t, err)
	require.True(t, without.Allows(name, netip.MustParseAddrPort("140.82.112.3:443"), tcp), "control: without the policy")
}

// Where pods have public addresses, only an exception keeps a runner mid-job from the server: the internet is open to it.
func TestValues_NET2_PodsAtPublicAddressesNeedAnException(t *testing.T) {
	for _, c := range []struct{ server, except string }{{"11.0.0.1", "11.0.0.0/8"}, {"2600:1f00::1", "2600:1f00::/40"}} {
		to := netip.AddrPortFrom(netip.MustParseAddr(c.server), dispatchPort)
		e, _, busy := evaluate(t, map[string]any{}, c.server)
		require.True(t, e.Allows(busy, to, tcp), "control: without it %s", c.server)
		e, idle, busy := evaluate(t, map[string]any{"alsoExcept": []any{"11.0.0.0/8", "2600:1f00::/40"}}, c.server)
		require.False(t, e.Allows(busy, to, tcp), "%s", c.server)
		require.True(t, e.Allows(idle, to, tcp), "%s", c.server)
		require.True(t, e.Allows(busy, netip.MustParseAddrPort("140.82.112.3:443"), tcp))
	}
}

func TestValues_AFamilyCanBeLeftOut(t *testing.T) {
	e, _, busy := evaluate(t, map[string]any{"internet": map[string]any{"ipv6": map[string]any{"cidr": ""}}, "alsoExcept": []any{"2600:1f00::/40"}}, "10.0.1.1")
	require.True(t, e.Allows(busy, netip.MustParseAddrPort("140.82.112.3:443"), tcp))
	require.False(t, e.Allows(busy, netip.MustParseAddrPort("[2606:50c0:8000::154]:443"), tcp))
}

func TestValues_OtherDNSAndMoreRules(t *testing.T) {
	e, _, busy := evaluate(t, map[string]any{
		"dns": map[string]any{
			"peers": []any{map[string]any{"ipBlock": map[string]any{"cidr": "172.20.0.10/32"}}},
			"ports": []any{map[string]any{"port": 5353.0, "protocol": "UDP"}},
		},
		"additionalEgress": []any{map[string]any{
			"to":    []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.9.0.0/24"}}},
			"ports": []any{map[string]any{"port": 3128.0, "protocol": "TCP"}},
		}},
	}, "10.0.1.1")
	require.True(t, e.Allows(busy, netip.MustParseAddrPort("172.20.0.10:5353"), udp))
	require.False(t, e.Allows(busy, netip.MustParseAddrPort("169.254.20.10:53"), udp))
	require.True(t, e.Allows(busy, netip.MustParseAddrPort("10.9.0.1:3128"), tcp))
	require.False(t, e.Allows(busy, netip.MustParseAddrPort("10.9.0.1:22"), tcp))
}

// examples/values-nat64.yaml allows public IPv4 addresses only, as the default does without a gateway.
func TestValues_NAT64LeadsToNoPrivateAddress(t *testing.T) {
	content, err := os.ReadFile("../../examples/values-nat64.yaml")
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(content, &values))
	e, _, busy := evaluate(t, values["networkPolicy"].(map[string]any), "fd10::1")
	plain, _, same := evaluate(t, map[string]any{}, "fd10::1")
	gateway := netip.MustParseAddr("64:ff9b::").As16()
	for _, text := range []string{
		"140.82.112.3", "9.255.255.255", "11.0.0.0", "10.0.0.1", "0.1.2.3", "100.64.0.1", "127.0.0.1", "168.63.129.16", "168.63.129.17", "169.254.169.254", "172.16.0.1",
		"172.32.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
	} {
		addr := netip.MustParseAddr(text)
		four := addr.As4()
		behind := gateway
		copy(behind[12:], four[:])
		want := plain.Allows(same, netip.AddrPortFrom(addr, 443), tcp)
		require.Equal(t, want, e.Allows(busy, netip.AddrPortFrom(netip.AddrFrom16(behind), 443), tcp), "%s", text)
		require.False(t, e.Allows(busy, netip.AddrPortFrom(addr, 443), tcp), "%s", text)
	}
}

func TestValues_MistakesAreRefused(t *testing.T) {
	for _, values := range []map[string]any{
		{"exceptions": []any{"10.0.0.0/8"}},
		{"alsoExcept": []any{"10.0.0.0"}},
		{"alsoExcept": []any{"example.com/8"}},
		{"internet": map[string]any{"ipv5": map[string]any{}}},
		{"internet": map[string]any{"ipv4": map[string]any{"except": []any{"ten"}}}},
		{"dns": map[string]any{"peers": []any{map[string]any{}}}},
		{"dns": map[string]any{"ports": []any{}}},
	} {
		_, err := helmchart.Render(helmchart.Release{Values: map[string]any{"networkPolicy": values, "github": map[string]any{"appID": 1.0}}})
		require.ErrorContains(t, err, "networkPolicy", "%v", values)
	}
}
