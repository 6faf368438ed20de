package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// defaultAccount is the ServiceAccount that pods have which name none.
const defaultAccount = "default"

// pullSecretsFor is how long the pull secrets of a namespace are taken for what they were.
const pullSecretsFor = 30 * time.Second

// pullSecrets remembers those of the ServiceAccount default, so that a batch of runners costs one read. It is safe for concurrent use.
type pullSecrets struct {
	mu    sync.Mutex
	known map[string]namespaceSecrets
}

type namespaceSecrets struct {
	at      time.Time
	secrets []corev1.LocalObjectReference
}

// of reads the pull secrets of a namespace. Where they cannot be read, those that were read last are returned beside the error.
func (p *pullSecrets) of(ctx context.Context, reader client.Reader, namespace string, now time.Time) ([]corev1.LocalObjectReference, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, read := p.known[namespace]
	if read && now.Before(known.at.Add(pullSecretsFor)) {
		return known.secrets, nil
	}
	var accounts corev1.ServiceAccountList
	if err := reader.List(ctx, &accounts, client.InNamespace(namespace), client.MatchingFields{"metadata.name": defaultAccount}); err != nil {
		return known.secrets, fmt.Errorf("reading the pull secrets of ServiceAccount %s/%s: %w", namespace, defaultAccount, err)
	}
	known = namespaceSecrets{at: now}
	for i := range accounts.Items {
		known.secrets = append(known.secrets, slices.Clone(accounts.Items[i].ImagePullSecrets)...)
	}
	if p.known == nil {
		p.known = map[string]namespaceSecrets{}
	}
	p.known[namespace] = known
	return known.secrets, nil
}

// podOptions are the options of a pool's pods that are made now.
func (r *Reconciler) podOptions(ctx context.Context, pool types.NamespacedName) runnerpod.Options {
	options := r.options.Pod
	secrets, err := r.pullSecrets.of(ctx, r.reader, pool.Namespace, r.now())
	if err != nil { // most runners need none, and one that does is replaced when its start times out
		r.options.Log.Warn("cannot read the image pull secrets; creating runners with the last known ones", "error", err)
	}
	preferred := r.tracker.images.preference(pool)
	options.Around = runnerpod.Surroundings{
		PullSecrets: secrets, Architecture: r.tracker.nodes.architecture(), ImageHosts: preferred.In, BareHosts: preferred.NotIn,
	}
	return options
}

// architecture is what runners need that choose none.
func (b *nodeBook) architecture() v1alpha1.Architecture {
	return runnerpod.DefaultArchitecture(b.all())
}
