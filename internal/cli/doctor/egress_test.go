package doctor

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestAllows_R7_WhatAPolicySays(t *testing.T) {
	block := func(cidr string, except ...string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}
	}
	tcp := func(port int, end *int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt(port)), EndPort: end}}
	}
	rule := networkingv1.NetworkPolicyEgressRule{To: block("0.0.0.0/0", "10.0.0.0/8")}
	for name, c := range map[string]struct {
		rule    networkingv1.NetworkPolicyEgressRule
		address string
		allowed bool
	}{
		"a public address":          {rule, "140.82.112.3", true},
		"a private one":             {rule, "10.1.2.3", false},
		"of the other family":       {rule, "fd00::1", false},
		"its range and port":        {networkingv1.NetworkPolicyEgressRule{To: block("10.1.2.0/24"), Ports: tcp(443, nil)}, "10.1.2.3", true},
		"its range, another port":   {networkingv1.NetworkPolicyEgressRule{To: block("10.1.2.0/24"), Ports: tcp(3128, nil)}, "10.1.2.3", false},
		"its range, several ports":  {networkingv1.NetworkPolicyEgressRule{To: block("10.1.2.0/24"), Ports: tcp(400, ptr.To[int32](500))}, "10.1.2.3", true},
		"its range, by UDP":         {networkingv1.NetworkPolicyEgressRule{To: block("10.1.2.0/24"), Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolUDP)}}}, "10.1.2.3", false},
		"pods":                      {networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{}}}, "10.1.2.3", false},
		"everything":                {networkingv1.NetworkPolicyEgressRule{}, "10.1.2.3", true},
		"everything, by named port": {networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("https"))}}}, "10.1.2.3", false},
	} {
		require.Equal(t, c.allowed, allows([]networkingv1.NetworkPolicyEgressRule{c.rule}, netip.MustParseAddr(c.address), 443), name)
	}
}

func TestExamine_R7_APolicyThatKeepsRunnersFromGitHub(t *testing.T) {
	report := Examine(Evidence{Cluster: &Cluster{RunnerNamespace: "bullpen-runners", Egress: &Egress{Host: "ghes.example.com", Blocked: []string{"10.1.2.3"}}}})
	require.Len(t, report.Findings, 1)
	require.Equal(t, "github-blocked", report.Findings[0].Code)
	require.Contains(t, report.Findings[0].Sentence, "ghes.example.com (10.1.2.3)")
	require.Contains(t, report.Findings[0].Remedy, "github.cidrs")
	require.Contains(t, report.Findings[0].Remedy, "[10.1.2.3/32]")
}
