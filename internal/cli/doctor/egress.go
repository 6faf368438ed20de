package doctor

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// egressPolicy is the chart's NetworkPolicy of all runners.
const egressPolicy = "runners-default-deny"

// Egress is the way of runners to GitHub, where a policy is in it.
type Egress struct {
	Host    string
	Blocked []string // its addresses, if the policy allows none of them
}

// egress compares GitHub's addresses with what runners may connect to. Runners that use a proxy need none of them.
func (c *clusterGatherer) egress(ctx context.Context) {
	if c.look.GitHub == nil {
		return
	}
	at, err := url.Parse(c.look.GitHub.URL)
	if err != nil {
		return // reported by the part that asks GitHub
	}
	policy, err := c.kube.NetworkingV1().NetworkPolicies(c.in.RunnerNamespace).Get(ctx, egressPolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || !c.could("the runners' network policy", err) || c.proxied(ctx) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.look.Timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Hostname())
	if err != nil {
		return // likewise
	}
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	if err != nil {
		port = 443
		if at.Scheme == "http" {
			port = 80
		}
	}
	var blocked []string
	for _, address := range addresses {
		address = address.Unmap()
		if address.IsLoopback() || allows(policy.Spec.Egress, address, int32(port)) {
			return // a stand-in of this machine is not what runners of a cluster connect to
		}
		blocked = append(blocked, address.String())
	}
	if len(blocked) > 0 {
		c.seen.Egress = &Egress{Host: at.Hostname(), Blocked: blocked}
	}
}

// proxied reports whether the controller gives runners a proxy.
func (c *clusterGatherer) proxied(ctx context.Context) bool {
	list, err := c.kube.AppsV1().Deployments(c.in.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		return false
	}
	for i := range list.Items {
		for _, container := range list.Items[i].Spec.Template.Spec.Containers {
			if slices.ContainsFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--runner-https-proxy") }) {
				return true
			}
		}
	}
	return false
}

// allows reports whether one of the rules leads to an address outside the cluster. It is pure.
func allows(rules []networkingv1.NetworkPolicyEgressRule, address netip.Addr, port int32) bool {
	for _, rule := range rules {
		if !ofPort(rule.Ports, port) {
			continue
		}
		if len(rule.To) == 0 {
			return true
		}
		for _, peer := range rule.To {
			if peer.IPBlock != nil && within(peer.IPBlock.CIDR, address) &&
				!slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return within(except, address) }) {
				return true
			}
		}
	}
	return false
}

func ofPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	if len(ports) == 0 {
		return true
	}
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port == nil {
			return true
		}
		first := p.Port.IntVal
		if p.Port.Type != intstr.Int {
			return false // a name means nothing outside the cluster
		}
		return port == first || p.EndPort != nil && first <= port && port <= *p.EndPort
	})
}

func within(cidr string, address netip.Addr) bool {
	prefix, err := netip.ParsePrefix(cidr)
	return err == nil && prefix.Contains(address)
}

// examineEgress: without egress to GitHub, jobs see a GitHub that does not answer.
func examineEgress(r *Report, c Cluster) {
	if c.Egress == nil {
		return
	}
	r.found(Finding{
		Code: "github-blocked", Severity: SeverityError, Subject: c.Egress.Host,
		Sentence: "Runners cannot connect to " + c.Egress.Host + " (" + strings.Join(c.Egress.Blocked, ", ") + "): the network policy " + egressPolicy + " in " + c.RunnerNamespace + " allows public addresses only.",
		Remedy:   "Set github.cidrs in the chart's values to its ranges, such as [" + c.Egress.Blocked[0] + "/" + bits(c.Egress.Blocked[0]) + "], or proxy.https if runners should use a proxy.",
	})
}

func bits(address string) string {
	if strings.Contains(address, ":") {
		return "128"
	}
	return "32"
}
