package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Evaluator answers for one state of a cluster. It is immutable, and may be used concurrently.
type Evaluator struct {
	policies []policy // by namespace and name
	pods     map[types.NamespacedName]*pod
	holders  map[netip.Addr][]*pod // the pods that can be peers, by address
}

// pod is what policies can know of a pod.
type pod struct {
	name     types.NamespacedName
	labels   labels.Set
	space    labels.Set // the labels of its namespace
	addrs    []netip.Addr
	ports    []corev1.ContainerPort
	hostNet  bool
	ended    bool
	describe string // its name and labels, for digests
}

// peer reports whether policies can mean the pod by a selector.
func (p *pod) peer() bool { return !p.hostNet && !p.ended }

type policy struct {
	name     types.NamespacedName
	selector labels.Selector
	sides    [2]side // by Direction
}

// side is what a policy says of one direction.
type side struct {
	isolates bool
	rules    []rule
}

type rule struct {
	anyPeer bool // it names no peer
	blocks  []block
	pods    []*pod // by name
	ports   []port // none: all, of every protocol
}

type block struct {
	cidr   netip.Prefix
	except []netip.Prefix
}

func (b block) contains(addr netip.Addr) bool {
	return b.cidr.Contains(addr) && !slices.ContainsFunc(b.except, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// port is a range of ports, or a name that every pod resolves for itself.
type port struct {
	protocol    corev1.Protocol
	name        string
	first, last uint16
}

// New takes the objects of a cluster: policies, pods and namespaces, in any order. Objects that an API server would have
// refused are an error, which names the policy.
func New(policies []networkingv1.NetworkPolicy, pods []corev1.Pod, namespaces []corev1.Namespace) (*Evaluator, error) {
	e := &Evaluator{pods: map[types.NamespacedName]*pod{}, holders: map[netip.Addr][]*pod{}}
	spaces := map[string]labels.Set{}
	for i := range namespaces {
		spaces[namespaces[i].Name] = labels.Set(namespaces[i].Labels)
	}
	all := make([]*pod, 0, len(pods))
	for i := range pods {
		p, err := newPod(&pods[i], spaces)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		e.pods[p.name] = p
		for _, addr := range p.addrs {
			if p.peer() {
				e.holders[addr] = append(e.holders[addr], p)
			}
		}
	}
	slices.SortFunc(all, func(a, b *pod) int { return compareNames(a.name, b.name) })
	for i := range policies {
		compiled, err := compile(&policies[i], all)
		if err != nil {
			return nil, fmt.Errorf("reading NetworkPolicy %s/%s: %w", policies[i].Namespace, policies[i].Name, err)
		}
		e.policies = append(e.policies, compiled)
	}
	slices.SortFunc(e.policies, func(a, b policy) int { return compareNames(a.name, b.name) })
	return e, nil
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func newPod(object *corev1.Pod, spaces map[string]labels.Set) (*pod, error) {
	p := &pod{
		name:    types.NamespacedName{Namespace: object.Namespace, Name: object.Name},
		labels:  labels.Set(object.Labels),
		space:   spaces[object.Namespace],
		hostNet: object.Spec.HostNetwork,
		ended:   object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed,
	}
	addresses := []string{}
	for _, ip := range object.Status.PodIPs {
		addresses = append(addresses, ip.IP)
	}
	if len(addresses) == 0 && object.Status.PodIP != "" {
		addresses = append(addresses, object.Status.PodIP)
	}
	for _, text := range addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("reading the address of pod %s: %w", p.name, err)
		}
		p.addrs = append(p.addrs, addr.Unmap())
	}
	slices.SortFunc(p.addrs, netip.Addr.Compare)
	for _, c := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		p.ports = append(p.ports, c.Ports...)
	}
	p.describe = fmt.Sprintf("%s {%s}", p.name, p.labels) // a Set's text is ordered
	return p, nil
}

func compile(object *networkingv1.NetworkPolicy, pods []*pod) (policy, error) {
	compiled := policy{name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}}
	var err error
	if compiled.selector, err = metav1.LabelSelectorAsSelector(&object.Spec.PodSelector); err != nil {
		return policy{}, fmt.Errorf("its podSelector: %w", err)
	}
	// Without types a policy is about ingress, and about egress if it says something of it.
	kinds := object.Spec.PolicyTypes
	if len(kinds) == 0 {
		kinds = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(object.Spec.Egress) > 0 {
			kinds = append(kinds, networkingv1.PolicyTypeEgress)
		}
	}
	for _, kind := range kinds {
		switch kind {
		case networkingv1.PolicyTypeIngress:
			compiled.sides[Ingress].isolates = true
			for _, r := range object.Spec.Ingress {
				if err := compiled.add(Ingress, r.From, r.Ports, pods); err != nil {
					return policy{}, err
				}
			}
		case networkingv1.PolicyTypeEgress:
			compiled.sides[Egress].isolates = true
			for _, r := range object.Spec.Egress {
				if err := compiled.add(Egress, r.To, r.Ports, pods); err != nil {
					return policy{}, err
				}
			}
		default:
			return policy{}, fmt.Errorf("policy type %q is unknown", kind)
		}
	}
	return compiled, nil
}

// add resolves a rule.
func (p *policy) add(direction Direction, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, pods []*pod) error {
	made := rule{anyPeer: len(peers) == 0}
	chosen := map[*pod]bool{}
	for i := range peers {
		if peers[i].IPBlock != nil {
			b, err := newBlock(peers[i].IPBlock)
			if err != nil {
				return err
			}
			made.blocks = append(made.blocks, b)
			continue
		}
		matches, err := selects(&peers[i], p.name.Namespace)
		if err != nil {
			return err
		}
		for _, candidate := range pods {
			if !chosen[candidate] && candidate.peer() && matches(candidate) {
				chosen[candidate] = true
			}
		}
	}
	for _, candidate := range pods { // in their order
		if chosen[candidate] {
			made.pods = append(made.pods, candidate)
		}
	}
	for _, given := range ports {
		q, err := newPort(given)
		if err != nil {
			return err
		}
		made.ports = append(made.ports, q)
	}
	p.sides[direction].rules = append(p.sides[direction].rules, made)
	return nil
}

// selects is what a peer that is no ipBlock means by its selectors. Without one for namespaces it means its policy's own.
func selects(peer *networkingv1.NetworkPolicyPeer, namespace string) (func(*pod) bool, error) {
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return nil, fmt.Errorf("one of its peers selects nothing")
	}
	byPod, bySpace := labels.Everything(), labels.Everything()
	var err error
	if peer.PodSelector != nil {
		if byPod, err = metav1.LabelSelectorAsSelector(peer.PodSelector); err != nil {
			return nil, fmt.Errorf("the podSelector of a peer: %w", err)
		}
	}
	if peer.NamespaceSelector == nil {
		return func(p *pod) bool { return p.name.Namespace == namespace && byPod.Matches(p.labels) }, nil
	}
	if bySpace, err = metav1.LabelSelectorAsSelector(peer.NamespaceSelector); err != nil {
		return nil, fmt.Errorf("the namespaceSelector of a peer: %w", err)
	}
	return func(p *pod) bool { return bySpace.Matches(p.space) && byPod.Matches(p.labels) }, nil
}

func newBlock(given *networkingv1.IPBlock) (block, error) {
	cidr, err := netip.ParsePrefix(given.CIDR)
	if err != nil {
		return block{}, fmt.Errorf("an ipBlock of it: %w", err)
	}
	b := block{cidr: cidr.Masked()}
	for _, text := range given.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return block{}, fmt.Errorf("what an ipBlock of it excepts: %w", err)
		}
		b.except = append(b.except, except.Masked())
	}
	return b, nil
}

func newPort(given networkingv1.NetworkPolicyPort) (port, error) {
	p := port{protocol: corev1.ProtocolTCP, last: 65535}
	if given.Protocol != nil {
		p.protocol = *given.Protocol
	}
	switch {
	case given.Port == nil:
		return p, nil
	case given.Port.StrVal != "":
		p.name = given.Port.StrVal
		return p, nil
	}
	first := given.Port.IntVal
	last := first
	if given.EndPort != nil {
		last = *given.EndPort
	}
	if first < 1 || last < first || last > 65535 {
		return port{}, fmt.Errorf("its ports %d to %d are no range", first, last)
	}
	p.first, p.last = uint16(first), uint16(last)
	return p, nil
}
