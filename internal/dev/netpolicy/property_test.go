package netpolicy

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// The universe is small, so that what is drawn meets.
var (
	someLabels     = []string{"x", "y"}
	someValues     = []string{"1", "2"}
	someNamespaces = []string{"a", "b"}
	someProtocols  = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	someBlocks     = []string{"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/30", "10.0.0.4/30", "::/0", "fd00::/16"}
	someAddresses  = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6", "8.8.8.8", "fd00::1", "2001:db9::1"}
)

func drawLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom(someLabels), rapid.SampledFrom(someValues), 0, 2).Draw(t, "labels")
}

func drawSelector(t *rapid.T) metav1.LabelSelector {
	s := metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom(someLabels), rapid.SampledFrom(someValues), 0, 1).Draw(t, "matchLabels")}
	if rapid.Bool().Draw(t, "expression") {
		operator := rapid.SampledFrom([]metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
		}).Draw(t, "operator")
		e := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom(someLabels).Draw(t, "key"), Operator: operator}
		if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
			e.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(someValues), 1, 2, rapid.ID[string]).Draw(t, "values")
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func drawPods(t *rapid.T) []corev1.Pod {
	addresses := rapid.Permutation(someAddresses[:7]).Draw(t, "addresses")
	var pods []corev1.Pod
	for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
		p := newTestPod(rapid.SampledFrom(someNamespaces).Draw(t, "namespace"), string(rune('p'+i)), addresses[i], drawLabels(t), corev1.ContainerPort{
			Name: "named", ContainerPort: int32(rapid.IntRange(1, 3).Draw(t, "named")), Protocol: rapid.SampledFrom(append(someProtocols, "")).Draw(t, "protocol"),
		})
		p.Spec.HostNetwork = rapid.IntRange(0, 5).Draw(t, "host") == 0
		if rapid.IntRange(0, 5).Draw(t, "ended") == 0 {
			p.Status.Phase = corev1.PodFailed
		}
		pods = append(pods, p)
	}
	return pods
}

func drawPeers(t *rapid.T) []networkingv1.NetworkPolicyPeer {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPeer {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return networkingv1.NetworkPolicyPeer{PodSelector: ptr.To(drawSelector(t))}
		case 1:
			return networkingv1.NetworkPolicyPeer{NamespaceSelector: ptr.To(drawSelector(t))}
		case 2:
			return networkingv1.NetworkPolicyPeer{PodSelector: ptr.To(drawSelector(t)), NamespaceSelector: ptr.To(drawSelector(t))}
		}
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{
			CIDR: rapid.SampledFrom(someBlocks).Draw(t, "cidr"), Except: rapid.SliceOfN(rapid.SampledFrom(someBlocks), 0, 2).Draw(t, "except"),
		}}
	}), 0, 2).Draw(t, "peers")
}

func drawPorts(t *rapid.T) []networkingv1.NetworkPolicyPort {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPort {
		p := networkingv1.NetworkPolicyPort{}
		if rapid.Bool().Draw(t, "with protocol") {
			p.Protocol = ptr.To(rapid.SampledFrom(someProtocols).Draw(t, "protocol"))
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.Port = ptr.To(intstr.FromString("named"))
		case 1:
			p.Port = ptr.To(intstr.FromInt32(int32(rapid.IntRange(1, 3).Draw(t, "port"))))
		case 2:
			p.Port, p.EndPort = ptr.To(intstr.FromInt32(2)), ptr.To(int32(rapid.IntRange(2, 3).Draw(t, "end")))
		}
		return p
	}), 0, 2).Draw(t, "ports")
}

func drawPolicies(t *rapid.T) []networkingv1.NetworkPolicy {
	var made []networkingv1.NetworkPolicy
	for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
		p := networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: rapid.SampledFrom(someNamespaces).Draw(t, "of"), Name: string(rune('a' + i))},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: drawSelector(t)},
		}
		p.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{
			nil, {networkingv1.PolicyTypeIngress}, {networkingv1.PolicyTypeEgress}, {networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		}).Draw(t, "types")
		for range rapid.IntRange(0, 2).Draw(t, "egress") {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: drawPeers(t), Ports: drawPorts(t)})
		}
		for range rapid.IntRange(0, 2).Draw(t, "ingress") {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: drawPeers(t), Ports: drawPorts(t)})
		}
		made = append(made, p)
	}
	return made
}

func drawNamespaces(t *rapid.T) []corev1.Namespace {
	var made []corev1.Namespace
	for _, name := range someNamespaces {
		made = append(made, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: drawLabels(t)}})
	}
	return made
}

// oracle applies the API's definition one question at a time, with nothing resolved beforehand. It knows at most one end as
// a pod.
type oracle struct {
	policies   []networkingv1.NetworkPolicy
	pods       []corev1.Pod
	namespaces []corev1.Namespace
}

func (o oracle) matches(s *metav1.LabelSelector, have map[string]string) bool {
	for key, want := range s.MatchLabels {
		if got, has := have[key]; !has || got != want {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		got, has := have[e.Key]
		in := false
		for _, v := range e.Values {
			in = in || has && v == got
		}
		if ok := map[metav1.LabelSelectorOperator]bool{
			metav1.LabelSelectorOpIn: in, metav1.LabelSelectorOpNotIn: !in, metav1.LabelSelectorOpExists: has, metav1.LabelSelectorOpDoesNotExist: !has,
		}[e.Operator]; !ok {
			return false
		}
	}
	return true
}

func (o oracle) holder(addr string) *corev1.Pod {
	for i := range o.pods {
		if p := &o.pods[i]; p.Status.PodIP == addr && !p.Spec.HostNetwork && p.Status.Phase != corev1.PodFailed {
			return p
		}
	}
	return nil
}

func (o oracle) peer(policy *networkingv1.NetworkPolicy, peer networkingv1.NetworkPolicyPeer, addr string, holder *corev1.Pod) bool {
	if peer.IPBlock != nil {
		within := func(text string) bool {
			_, block, _ := net.ParseCIDR(text)
			return block.Contains(net.ParseIP(addr))
		}
		for _, e := range peer.IPBlock.Except {
			if within(e) {
				return false
			}
		}
		return within(peer.IPBlock.CIDR)
	}
	if holder == nil || peer.PodSelector != nil && !o.matches(peer.PodSelector, holder.Labels) {
		return false
	}
	if peer.NamespaceSelector == nil {
		return holder.Namespace == policy.Namespace
	}
	for i := range o.namespaces {
		if o.namespaces[i].Name == holder.Namespace {
			return o.matches(peer.NamespaceSelector, o.namespaces[i].Labels)
		}
	}
	return false
}

func (o oracle) port(ports []networkingv1.NetworkPolicyPort, in *corev1.Pod, number int32, protocol corev1.Protocol) bool {
	for _, p := range ports {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) != protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			if in == nil {
				continue
			}
			declared := in.Spec.Containers[0].Ports[0]
			if declared.Protocol == "" {
				declared.Protocol = corev1.ProtocolTCP
			}
			if declared.Name == p.Port.StrVal && declared.Protocol == protocol && declared.ContainerPort == number {
				return true
			}
		case p.Port.IntVal <= number && number <= ptr.Deref(p.EndPort, p.Port.IntVal):
			return true
		}
	}
	return len(ports) == 0
}

func (o oracle) about(p *networkingv1.NetworkPolicy, pod *corev1.Pod, kind networkingv1.PolicyType) bool {
	if p.Namespace != pod.Namespace || pod.Spec.HostNetwork || !o.matches(&p.Spec.PodSelector, pod.Labels) {
		return false
	}
	if len(p.Spec.PolicyTypes) == 0 {
		return kind == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	for _, k := range p.Spec.PolicyTypes {
		if k == kind {
			return true
		}
	}
	return false
}

func (o oracle) egress(pod *corev1.Pod, addr string, number int32, protocol corev1.Protocol) bool {
	if pod.Status.PodIP == addr {
		return true
	}
	open := true
	for i := range o.policies {
		p := &o.policies[i]
		if !o.about(p, pod, networkingv1.PolicyTypeEgress) {
			continue
		}
		open = false
		for _, r := range p.Spec.Egress {
			if len(r.To) == 0 && o.port(r.Ports, o.holder(addr), number, protocol) {
				return true
			}
			for _, peer := range r.To {
				in := o.holder(addr)
				if peer.IPBlock != nil {
					in = nil
				}
				if o.peer(p, peer, addr, o.holder(addr)) && o.port(r.Ports, in, number, protocol) {
					return true
				}
			}
		}
	}
	return open
}

func (o oracle) ingress(pod *corev1.Pod, addr string, number int32, protocol corev1.Protocol) bool {
	open := true
	for i := range o.policies {
		p := &o.policies[i]
		if !o.about(p, pod, networkingv1.PolicyTypeIngress) {
			continue
		}
		open = false
		for _, r := range p.Spec.Ingress {
			from := len(r.From) == 0
			for _, peer := range r.From {
				from = from || o.peer(p, peer, addr, o.holder(addr))
			}
			if from && o.port(r.Ports, pod, number, protocol) {
				return true
			}
		}
	}
	return open
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func TestProperty_AgreesWithTheAPIsWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := oracle{policies: drawPolicies(t), pods: drawPods(t), namespaces: drawNamespaces(t)}
		e, err := New(o.policies, o.pods, o.namespaces)
		require.NoError(t, err)
		for i := range o.pods {
			pod := &o.pods[i]
			for _, addr := range someAddresses {
				for number := int32(1); number <= 3; number++ {
					for _, protocol := range someProtocols {
						to := netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(number))
						out := o.egress(pod, addr, number, protocol)
						require.Equal(t, out, e.AllowsEgress(keyOf(pod), to, protocol), "egress of %s to %s/%s", keyOf(pod), to, protocol)
						if holder := o.holder(addr); holder != nil && keyOf(holder) != keyOf(pod) && o.holder(pod.Status.PodIP) == pod {
							both := out && o.ingress(holder, pod.Status.PodIP, number, protocol)
							require.Equal(t, both, e.Allows(keyOf(pod), to, protocol), "%s to %s/%s", keyOf(pod), to, protocol)
						}
						if pod.Status.PodIP != addr {
							require.Equal(t, o.ingress(pod, addr, number, protocol), e.AllowsIngress(keyOf(pod), uint16(number), protocol, to.Addr()),
								"ingress of %s from %s to %d/%s", keyOf(pod), addr, number, protocol)
						}
					}
				}
			}
		}
	})
}

// A digest does not depend on the order in which an API server lists, nor on pods that no rule means.
func TestProperty_DigestsAreCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies, pods, namespaces := drawPolicies(t), drawPods(t), drawNamespaces(t)
		e, err := New(policies, pods, namespaces)
		require.NoError(t, err)
		shuffled, err := New(rapid.Permutation(policies).Draw(t, "policies"), rapid.Permutation(pods).Draw(t, "pods"), rapid.Permutation(namespaces).Draw(t, "namespaces"))
		require.NoError(t, err)
		orphan := newTestPod("c", "unheard", "10.9.9.9", nil) // its namespace does not exist: only "all" selects it
		orphan.Spec.HostNetwork = true
		crowded, err := New(policies, append(pods, orphan), namespaces)
		require.NoError(t, err)
		for i := range pods {
			v, _ := e.View(keyOf(&pods[i]))
			again, _ := shuffled.View(keyOf(&pods[i]))
			require.Equal(t, v.String(), again.String())
			third, _ := crowded.View(keyOf(&pods[i]))
			require.Equal(t, v.Digest(), third.Digest())
		}
	})
}

// What a pod may do follows from its digest: when the cluster changes and the digest does not, neither does any answer.
func TestProperty_EqualDigestsAllowTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies, pods, namespaces := drawPolicies(t), drawPods(t), drawNamespaces(t)
		e, err := New(policies, pods, namespaces)
		require.NoError(t, err)
		changed := make([]corev1.Pod, len(pods))
		for i := range pods {
			pods[i].DeepCopyInto(&changed[i])
		}
		which := rapid.IntRange(0, len(pods)-1).Draw(t, "which")
		changed[which].Labels = drawLabels(t)
		after, err := New(policies, changed, namespaces)
		require.NoError(t, err)
		for i := range pods {
			v, _ := e.View(keyOf(&pods[i]))
			w, _ := after.View(keyOf(&pods[i]))
			if v.Digest() != w.Digest() {
				continue
			}
			for _, addr := range someAddresses {
				for number := uint16(1); number <= 3; number++ {
					to := netip.AddrPortFrom(netip.MustParseAddr(addr), number)
					require.Equal(t, e.AllowsEgress(keyOf(&pods[i]), to, corev1.ProtocolTCP), after.AllowsEgress(keyOf(&pods[i]), to, corev1.ProtocolTCP))
				}
			}
		}
	})
}
