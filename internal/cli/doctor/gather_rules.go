package doctor

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// enforceLabel of a namespace names the Pod Security level that its pods must keep.
const enforceLabel = "pod-security.kubernetes.io/enforce"

// rules reads what the namespace asks of pods. They explain a refusal, and nothing else: where they cannot be read the API server's own words
// must do, and nothing is unchecked.
func (c *clusterGatherer) rules(ctx context.Context) Rules {
	var rules Rules
	if namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, c.in.RunnerNamespace, metav1.GetOptions{}); err == nil {
		rules.Enforced = namespace.Labels[enforceLabel]
	}
	if list, err := c.kube.CoreV1().ResourceQuotas(c.in.RunnerNamespace).List(ctx, metav1.ListOptions{}); err == nil {
		rules.Quotas = list.Items
	}
	if list, err := c.kube.CoreV1().LimitRanges(c.in.RunnerNamespace).List(ctx, metav1.ListOptions{}); err == nil {
		rules.Ranges = list.Items
	}
	return rules
}

// around is what the controller puts the pods into.
func (c *clusterGatherer) around(ctx context.Context) runnerpod.Surroundings {
	around := runnerpod.Surroundings{Architecture: runnerpod.DefaultArchitecture(c.nodesSeen)}
	account, err := c.kube.CoreV1().ServiceAccounts(c.in.RunnerNamespace).Get(ctx, "default", metav1.GetOptions{})
	if err == nil {
		around.PullSecrets = account.ImagePullSecrets
	} else if !apierrors.IsNotFound(err) {
		c.could("the pull secrets of the ServiceAccount default", err)
	}
	return around
}

// architectures are those of the nodes for Linux.
func architectures(nodes []*corev1.Node) []string {
	found := map[string]bool{}
	for _, node := range nodes {
		system, said := node.Labels[corev1.LabelOSStable]
		if name := node.Labels[corev1.LabelArchStable]; name != "" && (!said || system == string(corev1.Linux)) {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// note records a finding about a pool.
func (c *clusterGatherer) note(pool string, change func(*Pool)) {
	if i := slices.IndexFunc(c.seen.Pools, func(p Pool) bool { return p.Name == pool }); i >= 0 {
		change(&c.seen.Pools[i])
	}
}

// pullSecrets looks for the Secrets that a pod names. Only whether they exist is asked: nothing of them is read.
func (c *clusterGatherer) pullSecrets(ctx context.Context, pool *v1alpha1.RunnerPool, named []corev1.LocalObjectReference) {
	if len(named) == 0 {
		return
	}
	config := rest.CopyConfig(c.look.Kubernetes)
	config.Timeout = c.look.Timeout
	client, err := metadata.NewForConfig(config)
	if !c.could("the pull secrets of the pool "+pool.Name, err) {
		return
	}
	for _, secret := range named {
		_, err := client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(c.in.RunnerNamespace).Get(ctx, secret.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			c.note(pool.Name, func(p *Pool) { p.MissingSecrets = append(p.MissingSecrets, secret.Name) })
			continue
		}
		if !c.could("the pull secrets of the pool "+pool.Name, err) {
			return
		}
	}
}

// injected keeps which containers a pool's pods have that Bullpen has not put there: of a pod that was tried, and of those that exist.
func (c *clusterGatherer) injected(pool string, names []string) {
	if len(names) == 0 {
		return
	}
	c.note(pool, func(p *Pool) {
		p.Injected = slices.Compact(slices.Sorted(slices.Values(append(p.Injected, names...))))
	})
}
