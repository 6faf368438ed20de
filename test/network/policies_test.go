package network

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
)

const dispatchPort = 8081

// rollout is what an upgrade of the server did to two runners.
type rollout struct {
	w                      *world
	busyBefore, busyAfter  netpolicy.View
	idleBefore, idleAfter  netpolicy.View
	serversBefore, servers []netip.AddrPort
}

// roll installs the chart, lets one runner take a job and another wait, and upgrades the server.
func roll(t *testing.T, change func([]networkingv1.NetworkPolicy) []networkingv1.NetworkPolicy) rollout {
	t.Helper()
	w := newWorld(t)
	w.install("v1", change)
	idle, busy := w.runner("idle0000"), w.runner("busy0000")
	w.busy(busy)
	r := rollout{w: w, busyBefore: w.view(busy), idleBefore: w.view(idle), serversBefore: w.servers(dispatchPort)}
	w.install("v2", change)
	r.busyAfter, r.idleAfter, r.servers = w.view(busy), w.view(idle), w.servers(dispatchPort)
	for _, old := range r.serversBefore {
		require.NotContains(t, r.servers, old, "the server was not rolled")
	}
	require.NotEqual(t, r.idleBefore.Digest(), r.idleAfter.Digest(), "an idle runner must learn of the new server")
	return r
}

// NET-1: a new ReplicaSet, new labels, new addresses; for a runner mid-job not a bit changes in what a network plug-in
// would have to program.
func TestPolicies_NET1_ARolloutChangesNothingForAPodMidJob(t *testing.T) {
	r := roll(t, nil)
	require.Equal(t, r.busyBefore.String(), r.busyAfter.String())
	require.Equal(t, r.busyBefore.Digest(), r.busyAfter.Digest())
	require.Equal(t, []string{"runners-default-deny"}, r.busyAfter.Policies)
	require.Equal(t, []string{"runners-default-deny", "runners-dispatch-egress"}, r.idleAfter.Policies)
	for _, policy := range []string{"runners-default-deny", "runners-dispatch-egress"} {
		var p networkingv1.NetworkPolicy
		require.NoError(t, r.w.admin.Get(t.Context(), client.ObjectKey{Namespace: r.w.runners, Name: policy}, &p))
		require.EqualValues(t, 1, p.Generation)
		for _, versioned := range []string{"app.kubernetes.io/version", "helm.sh/chart"} {
			require.NotContains(t, p.Labels, versioned, "every upgrade would change the object")
		}
	}

	t.Run("control: one policy for every runner", func(t *testing.T) { // as it was before a job was cut off
		r := roll(t, func(policies []networkingv1.NetworkPolicy) []networkingv1.NetworkPolicy {
			one := policies[0]
			one.Spec.Egress = append(one.Spec.Egress, policies[1].Spec.Egress...)
			return []networkingv1.NetworkPolicy{one}
		})
		require.NotEqual(t, r.busyBefore.Digest(), r.busyAfter.Digest())
		for _, server := range r.servers {
			require.True(t, r.w.evaluator().Allows(r.busyAfter.Pod, server, tcp), "nor was NET-2 kept")
		}
	})
	t.Run("control: two, of which both select every runner", func(t *testing.T) {
		r := roll(t, func(policies []networkingv1.NetworkPolicy) []networkingv1.NetworkPolicy {
			policies[1].Spec.PodSelector.MatchExpressions = nil
			return policies
		})
		require.NotEqual(t, r.busyBefore.Digest(), r.busyAfter.Digest())
	})
}

// NET-2: a runner mid-job does not reach what hands out jobs; an idle one does, and nothing else of the server's.
func TestPolicies_NET2_ARunnerMidJobDoesNotReachDispatch(t *testing.T) {
	w := newWorld(t)
	w.install("v1", nil)
	idle, busy := w.runner("idle0000"), w.runner("busy0000")
	w.busy(busy)
	e := w.evaluator()
	for _, server := range w.servers(dispatchPort) {
		require.True(t, e.Allows(idle, server, tcp), "%s", server)
		require.False(t, e.Allows(idle, server, udp), "%s", server)
		require.False(t, e.Allows(busy, server, tcp), "%s", server)
	}
	for _, port := range []uint16{8080, 8082, 9090, 22} { // webhooks, administrators, metrics
		for _, server := range w.servers(port) {
			require.False(t, e.Allows(idle, server, tcp), "%s", server)
			require.False(t, e.Allows(busy, server, tcp), "%s", server)
		}
	}

	w.busy(idle) // and a moment later
	e = w.evaluator()
	for _, server := range w.servers(dispatchPort) {
		require.False(t, e.Allows(idle, server, tcp), "%s", server)
	}
}

// The destinations of every runner, mid-job or not; and a runner accepts no connection.
func TestPolicies_NET1_EveryRunnerReachesDNSAndThePublicInternet(t *testing.T) {
	w := newWorld(t)
	w.install("v1", nil)
	idle, busy := w.runner("idle0000"), w.runner("busy0000")
	w.busy(busy)
	dns := w.dns()
	e := w.evaluator()
	for _, runner := range []string{idle.Name, busy.Name} {
		from := idle
		if runner == busy.Name {
			from = busy
		}
		for _, public := range []string{
			"140.82.112.3:443", "185.199.108.154:443", "1.1.1.1:80", "9.255.255.255:1", "11.0.0.0:1", "172.15.255.255:1", "172.32.0.0:1", "223.255.255.255:22",
			"[2606:50c0:8000::154]:443", "[2a00:1450::1]:443", "[2001:4860:4860::8888]:443", "[::ffff:140.82.112.3]:443",
		} {
			require.True(t, e.Allows(from, netip.MustParseAddrPort(public), tcp), "%s to %s", runner, public)
			require.True(t, e.Allows(from, netip.MustParseAddrPort(public), udp), "%s to %s", runner, public)
		}
		for _, inner := range []string{
			"0.0.0.1", "10.0.0.1", "10.244.255.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1",
			"172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1", "224.0.0.1", "255.255.255.255",
			"::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::10.0.0.1",
			"64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1", "2001:0:a00:1::1", "2001:db8::1",
		} {
			for _, port := range []uint16{53, 80, 443} {
				to := netip.AddrPortFrom(netip.MustParseAddr(inner), port)
				require.False(t, e.Allows(from, to, tcp), "%s to %s", runner, to)
			}
		}
		for _, addr := range dns {
			require.True(t, e.Allows(from, netip.AddrPortFrom(addr, 53), udp))
			require.True(t, e.Allows(from, netip.AddrPortFrom(addr, 53), tcp))
			require.False(t, e.Allows(from, netip.AddrPortFrom(addr, 9153), tcp))
			require.False(t, e.AllowsIngress(from, 22, tcp, addr))
		}
		for _, other := range w.pods(w.runners) {
			for _, ip := range other.Status.PodIPs {
				if other.Name != from.Name {
					require.False(t, e.Allows(from, netip.AddrPortFrom(netip.MustParseAddr(ip.IP), 22), tcp), "%s to %s", runner, other.Name)
				}
			}
		}
		for _, source := range append(w.servers(1), netip.MustParseAddrPort("140.82.112.3:1"), netip.MustParseAddrPort("192.168.0.1:1")) {
			require.False(t, e.AllowsIngress(from, 8080, tcp, source.Addr()), "%s from %s", runner, source.Addr())
		}
		require.True(t, e.Allows(from, netip.MustParseAddrPort("169.254.20.10:53"), udp), "NodeLocal DNSCache")
	}
}

// dns makes the cluster's DNS server, and returns its addresses.
func (w *world) dns() []netip.Addr {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, GenerateName: "coredns-", Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "coredns", Image: "none"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "bullpen.dev/never"}},
		},
	}
	require.Eventually(w.t, func() bool { return w.admin.Create(w.t.Context(), pod) == nil }, patience, interval)
	w.t.Cleanup(func() { _ = w.admin.Delete(w.t.Context(), pod) })
	require.Eventually(w.t, func() bool {
		require.NoError(w.t, w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod))
		return w.ready(pod)
	}, patience, interval)
	var addrs []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		addrs = append(addrs, netip.MustParseAddr(ip.IP))
	}
	return addrs
}
