package realnode

import (
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// replacePolicies shows on a policy engine why runners have two policies (NET-1, NET-2). A rollout of the server changes nothing that the engine
// has programmed for a busy runner. With one policy that names the server's pods and selects every runner it does, and a job reaches the server: so
// this test, and that of isolation, would notice.
func (w *world) replacePolicies() {
	w.echoAll()
	w.duringJobs("rollouts of the server under two kinds of policies", func() {
		busy := w.await("a busy runner", isBusy)
		var own []string
		w.eventually("the policy engine has programmed the busy runner", func() bool {
			own = w.programmed(busy)
			return len(own) > 0
		})
		servers := w.serverAddresses()
		w.rollServers()
		require.NotEqual(w, servers, w.serverAddresses(), "the rollout replaced the server's pods")
		// The engine replaces all of its rules at each change, and in between there are none.
		w.eventually("the busy runner's policies have the peers of before the rollout", func() bool { return slices.Equal(own, w.programmed(busy)) })

		policies := w.kube.NetworkingV1().NetworkPolicies(runnersNamespace)
		_, err := policies.Create(w.Context(), singlePolicy(), metav1.CreateOptions{})
		require.NoError(w, err)
		var single []string
		w.eventually("the policy engine has the server's addresses for the busy runner", func() bool {
			single = w.programmed(busy)
			return containsAll(single, w.serverAddresses())
		})
		d := w.destinations()
		require.ElementsMatch(w, slices.Concat(d.job, d.idle), w.reached(w.askFromJob("isolation-of-one-policy", d)), "what a job reaches with the single policy")
		w.rollServers()
		w.eventually("the rollout has changed what is programmed for the busy runner", func() bool { return !slices.Equal(single, w.programmed(busy)) })

		require.NoError(w, policies.Delete(w.Context(), singlePolicy().Name, metav1.DeleteOptions{}))
		w.eventually("the single policy is gone from the policy engine", func() bool { return slices.Equal(own, w.programmed(busy)) })
	})
}

// singlePolicy lets every runner reach the server, as the policies of other fleets do.
func singlePolicy() *networkingv1.NetworkPolicy {
	port, tcp := intstr.FromInt32(dispatchPort), corev1.ProtocolTCP
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "single"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{runnerpod.LabelRunner: "true"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port, Protocol: &tcp}},
				To: []networkingv1.NetworkPolicyPeer{{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: systemNamespace}},
					PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "server"}},
				}},
			}},
		},
	}
}

func (w *world) rollServers() {
	for _, command := range []string{"rollout restart deployment/bullpen-server", "rollout status deployment/bullpen-server --timeout=10m"} {
		said, err := w.kubectl(append([]string{"--namespace=" + systemNamespace}, strings.Fields(command)...)...)
		require.NoError(w, err, said)
	}
	w.eventually("the server's old pods are gone", func() bool { return len(w.serverAddresses()) == 2 })
}

// serverAddresses are those of all pods of servers, sorted.
func (w *world) serverAddresses() []string {
	pods, err := w.kube.CoreV1().Pods(systemNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=server"})
	require.NoError(w, err)
	var all []string
	for i := range pods.Items {
		all = append(all, pods.Items[i].Status.PodIP)
	}
	slices.Sort(all)
	return all
}

// What kube-router 2.1.0 programs: a chain for each pod that jumps to one for each policy that selects it, whose rules match sets of addresses. The
// names of chains change; the sets' members are what counts.
var (
	policyOfPod = regexp.MustCompile(`-j (KUBE-NWPLCY-\w+)`)
	peerSet     = regexp.MustCompile(`--match-set (KUBE-DST-\w+) dst`)
)

// programmed are the peers that the node's policy engine has for a pod: the members of all sets that rules of its policies match as destinations.
func (w *world) programmed(pod corev1.Pod) []string {
	rules := w.onNode("iptables-save", "-t", "filter")
	chain := regexp.MustCompile(`-s ` + regexp.QuoteMeta(pod.Status.PodIP) + `/32 .*-j (KUBE-POD-FW-\w+)`).FindStringSubmatch(rules)
	if chain == nil {
		return nil
	}
	sets := map[string]bool{}
	for _, jump := range rulesOf(rules, chain[1]) {
		policy := policyOfPod.FindStringSubmatch(jump)
		if policy == nil {
			continue
		}
		for _, rule := range rulesOf(rules, policy[1]) {
			for _, match := range peerSet.FindAllStringSubmatch(rule, -1) {
				sets[match[1]] = true
			}
		}
	}
	var peers []string
	for line := range strings.SplitSeq(w.onNode("ipset", "save"), "\n") {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "add" && sets[fields[1]] {
			peers = append(peers, strings.Join(fields[2:], " "))
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

func rulesOf(rules, chain string) []string {
	var own []string
	for line := range strings.SplitSeq(rules, "\n") {
		if strings.HasPrefix(line, "-A "+chain+" ") {
			own = append(own, line)
		}
	}
	return own
}

func containsAll(peers, addresses []string) bool {
	for _, address := range addresses {
		if address == "" || !slices.ContainsFunc(peers, func(peer string) bool { return strings.HasPrefix(peer, address+" ") || peer == address }) {
			return false
		}
	}
	return true
}

// onNode is the output of a command on the node. Its programs may be writing: an empty output is tried again by the callers.
func (w *world) onNode(args ...string) string {
	output, err := w.node.Command(w.Context(), args...).Output()
	if err != nil {
		w.Logf("%v on the node: %v", args, err)
	}
	return string(output)
}
