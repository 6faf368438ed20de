package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Options configure a View.
type Options struct {
	Config    *rest.Config
	Namespace string // of runner pods, pools and MacHosts
	// MacHosts has those watched, too; nothing waits for them.
	MacHosts bool
	// PoolSpecChanged is called when a pool appears, or its spec changes; nil: nothing is. It must not block.
	PoolSpecChanged func()
	Log             *slog.Logger
	Now             func() time.Time
}

// Handler gets the changes, one at a time per kind. It must not block.
type Handler interface {
	PodChanged(pod dispatch.Pod)
	PodGone(pod dispatch.Pod)
	PoolsChanged()
}

// View implements dispatch.Cluster. It is safe for concurrent use once Run has been called.
type View struct {
	opt      Options
	client   kubernetes.Interface
	pods     cache.SharedIndexInformer
	accounts cache.SharedIndexInformer
	pools    cache.SharedIndexInformer
	hosts    cache.SharedIndexInformer // nil: they are not watched
	reviews  *reviewCache
}

var _ dispatch.Cluster = (*View)(nil)

// The names of the indexes.
const byUID = "uid"

// New prepares the watches; nothing is read before Run.
func New(opt Options) (*View, error) {
	if opt.Config == nil || opt.Namespace == "" {
		return nil, errors.New("the view of the cluster needs a client configuration and a namespace")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	client, err := kubernetes.NewForConfig(opt.Config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	v := &View{opt: opt, client: client, reviews: newReviewCache(opt.Now)}
	v.pods = podInformer(client, opt.Namespace)
	v.accounts = accountInformer(client, opt.Namespace)
	if v.pools, err = poolInformer(opt.Config, opt.Namespace); err != nil {
		return nil, err
	}
	if opt.MacHosts {
		if v.hosts, err = hostInformer(opt.Config, opt.Namespace); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Run watches until ctx ends. It returns early only when a handler cannot be registered.
func (v *View) Run(ctx context.Context, h Handler) error {
	podEvents := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { v.podEvent(obj, h.PodChanged) },
		UpdateFunc: func(_, obj any) { v.podEvent(obj, h.PodChanged) },
		DeleteFunc: func(obj any) { v.podEvent(obj, h.PodGone) },
	}
	poolEvents := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.PoolsChanged(); v.poolSpecEvent(nil, obj) },
		UpdateFunc: func(old, obj any) { h.PoolsChanged(); v.poolSpecEvent(old, obj) },
		DeleteFunc: func(any) { h.PoolsChanged() },
	}
	if _, err := v.pods.AddEventHandler(podEvents); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := v.pools.AddEventHandler(poolEvents); err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	done := make(chan struct{})
	informers := []cache.SharedIndexInformer{v.pods, v.accounts, v.pools}
	if v.hosts != nil {
		informers = append(informers, v.hosts)
	}
	for _, informer := range informers {
		go func() {
			informer.RunWithContext(ctx)
			done <- struct{}{}
		}()
	}
	for range informers {
		<-done
	}
	return nil
}

func (v *View) podEvent(obj any, tell func(dispatch.Pod)) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		tell(toPod(pod))
	}
}

// Synced reports whether every watch that dispatch uses has delivered its first list.
func (v *View) Synced() bool {
	return v.pods.HasSynced() && v.accounts.HasSynced() && v.pools.HasSynced()
}

// Pool returns a pool that the watch shows.
func (v *View) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	obj, ok, err := v.pools.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil || !ok {
		return dispatch.Pool{}, false
	}
	return toPool(obj)
}

// Pools returns every pool.
func (v *View) Pools() []dispatch.Pool {
	var pools []dispatch.Pool
	for _, obj := range v.pools.GetStore().List() {
		if pool, ok := toPool(obj); ok {
			pools = append(pools, pool)
		}
	}
	return pools
}

// RegistersAtRepositories reports whether any pool registers its runners at the jobs' repositories.
func (v *View) RegistersAtRepositories() bool {
	return slices.ContainsFunc(v.Pools(), func(p dispatch.Pool) bool { return p.RepositoryScope })
}

// Pod returns the runner pod with that UID.
func (v *View) Pod(uid string) (dispatch.Pod, bool) {
	objs, err := v.pods.GetIndexer().ByIndex(byUID, uid)
	if err != nil || len(objs) != 1 {
		return dispatch.Pod{}, false
	}
	pod, ok := objs[0].(*corev1.Pod)
	if !ok {
		return dispatch.Pod{}, false
	}
	return toPod(pod), true
}

// Pods returns every runner pod.
func (v *View) Pods() []dispatch.Pod {
	objs := v.pods.GetStore().List()
	pods := make([]dispatch.Pod, 0, len(objs))
	for _, obj := range objs {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods = append(pods, toPod(pod))
		}
	}
	return pods
}

// ListPods asks the API server itself for every runner pod, past every cache.
func (v *View) ListPods(ctx context.Context) ([]dispatch.Pod, error) {
	list, err := v.client.CoreV1().Pods(v.opt.Namespace).List(ctx, selector(metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("listing runner pods: %w", err)
	}
	pods := make([]dispatch.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = toPod(&list.Items[i])
	}
	return pods, nil
}

// Config is what the view speaks to the API server with.
func (v *View) Config() *rest.Config { return v.opt.Config }

// StampOwner writes the owner label, on that UID only, and in the same request what NoteOwner writes. A pod that is gone
// needs none of it; one that has a label loses it only by ending.
func (v *View) StampOwner(ctx context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	return v.patchOwner(ctx, pod, owner, map[string]any{runnerpod.LabelOwner: runnerpod.OwnerLabelValue(owner.Login)})
}

// NoteOwner writes the owner's id and what keeps autoscalers of nodes from taking the node away under the job (POOL-9): an idle pod
// holds no node. It writes annotations only, which select no network policy (TEN-8).
func (v *View) NoteOwner(ctx context.Context, pod dispatch.Pod, owner dispatch.Account) error {
	return v.patchOwner(ctx, pod, owner, nil)
}

func (v *View) patchOwner(ctx context.Context, pod dispatch.Pod, owner dispatch.Account, labels map[string]any) error {
	metadata := map[string]any{
		"uid": pod.UID,
		"annotations": map[string]string{ // POOL-9
			runnerpod.AnnotationOwnerID:     strconv.FormatInt(owner.ID, 10),
			runnerpod.AnnotationSafeToEvict: "false", runnerpod.AnnotationDoNotDisrupt: "true",
		},
	}
	if labels != nil {
		metadata["labels"] = labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the owner of pod %s: %w", pod.Name, err)
	}
	_, err = v.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || otherUID(err) { // gone, or another pod of that name
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the owner of pod %s: %w", pod.Name, err)
	}
	return nil
}

// otherUID reports that a patch was refused because its uid is not the object's.
func otherUID(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// Gone asks the API server itself, past every cache.
func (v *View) Gone(ctx context.Context, namespace, name, uid string) (bool, error) {
	pod, err := v.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading pod %s: %w", name, err)
	default:
		return string(pod.UID) != uid, nil
	}
}

// Identity is who a token speaks for.
type Identity struct {
	Username string // system:serviceaccount:NAMESPACE:NAME
	PodName  string // of a pod-bound token
	PodUID   string
}

// ErrRejected: the API server does not accept the token for that audience.
var ErrRejected = errors.New("the token is not accepted")

// Review asks the API server whose token it is and whether it was made for the audience. An accepted token is
// remembered, by its hash, for at most a minute, so that a short outage of the API server stops no dispatch; a refusal
// and an error are not remembered.
func (v *View) Review(ctx context.Context, token, audience string) (Identity, error) {
	if id, ok := v.reviews.get(token, audience); ok {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	review, err := v.client.AuthenticationV1().TokenReviews().Create(ctx, &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Identity{}, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || !contains(review.Status.Audiences, audience) { // NET-3
		return Identity{}, ErrRejected
	}
	id := Identity{
		Username: review.Status.User.Username,
		PodName:  first(review.Status.User.Extra["authentication.kubernetes.io/pod-name"]),
		PodUID:   first(review.Status.User.Extra["authentication.kubernetes.io/pod-uid"]),
	}
	v.reviews.put(token, audience, id)
	return id, nil
}

// Runner returns the pod of a pod-bound token. Its pool comes only from the labels that the controller wrote on the
// pod and on its ServiceAccount of the same name, and the two must agree (NET-4). ok is false when the watch does not
// show them: the pod is gone, or was created a moment ago.
func (v *View) Runner(id Identity) (dispatch.Pod, bool) {
	pod, ok := v.Pod(id.PodUID)
	if !ok || pod.Name != id.PodName || id.Username != "system:serviceaccount:"+pod.Namespace+":"+pod.Name {
		return dispatch.Pod{}, false
	}
	obj, exists, err := v.accounts.GetStore().GetByKey(pod.Namespace + "/" + pod.Name)
	if err != nil || !exists {
		return dispatch.Pod{}, false
	}
	account, ok := obj.(*corev1.ServiceAccount)
	if !ok || account.Labels[runnerpod.LabelPool] != pod.Pool.Name {
		return dispatch.Pod{}, false
	}
	return pod, pod.Pool.Name != ""
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

func first(values authv1.ExtraValue) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
