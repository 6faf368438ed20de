package netpolicy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Direction is that of a connection, as the pod sees it that a policy selects.
type Direction int

// The directions.
const (
	Ingress Direction = iota
	Egress
)

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// Allows reports whether a pod may open a connection to an address: whether its own egress allows it and, if the address is
// that of a pod, that pod's ingress does too. A pod that is not known may do nothing.
func (e *Evaluator) Allows(from types.NamespacedName, to netip.AddrPort, protocol corev1.Protocol) bool {
	source := e.pods[from]
	if source == nil || !e.AllowsEgress(from, to, protocol) {
		return false
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	for _, holder := range e.holders[to.Addr()] {
		if holder != source && !e.allowsIngress(holder, source, source.addrs, to.Port(), protocol) {
			return false
		}
	}
	return true
}

// AllowsEgress reports whether a pod's egress allows a connection to an address. A pod that is not known may do nothing.
func (e *Evaluator) AllowsEgress(from types.NamespacedName, to netip.AddrPort, protocol corev1.Protocol) bool {
	source := e.pods[from]
	if source == nil {
		return false
	}
	addr := to.Addr().Unmap() // an IPv4-mapped address goes over IPv4
	for _, own := range source.addrs {
		if own == addr {
			return true // nothing keeps a pod from itself
		}
	}
	isolated := false
	for i := range e.policies {
		if s := &e.policies[i].sides[Egress]; s.isolates && e.policies[i].chooses(source) {
			isolated = true
			for j := range s.rules {
				if s.rules[j].allowsTo(e.holders[addr], addr, to.Port(), protocol) {
					return true
				}
			}
		}
	}
	return !isolated
}

// AllowsIngress reports whether a pod's ingress allows a connection from an address to one of its ports. A pod that is not
// known may be asked for nothing.
func (e *Evaluator) AllowsIngress(to types.NamespacedName, port uint16, protocol corev1.Protocol, from netip.Addr) bool {
	target := e.pods[to]
	if target == nil {
		return false
	}
	from = from.Unmap()
	holders := e.holders[from]
	if len(holders) == 0 {
		return e.allowsIngress(target, nil, []netip.Addr{from}, port, protocol)
	}
	for _, source := range holders {
		if source != target && !e.allowsIngress(target, source, []netip.Addr{from}, port, protocol) {
			return false
		}
	}
	return true
}

// allowsIngress allows what comes from a pod (nil: from elsewhere) at any of its addresses.
func (e *Evaluator) allowsIngress(target, source *pod, addrs []netip.Addr, number uint16, protocol corev1.Protocol) bool {
	isolated := false
	for i := range e.policies {
		if s := &e.policies[i].sides[Ingress]; s.isolates && e.policies[i].chooses(target) {
			isolated = true
			for j := range s.rules {
				if s.rules[j].allowsFrom(target, source, addrs, number, protocol) {
					return true
				}
			}
		}
	}
	return !isolated
}

func (p *policy) chooses(candidate *pod) bool {
	return candidate.name.Namespace == p.name.Namespace && !candidate.hostNet && p.selector.Matches(candidate.labels)
}

// allowsTo: named ports are the peer's.
func (r *rule) allowsTo(holders []*pod, addr netip.Addr, number uint16, protocol corev1.Protocol) bool {
	if r.anyPeer || r.hasBlock(addr) {
		if r.hasPort(nil, number, protocol) {
			return true
		}
		for _, holder := range holders {
			if r.anyPeer && r.hasPort(holder, number, protocol) {
				return true
			}
		}
	}
	for _, holder := range holders {
		if r.hasPod(holder) && r.hasPort(holder, number, protocol) {
			return true
		}
	}
	return false
}

// allowsFrom: named ports are those of the pod that the policy selects.
func (r *rule) allowsFrom(target, source *pod, addrs []netip.Addr, number uint16, protocol corev1.Protocol) bool {
	if !r.hasPort(target, number, protocol) {
		return false
	}
	if r.anyPeer || source != nil && r.hasPod(source) {
		return true
	}
	for _, addr := range addrs {
		if r.hasBlock(addr) {
			return true
		}
	}
	return false
}

func (r *rule) hasPod(p *pod) bool {
	for _, known := range r.pods {
		if known == p {
			return true
		}
	}
	return false
}

func (r *rule) hasBlock(addr netip.Addr) bool {
	for _, b := range r.blocks {
		if b.contains(addr) {
			return true
		}
	}
	return false
}

// hasPort reports whether the rule covers a port; names are resolved in of, which may be nil.
func (r *rule) hasPort(of *pod, number uint16, protocol corev1.Protocol) bool {
	if len(r.ports) == 0 {
		return true
	}
	for _, p := range r.ports {
		if p.protocol != protocol {
			continue
		}
		if p.name == "" {
			if p.first <= number && number <= p.last {
				return true
			}
			continue
		}
		for _, resolved := range p.resolve(of) {
			if resolved == number {
				return true
			}
		}
	}
	return false
}

// resolve returns the numbers that a named port has in a pod.
func (p port) resolve(of *pod) []uint16 {
	if of == nil {
		return nil
	}
	var numbers []uint16
	for _, candidate := range of.ports {
		protocol := candidate.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		if candidate.Name == p.name && protocol == p.protocol && candidate.ContainerPort > 0 && candidate.ContainerPort <= 65535 {
			numbers = append(numbers, uint16(candidate.ContainerPort))
		}
	}
	return numbers
}
