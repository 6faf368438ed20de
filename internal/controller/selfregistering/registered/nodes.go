package registered

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
)

// checkNodeEvery is how often an absent node is looked for again while a runner is bound to it.
const checkNodeEvery = 10 * time.Second

// nodeBook is what is known of the nodes that self-registering runners are on. It is safe for concurrent use.
type nodeBook struct {
	taints nodes.Taints // announce that a node is about to be removed

	mu     sync.Mutex
	places map[string]Place
	pods   map[types.NamespacedName]Place // the place that each pod's controller was last notified of
}

func newNodeBook(taints nodes.Taints) *nodeBook {
	return &nodeBook{taints: taints, places: map[string]Place{}, pods: map[types.NamespacedName]Place{}}
}

func (b *nodeBook) place(node string) Place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.places[node]
}

// look brings the book in line with the cache, and with the API server itself where the cache shows no such node: only its
// clear no counts (POOL-7).
func (b *nodeBook) look(ctx context.Context, cached, reader client.Reader, name string, now time.Time) (Place, error) {
	if name == "" {
		return Place{}, nil
	}
	var node corev1.Node
	err := cached.Get(ctx, types.NamespacedName{Name: name}, &node)
	switch {
	case err == nil:
		place := placeOf(&node, b.taints)
		b.put(name, place)
		return place, nil
	case !apierrors.IsNotFound(err):
		return b.place(name), fmt.Errorf("looking for node %s: %w", name, err)
	}
	_, err = b.confirm(ctx, reader, name, now)
	return b.place(name), err
}

func placeOf(node *corev1.Node, taints nodes.Taints) Place {
	return Place{Departure: nodes.DepartureOf(node, taints), Unready: nodes.UnreadySince(node).UTC()}
}

// confirm asks the API server itself whether a node is gone. An error means that it is unknown.
func (b *nodeBook) confirm(ctx context.Context, reader client.Reader, name string, now time.Time) (bool, error) {
	var node corev1.Node
	err := reader.Get(ctx, types.NamespacedName{Name: name}, &node)
	switch {
	case err == nil:
		b.put(name, placeOf(&node, b.taints)) // NODE-8: it has come back
		return false, nil
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("looking for node %s: %w", name, err) // POOL-7: doubt does nothing
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places[name].Absent.IsZero() {
		b.places[name] = Place{Absent: now}
	}
	return true, nil
}

func (b *nodeBook) put(name string, place Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if place == (Place{}) {
		delete(b.places, name)
		return
	}
	b.places[name] = place
}

// moved records a pod's place, and reports whether it has changed.
func (b *nodeBook) moved(pod types.NamespacedName, place Place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.pods[pod]
	if place == (Place{}) {
		delete(b.pods, pod)
	} else {
		b.pods[pod] = place
	}
	return before != place
}
