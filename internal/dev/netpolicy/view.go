package netpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// View is all that policies say of one pod at one moment.
type View struct {
	// Pod is the pod that the view is of.
	Pod types.NamespacedName
	// Policies are the names of those that select the pod, in order.
	Policies []string
	// Isolated says, by Direction, whether anything is refused.
	Isolated [2]bool

	lines []string
}

// View resolves what applies to a pod; false if there is no such pod.
func (e *Evaluator) View(name types.NamespacedName) (View, bool) {
	of := e.pods[name]
	if of == nil {
		return View{}, false
	}
	v := View{Pod: name}
	for i := range e.policies {
		p := &e.policies[i]
		if !p.chooses(of) {
			continue
		}
		v.Policies = append(v.Policies, p.name.Name)
		v.lines = append(v.lines, "policy "+p.name.String())
		for _, direction := range []Direction{Ingress, Egress} {
			s := &p.sides[direction]
			if !s.isolates {
				continue
			}
			v.Isolated[direction] = true
			v.lines = append(v.lines, "  "+direction.String())
			var rules []string
			for j := range s.rules {
				rules = append(rules, s.rules[j].canonical(direction, of, e))
			}
			slices.Sort(rules)
			v.lines = append(v.lines, rules...)
		}
	}
	return v, true
}

// String is the canonical text of which Digest is the hash: the policies that select the pod and, rule by rule, every peer with
// what a network plug-in could know of it. The order of objects, rules and peers does not show in it.
func (v View) String() string { return strings.Join(v.lines, "\n") + "\n" }

// Digest changes with anything that could make a network plug-in reprogram the pod's datapath: the set of policies that
// select it, their rules, and the name, labels, addresses and resolved ports of every pod that they mean.
func (v View) Digest() string {
	sum := sha256.Sum256([]byte(v.String()))
	return hex.EncodeToString(sum[:])
}

// canonical is the text of a rule for one pod that it applies to.
func (r *rule) canonical(direction Direction, of *pod, e *Evaluator) string {
	var lines []string
	if r.anyPeer {
		lines = append(lines, "      any peer "+r.portsOf(nil))
		if direction == Egress { // a name means something else in each pod
			for _, holder := range e.named(r) {
				lines = append(lines, "      named "+holder.describe+" "+addresses(holder)+" "+r.portsOf(holder))
			}
		}
	}
	for _, b := range r.blocks {
		except := make([]string, 0, len(b.except))
		for _, p := range b.except {
			except = append(except, p.String())
		}
		slices.Sort(except)
		lines = append(lines, fmt.Sprintf("      block %s except [%s] %s", b.cidr, strings.Join(slices.Compact(except), " "), r.portsFor(direction, of, nil)))
	}
	for _, p := range r.pods {
		lines = append(lines, "      pod "+p.describe+" "+addresses(p)+" "+r.portsFor(direction, of, p))
	}
	slices.Sort(lines)
	return "    rule\n" + strings.Join(slices.Compact(lines), "\n")
}

// named are the pods in which a rule for all peers resolves a name of a port, in order.
func (e *Evaluator) named(r *rule) []*pod {
	var found []*pod
	for _, p := range e.pods {
		if p.peer() && slices.ContainsFunc(r.ports, func(q port) bool { return q.name != "" && len(q.resolve(p)) > 0 }) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *pod) int { return compareNames(a.name, b.name) })
	return found
}

// portsFor resolves names where that direction does: in the peer, or in the pod that the policy selects.
func (r *rule) portsFor(direction Direction, of, peer *pod) string {
	if direction == Ingress {
		return r.portsOf(of)
	}
	return r.portsOf(peer)
}

func (r *rule) portsOf(of *pod) string {
	if len(r.ports) == 0 {
		return "all ports"
	}
	var texts []string
	for _, p := range r.ports {
		switch {
		case p.name == "" && p.first == 0:
			texts = append(texts, string(p.protocol)+":all")
		case p.name == "":
			texts = append(texts, fmt.Sprintf("%s:%d-%d", p.protocol, p.first, p.last))
		default:
			numbers := p.resolve(of)
			slices.Sort(numbers)
			text := string(p.protocol) + ":" + p.name + "="
			for _, n := range slices.Compact(numbers) {
				text += strconv.Itoa(int(n)) + ","
			}
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), " ")
}

func addresses(p *pod) string {
	texts := make([]string, 0, len(p.addrs))
	for _, addr := range slices.Compact(slices.SortedFunc(slices.Values(p.addrs), netip.Addr.Compare)) {
		texts = append(texts, addr.String())
	}
	return "[" + strings.Join(texts, " ") + "]"
}
