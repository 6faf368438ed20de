package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/prepull"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// prepullRetry is the delay after a write of a DaemonSet that failed. Runners do not wait for it.
const prepullRetry = 30 * time.Second

// imagesLook is how often a pool checks its DaemonSet while images are missing on nodes and nothing happens.
const imagesLook = 5 * time.Minute

// imageBook knows on which nodes the images of each pool's template are (docs/adr/0058). It is safe for concurrent use; a pool's lock may be
// held while it is asked, never the other way round. The book of nodes may be asked while its own is held.
type imageBook struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*poolImages
}

// poolImages is one pool's part of the book.
type poolImages struct {
	set     *prepull.Set
	wanted  prepullSpec
	made    prepullMade
	daemons daemonSet
	failure string // why the DaemonSet is not as it should be; empty: it is
}

// prepullSpec is what a pool's template says of its images. The zero value is for pools without spec.imagePrepull.
type prepullSpec struct {
	from      string // what it was made from; empty: it is made again
	images    string
	placement *nodes.Placement
	class     *nodev1.RuntimeClass // that the template names
	unread    error                // why the class is not known
}

// prepullMade is the DaemonSet for a prepullSpec, and what it was made from.
type prepullMade struct {
	from    string
	daemons *appsv1.DaemonSet
}

// daemonSet is the DaemonSet as the cache, or our own last write, shows it. The zero value is for none.
type daemonSet struct {
	uid, owner            types.UID // owner is empty for one that no object controls
	resourceVersion, spec string
	deleting              bool
}

func newImageBook() *imageBook {
	return &imageBook{pools: map[types.NamespacedName]*poolImages{}}
}

func (b *imageBook) of(pool types.NamespacedName) *poolImages {
	p := b.pools[pool]
	if p == nil {
		p = &poolImages{set: prepull.NewSet()}
		b.pools[pool] = p
	}
	return p
}

// tidy forgets a pool of which nothing is left.
func (b *imageBook) tidy(pool types.NamespacedName) {
	if p := b.pools[pool]; p != nil && p.wanted.placement == nil && p.daemons.uid == "" && p.set.Pods() == 0 {
		delete(b.pools, pool)
	}
}

// want notes what a pool's template says, and reports whether that may change its plan.
func (b *imageBook) want(pool types.NamespacedName, spec prepullSpec, known *nodeBook) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if spec.placement == nil && b.pools[pool] == nil {
		return false
	}
	p := b.of(pool)
	moved := p.wanted.placement != spec.placement
	p.wanted = spec
	if moved {
		p.place(known.all())
	}
	changed := p.set.Want(spec.images)
	b.tidy(pool)
	return moved || changed
}

// place determines on which nodes the pool's pods can run.
func (p *poolImages) place(shown []*corev1.Node) {
	gone := map[string]bool{}
	for _, name := range p.set.Nodes() {
		gone[name] = true
	}
	for _, node := range shown {
		delete(gone, node.Name)
		p.put(node)
	}
	for name := range gone {
		p.set.DropNode(name)
	}
}

func (p *poolImages) put(node *corev1.Node) bool {
	if p.wanted.placement == nil || !p.wanted.placement.Daemons(node) {
		return p.set.DropNode(node.Name)
	}
	return p.set.PutNode(node.Name, node.Labels[corev1.LabelHostname])
}

// nodeSeen notes a change of a node, and returns the pools for which it matters.
func (b *imageBook) nodeSeen(node *corev1.Node) []types.NamespacedName {
	return b.each(func(p *poolImages) bool { return p.put(node) })
}

// nodeGone is nodeSeen for a node that the watch no longer shows.
func (b *imageBook) nodeGone(name string) []types.NamespacedName {
	return b.each(func(p *poolImages) bool { return p.set.DropNode(name) })
}

func (b *imageBook) each(change func(*poolImages) bool) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changed []types.NamespacedName
	for key, p := range b.pools {
		if p.wanted.placement != nil && change(p) {
			changed = append(changed, key)
		}
	}
	return changed
}

// podSeen notes what a pre-pull pod shows, and returns the nodes for which it matters.
func (b *imageBook) podSeen(pool types.NamespacedName, name string, pod prepull.Pod) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(pool).set.PutPod(name, pod)
}

// podGone is podSeen for a pod that is gone.
func (b *imageBook) podGone(pool types.NamespacedName, name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.of(pool).set.DropPod(name)
	b.tidy(pool)
	return changed
}

// daemonsSeen notes what is known of a pool's DaemonSet, and reports whether a pass has something to do for it. The cache may show it as it
// was before our last write.
func (b *imageBook) daemonsSeen(pool types.NamespacedName, seen daemonSet) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(pool)
	old := p.daemons
	if old.uid == seen.uid && older(seen.resourceVersion, old.resourceVersion) {
		return false
	}
	p.daemons = seen
	b.tidy(pool)
	old.resourceVersion = seen.resourceVersion
	return old != seen
}

// daemonsGone notes that the DaemonSet of that UID is gone.
func (b *imageBook) daemonsGone(pool types.NamespacedName, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.of(pool); p.daemons.uid == uid {
		p.daemons = daemonSet{}
	}
	b.tidy(pool)
}

// read returns a copy of what is known of a pool, without its set.
func (b *imageBook) read(pool types.NamespacedName) poolImages {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pools[pool]; p != nil {
		return poolImages{wanted: p.wanted, made: p.made, daemons: p.daemons, failure: p.failure}
	}
	return poolImages{}
}

func (b *imageBook) remember(pool types.NamespacedName, made prepullMade) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(pool).made = made
}

func (b *imageBook) fail(pool types.NamespacedName, failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pools[pool]; p != nil {
		p.failure = failure
	}
}

// lacks reports whether runners of the pool keep their template on that node, because the images of the new one are not there.
func (b *imageBook) lacks(pool types.NamespacedName, node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[pool]
	return p != nil && node != "" && p.set.Lacks(node)
}

// imageFacts are what a pool's conditions say of its images, and when to look again.
type imageFacts struct {
	prepull.Report
	failure string // why the DaemonSet is not as it should be; empty: it is, or that is not known
	next    time.Time
}

func (b *imageBook) facts(pool types.NamespacedName) imageFacts {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pools[pool]; p != nil {
		return imageFacts{Report: p.set.Report(), failure: p.failure}
	}
	return imageFacts{}
}

// preference is which nodes new runners of the pool prefer.
func (b *imageBook) preference(pool types.NamespacedName) prepull.Preference {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pools[pool]; p != nil {
		return p.set.Preference()
	}
	return prepull.Preference{}
}

// lookAtImages notes which images the pool's template needs, so that this very pass rolls no runner without them.
func (r *Reconciler) lookAtImages(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState, invalid error) {
	var spec prepullSpec
	if runnerpod.Prepulls(pool) {
		if invalid != nil {
			return // no pod is built from it, and nothing is rolled
		}
		var err error
		if spec, err = r.prepullSpec(ctx, pool, r.tracker.images.read(state.key).wanted); err != nil {
			r.options.Log.Error("cannot read a template's images", "pool", pool.Name, "error", err) // it was built before
			return
		}
	}
	if r.tracker.images.want(state.key, spec, r.tracker.nodes) {
		state.settleAll(r.now())
	}
}

// prepullSpec reads what a pool's template says of its images, or returns the last one if it is made from the same.
func (r *Reconciler) prepullSpec(ctx context.Context, pool *v1alpha1.RunnerPool, last prepullSpec) (prepullSpec, error) {
	options := r.options.Pod
	options.Around = runnerpod.Surroundings{Architecture: r.tracker.nodes.architecture()}
	spec := prepullSpec{}
	if spec.class, spec.unread = r.runtimeClass(ctx, pool); spec.unread == nil {
		spec.from = fmt.Sprint(pool.UID, pool.Generation, options.Around.Architecture, classVersion(spec.class))
		if spec.from == last.from {
			return last, nil
		}
	}
	var err error
	if spec.images, err = runnerpod.Images(pool, options); err != nil {
		return spec, err
	}
	placement, err := nodes.PlacementOf(pool, options, spec.class)
	spec.placement = &placement
	return spec, err
}

// keepImages brings the pool's DaemonSet in line, after the runners: they do not wait for it. A failure is shown, and repaired later.
func (r *Reconciler) keepImages(ctx context.Context, pool *v1alpha1.RunnerPool, key types.NamespacedName, valid bool) imageFacts {
	var retry time.Time
	switch err := r.keepDaemons(ctx, pool, key, valid); {
	case err == nil:
		r.tracker.images.fail(key, "")
	case apierrors.IsConflict(err): // the cache lags
		retry = r.now().Add(time.Second)
	case ctx.Err() == nil:
		r.options.Log.Warn("cannot keep a pool's DaemonSet; retrying", "pool", pool.Name, "error", err)
		r.tracker.images.fail(key, firstLine(err))
		retry = r.now().Add(prepullRetry)
	}
	facts := r.tracker.images.facts(key)
	if facts.next = retry; facts.Missing() > 0 {
		facts.next = earlier(retry, r.now().Add(imagesLook)) // what the pods need may have changed, such as pull secrets
	}
	return facts
}

func (r *Reconciler) keepDaemons(ctx context.Context, pool *v1alpha1.RunnerPool, key types.NamespacedName, valid bool) error {
	known := r.tracker.images.read(key)
	switch {
	case !runnerpod.Prepulls(pool):
		return r.writeDaemons(ctx, pool, key, nil)
	case !valid:
		return nil // an invalid template takes nothing away
	case known.wanted.unread != nil:
		return fmt.Errorf("reading the RuntimeClass: %w", known.wanted.unread)
	}
	secrets, err := r.pullSecrets.of(ctx, r.reader, pool.Namespace, r.now())
	if err != nil {
		return err
	}
	if from := fmt.Sprint(known.wanted.from, secrets); from != known.made.from {
		options := r.options.Pod
		options.Around = runnerpod.Surroundings{Architecture: r.tracker.nodes.architecture(), PullSecrets: secrets}
		daemons, err := runnerpod.Prepull(pool, options, known.wanted.class)
		if err != nil {
			return err
		}
		known.made = prepullMade{from: from, daemons: daemons}
		r.tracker.images.remember(key, known.made)
	}
	return r.writeDaemons(ctx, pool, key, known.made.daemons)
}

func (r *Reconciler) writeDaemons(ctx context.Context, pool *v1alpha1.RunnerPool, key types.NamespacedName, want *appsv1.DaemonSet) error {
	seen := r.tracker.images.read(key).daemons
	ours := seen.owner == "" || seen.owner == pool.UID
	switch {
	case seen.deleting, want == nil && (seen.uid == "" || !ours):
		return nil // the garbage collector deletes that of a former pool
	case want == nil:
		return r.deleteDaemons(ctx, key, seen)
	case !ours:
		return fmt.Errorf("DaemonSet %s belongs to another object: delete it", want.Name)
	case seen.uid != "" && seen.spec == want.Annotations[runnerpod.AnnotationPrepullSpec] && seen.owner != "":
		return nil
	}
	next := want.DeepCopy()
	if seen.uid == "" {
		if err := r.client.Create(ctx, next); err != nil {
			return fmt.Errorf("creating DaemonSet %s: %w", next.Name, err)
		}
	} else {
		next.UID, next.ResourceVersion = seen.uid, seen.resourceVersion
		if err := r.client.Update(ctx, next); err != nil {
			return fmt.Errorf("updating DaemonSet %s: %w", next.Name, err)
		}
	}
	r.tracker.images.daemonsSeen(key, observeDaemons(next))
	return nil
}

// deleteDaemons deletes the DaemonSet of a pool that no longer pre-pulls, or is being deleted. Its pods are no runners, and go with it.
func (r *Reconciler) deleteDaemons(ctx context.Context, key types.NamespacedName, seen daemonSet) error {
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: runnerpod.PrepullName(key.Name)}}
	if err := r.client.Delete(ctx, daemons, client.Preconditions{UID: &seen.uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DaemonSet %s: %w", daemons.Name, err)
	}
	r.tracker.images.daemonsGone(key, seen.uid)
	return nil
}
