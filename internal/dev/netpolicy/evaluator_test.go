package netpolicy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// world is a small cluster. The pods of namespace a are at 10.0.0.x, those of b at 10.0.1.x.
func world() ([]corev1.Pod, []corev1.Namespace) {
	pods := []corev1.Pod{
		newTestPod("a", "web", "10.0.0.1", map[string]string{"app": "web", "tier": "front"}, corev1.ContainerPort{Name: "http", ContainerPort: 8080}),
		newTestPod("a", "db", "10.0.0.2", map[string]string{"app": "db"}, corev1.ContainerPort{Name: "sql", ContainerPort: 5432}, corev1.ContainerPort{Name: "http", ContainerPort: 9090}),
		newTestPod("b", "web", "10.0.1.1", map[string]string{"app": "web"}, corev1.ContainerPort{Name: "http", ContainerPort: 8081}),
		newTestPod("b", "host", "192.168.0.1", map[string]string{"app": "web", "tier": "host"}),
		newTestPod("b", "ended", "10.0.1.3", map[string]string{"app": "web"}),
		newTestPod("b", "dual", "10.0.1.4", map[string]string{"app": "dual"}, corev1.ContainerPort{Name: "dns", ContainerPort: 5353, Protocol: corev1.ProtocolUDP}),
	}
	pods[3].Spec.HostNetwork = true
	pods[4].Status.Phase = corev1.PodSucceeded
	pods[5].Status.PodIPs = []corev1.PodIP{{IP: "10.0.1.4"}, {IP: "fd00::4"}}
	return pods, []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"team": "red", "name": "a"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"team": "blue", "name": "b"}}},
	}
}

func newTestPod(namespace, name, ip string, labels map[string]string, ports ...corev1.ContainerPort) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Ports: ports}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
}

// policies reads specs of policies in namespace a, by name p0, p1, …
func policies(t testing.TB, specs ...string) []networkingv1.NetworkPolicy {
	t.Helper()
	var made []networkingv1.NetworkPolicy
	for i, text := range specs {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p" + string(rune('0'+i))}}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &p.Spec))
		made = append(made, p)
	}
	return made
}

func evaluator(t testing.TB, specs ...string) *Evaluator {
	t.Helper()
	pods, namespaces := world()
	e, err := New(policies(t, specs...), pods, namespaces)
	require.NoError(t, err)
	return e
}

func named(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

const front = "podSelector: {matchLabels: {tier: front}}\n" // selects a/web

func TestAllows_Egress(t *testing.T) {
	const (
		tcp = corev1.ProtocolTCP
		udp = corev1.ProtocolUDP
	)
	for name, c := range map[string]struct {
		specs        []string
		from         string // default a/web
		protocol     corev1.Protocol
		allows, bars []string
	}{
		"nothing selects it":                     {nil, "", tcp, []string{"10.0.0.2:1", "8.8.8.8:53"}, nil},
		"selected for ingress alone, by default": {[]string{front}, "", tcp, []string{"8.8.8.8:53"}, nil},
		"egress by default, if it says something of it": {
			[]string{front + "egress: [{ports: [{port: 443}]}]"}, "", tcp, []string{"8.8.8.8:443", "10.0.1.1:443"}, []string{"8.8.8.8:80"},
		},
		"egress without a rule":      {[]string{front + "policyTypes: [Egress]"}, "", tcp, nil, []string{"8.8.8.8:443", "10.0.0.2:1"}},
		"a pod reaches itself":       {[]string{front + "policyTypes: [Egress]"}, "", tcp, []string{"10.0.0.1:80"}, nil},
		"of another namespace":       {[]string{"{podSelector: {}, policyTypes: [Egress]}"}, "b/web", tcp, []string{"8.8.8.8:443"}, nil},
		"not those on their host":    {[]string{"{podSelector: {}, policyTypes: [Egress]}"}, "b/host", tcp, []string{"8.8.8.8:443"}, nil},
		"an empty rule is all":       {[]string{front + "egress: [{}]"}, "", tcp, []string{"8.8.8.8:443", "[2001:db9::1]:1"}, nil},
		"an empty list is all, too":  {[]string{front + "egress: [{to: []}]"}, "", udp, []string{"8.8.8.8:443"}, nil},
		"policies add up":            {[]string{front + "policyTypes: [Egress]", front + "egress: [{ports: [{port: 1}]}]"}, "", tcp, []string{"8.8.8.8:1"}, []string{"8.8.8.8:2"}},
		"protocol is TCP by default": {[]string{front + "egress: [{ports: [{port: 53}]}]"}, "", udp, nil, []string{"8.8.8.8:53"}},
		"a protocol's every port":    {[]string{front + "egress: [{ports: [{protocol: UDP}]}]"}, "", udp, []string{"8.8.8.8:1", "8.8.8.8:65535"}, nil},
		"endPort": {
			[]string{front + "egress: [{ports: [{port: 100, endPort: 200}]}]"}, "", tcp,
			[]string{"8.8.8.8:100", "8.8.8.8:150", "8.8.8.8:200"}, []string{"8.8.8.8:99", "8.8.8.8:201"},
		},
		"podSelector is of its own namespace": {
			[]string{front + "egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]"}, "b/none", tcp, nil, []string{"10.0.1.1:1"},
		},
		"every pod of its own namespace": {
			[]string{front + "egress: [{to: [{podSelector: {}}]}]"}, "", tcp, []string{"10.0.0.2:1"}, []string{"10.0.1.1:1", "8.8.8.8:1"},
		},
		"every pod": {
			[]string{front + "egress: [{to: [{namespaceSelector: {}}]}]"}, "", tcp,
			[]string{"10.0.0.2:1", "10.0.1.1:1", "10.0.1.4:1", "[fd00::4]:1"},
			[]string{"192.168.0.1:1" /* on its host */, "10.0.1.3:1" /* ended */, "8.8.8.8:1"},
		},
		"both selectors": {
			[]string{front + "egress: [{to: [{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}]}]"}, "", tcp,
			[]string{"10.0.1.1:1"}, []string{"10.0.1.4:1", "10.0.0.2:1"},
		},
		"either selector": {
			[]string{front + "egress: [{to: [{namespaceSelector: {matchLabels: {team: blue}}}, {podSelector: {matchLabels: {app: db}}}]}]"}, "", tcp,
			[]string{"10.0.1.1:1", "10.0.0.2:1"}, nil,
		},
		"In and NotIn": {
			[]string{front + "egress: [{to: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [web, db]}, {key: tier, operator: NotIn, values: [front]}]}}]}]"},
			"", tcp, []string{"10.0.0.2:1", "10.0.1.1:1"}, []string{"10.0.1.4:1"},
		},
		"Exists and DoesNotExist": {
			[]string{front + "egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}, {key: none, operator: DoesNotExist}]}, podSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}}]}]"},
			"", tcp, []string{"10.0.0.2:1", "10.0.1.1:1"}, nil,
		},
		"a namespace without the label": {
			[]string{front + "egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}]"}, "", tcp, nil, []string{"10.0.1.1:1"},
		},
		"ipBlock": {
			[]string{front + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 8.8.4.0/24]}}]}]"}, "", tcp,
			[]string{"8.8.8.8:1", "11.0.0.0:1"}, []string{"10.0.1.1:1", "10.255.255.255:1", "8.8.4.4:1", "[2001:db9::1]:1"},
		},
		"an ipBlock has pods in it": {
			[]string{front + "egress: [{to: [{ipBlock: {cidr: 10.0.1.0/24}}]}]"}, "", tcp, []string{"10.0.1.1:1"}, []string{"10.0.2.1:1"},
		},
		"what one ipBlock excepts, another has": {
			[]string{front + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}, {ipBlock: {cidr: 10.9.0.0/16}}]}]"}, "", tcp,
			[]string{"10.9.0.1:1"}, []string{"10.8.0.1:1"},
		},
		"IPv4 in IPv6 is IPv4": {
			[]string{front + "egress: [{to: [{ipBlock: {cidr: '::/0'}}]}, {to: [{ipBlock: {cidr: 8.8.8.8/32}}]}]"}, "", tcp,
			[]string{"[::ffff:8.8.8.8]:1", "[2001:db9::1]:1"}, []string{"[::ffff:10.0.0.5]:1"},
		},
		"a named port is the peer's": {
			[]string{front + "egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]"}, "", tcp,
			[]string{"10.0.0.2:9090", "10.0.1.1:8081"}, []string{"10.0.0.2:8081", "10.0.1.1:8080", "10.0.1.4:5353"},
		},
		"a named port has a protocol": {
			[]string{front + "egress: [{to: [{namespaceSelector: {}}], ports: [{port: dns, protocol: UDP}]}]"}, "", udp, []string{"10.0.1.4:5353"}, []string{"10.0.1.4:53"},
		},
		"a named port of everybody": {
			[]string{front + "egress: [{ports: [{port: http}]}]"}, "", tcp, []string{"10.0.1.1:8081"}, []string{"8.8.8.8:8081", "10.0.1.1:8080"},
		},
		"an ipBlock names no ports": {
			[]string{front + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: http}]}]"}, "", tcp, nil, []string{"8.8.8.8:80", "10.0.1.1:8081"},
		},
		"the peer's ingress counts": {
			[]string{"{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]}"}, "", tcp,
			[]string{"10.0.1.1:1"}, []string{"10.0.0.2:5432"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := evaluator(t, c.specs...)
			from := named("a/web")
			if c.from != "" {
				from = named(c.from)
			}
			for _, to := range c.allows {
				require.True(t, e.Allows(from, netip.MustParseAddrPort(to), c.protocol), "to %s", to)
			}
			for _, to := range c.bars {
				require.False(t, e.Allows(from, netip.MustParseAddrPort(to), c.protocol), "to %s", to)
			}
		})
	}
}

func TestAllows_Ingress(t *testing.T) {
	type from struct {
		addr string
		port uint16
	}
	for name, c := range map[string]struct {
		specs        []string
		allows, bars []from
	}{
		"nothing selects it": {nil, []from{{"8.8.8.8", 1}, {"10.0.1.1", 1}}, nil},
		"no rule":            {[]string{front}, nil, []from{{"8.8.8.8", 1}, {"10.0.1.1", 8080}}},
		"for egress alone":   {[]string{front + "policyTypes: [Egress]"}, []from{{"8.8.8.8", 1}}, nil},
		"a named port is its own": {
			[]string{front + "ingress: [{ports: [{port: http}]}]"}, []from{{"8.8.8.8", 8080}, {"10.0.1.1", 8080}}, []from{{"10.0.1.1", 8081}},
		},
		"from pods":  {[]string{front + "ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]"}, []from{{"10.0.1.1", 1}, {"fd00::4", 1}}, []from{{"10.0.0.2", 1}, {"10.0.1.3", 1}}},
		"from block": {[]string{front + "ingress: [{from: [{ipBlock: {cidr: 10.0.1.0/24, except: [10.0.1.4/32]}}]}]"}, []from{{"10.0.1.1", 1}, {"10.0.1.9", 1}}, []from{{"10.0.1.4", 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := evaluator(t, c.specs...)
			for _, f := range c.allows {
				require.True(t, e.AllowsIngress(named("a/web"), f.port, corev1.ProtocolTCP, netip.MustParseAddr(f.addr)), "%v", f)
			}
			for _, f := range c.bars {
				require.False(t, e.AllowsIngress(named("a/web"), f.port, corev1.ProtocolTCP, netip.MustParseAddr(f.addr)), "%v", f)
			}
		})
	}
}

func TestAllows_AnUnknownPodMayDoNothing(t *testing.T) {
	e := evaluator(t)
	require.False(t, e.Allows(named("a/none"), netip.MustParseAddrPort("8.8.8.8:1"), corev1.ProtocolTCP))
	require.False(t, e.AllowsEgress(named("a/none"), netip.MustParseAddrPort("8.8.8.8:1"), corev1.ProtocolTCP))
	require.False(t, e.AllowsIngress(named("a/none"), 1, corev1.ProtocolTCP, netip.MustParseAddr("8.8.8.8")))
	_, known := e.View(named("a/none"))
	require.False(t, known)
}

func TestView_SaysWhoSelectsAPod(t *testing.T) {
	e := evaluator(t, front, "{podSelector: {}, policyTypes: [Egress]}", "podSelector: {matchLabels: {app: db}}")
	web, known := e.View(named("a/web"))
	require.True(t, known)
	require.Equal(t, []string{"p0", "p1"}, web.Policies)
	require.Equal(t, [2]bool{Ingress: true, Egress: true}, web.Isolated)
	other, known := e.View(named("b/web"))
	require.True(t, known)
	require.Empty(t, other.Policies)
	require.Equal(t, [2]bool{}, other.Isolated)
	host, _ := e.View(named("b/host"))
	require.Empty(t, host.Policies)
}

// What a network plug-in would have to program again shows in the digest, and nothing else does.
func TestView_DigestIsOfWhatTheRulesMean(t *testing.T) {
	spec := front + `egress:
  - to: [{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}]
    ports: [{port: http}]
  - to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 172.16.0.0/12]}}]`
	digest := func(change func(p []networkingv1.NetworkPolicy, pods []corev1.Pod, spaces []corev1.Namespace)) string {
		pods, namespaces := world()
		given := policies(t, spec, "{podSelector: {matchLabels: {app: db}}}")
		change(given, pods, namespaces)
		e, err := New(given, pods, namespaces)
		require.NoError(t, err)
		v, known := e.View(named("a/web"))
		require.True(t, known)
		return v.Digest()
	}
	type (
		np = []networkingv1.NetworkPolicy
		ps = []corev1.Pod
		ns = []corev1.Namespace
	)
	before := digest(func(np, ps, ns) {})
	for name, change := range map[string]func(np, ps, ns){
		"a peer's address":  func(_ np, pods ps, _ ns) { pods[2].Status.PodIP = "10.0.1.9" },
		"a peer's labels":   func(_ np, pods ps, _ ns) { pods[2].Labels["pod-template-hash"] = "2" },
		"a peer's name":     func(_ np, pods ps, _ ns) { pods[2].Name = "web-2" },
		"a peer's port":     func(_ np, pods ps, _ ns) { pods[2].Spec.Containers[0].Ports[0].ContainerPort = 1 },
		"a peer less":       func(_ np, pods ps, _ ns) { pods[2].Status.Phase = corev1.PodFailed },
		"a peer more":       func(_ np, pods ps, _ ns) { pods[5].Labels["app"] = "web" },
		"a namespace less":  func(_ np, _ ps, spaces ns) { spaces[1].Labels["team"] = "green" },
		"an exception":      func(p np, _ ps, _ ns) { p[0].Spec.Egress[1].To[0].IPBlock.Except[0] = "10.0.0.0/9" },
		"a policy more":     func(p np, _ ps, _ ns) { p[1].Spec.PodSelector.MatchLabels["app"] = "web" },
		"the policy's name": func(p np, _ ps, _ ns) { p[0].Name = "other" },
		"another direction": func(p np, _ ps, _ ns) {
			p[0].Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		},
		"not selected":       func(_ np, pods ps, _ ns) { pods[0].Labels["tier"] = "back" },
		"a rule for another": func(p np, _ ps, _ ns) { p[0].Spec.Egress[1].Ports = p[0].Spec.Egress[0].Ports },
	} {
		require.NotEqual(t, before, digest(change), name)
	}
	for name, change := range map[string]func(np, ps, ns){
		"somebody's address":      func(_ np, pods ps, _ ns) { pods[1].Status.PodIP = "10.0.0.9" },
		"somebody's labels":       func(_ np, pods ps, _ ns) { pods[5].Labels["version"] = "2" },
		"its own address":         func(_ np, pods ps, _ ns) { pods[0].Status.PodIP = "10.0.0.9" },
		"another pod's policy":    func(p np, _ ps, _ ns) { p[1].Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}} },
		"the order of exceptions": func(p np, _ ps, _ ns) { e := p[0].Spec.Egress[1].To[0].IPBlock.Except; e[0], e[1] = e[1], e[0] },
		"the order of rules":      func(p np, _ ps, _ ns) { e := p[0].Spec.Egress; e[0], e[1] = e[1], e[0] },
		"the order of pods":       func(_ np, pods ps, _ ns) { pods[0], pods[5] = pods[5], pods[0] },
		"a policy's annotations":  func(p np, _ ps, _ ns) { p[0].Annotations = map[string]string{"a": "b"} },
	} {
		require.Equal(t, before, digest(change), name)
	}
}

func TestNew_NamesThePolicyThatItCannotRead(t *testing.T) {
	for says, spec := range map[string]string{
		"selects nothing":   front + "egress: [{to: [{}]}]",
		"an ipBlock":        front + "egress: [{to: [{ipBlock: {cidr: nonsense}}]}]",
		"excepts":           front + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [nonsense]}}]}]",
		"no range":          front + "egress: [{ports: [{port: 5, endPort: 4}]}]",
		"its podSelector":   "podSelector: {matchExpressions: [{key: a, operator: Perhaps}]}",
		"the podSelector":   front + "ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: Perhaps}]}}]}]",
		"namespaceSelector": front + "ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: a, operator: Perhaps}]}}]}]",
		"is unknown":        front + "policyTypes: [Sideways]",
	} {
		pods, namespaces := world()
		_, err := New(policies(t, spec), pods, namespaces)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "NetworkPolicy a/p0")
	}
	_, err := New(nil, []corev1.Pod{newTestPod("a", "odd", "nowhere", nil)}, nil)
	require.ErrorContains(t, err, "a/odd")
}
