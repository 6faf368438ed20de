package registered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Name of the controller of pods, in logs, metrics and Events.
const Name = "registered"

// Roster says what GitHub lists: registration.Roster. It never waits, and is safe for concurrent use.
type Roster interface {
	Look(credentials registration.Credentials, target registration.Target, name string) registration.Sighting
}

// Options configures the Service.
type Options struct {
	// Registrars reach GitHub. Required.
	Registrars registration.Registrars
	// Roster says which runners GitHub knows. Required.
	Roster Roster
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Asks is how many questions to GitHub are under way at once with one set of credentials; the default is 8.
	Asks int
	// Pods is how many pods are looked after at once; the default is 64: most of them may wait for a GitHub that hangs.
	Pods int
	// DisruptionTaints are the taints by which other tools say that they take a node away; nil: nodes.DefaultTaints.
	DisruptionTaints *nodes.Taints
	// Loads counts the runners on each node, those of other kinds included; nil: those of self-registering runners alone.
	Loads *nodeload.Book
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Registrars == nil || o.Roster == nil || o.Registry == nil || o.Log == nil {
		return o, errors.New("registered: Registrars, Roster, Registry and Log are required")
	}
	if o.Asks <= 0 {
		o.Asks = 8
	}
	if o.Pods <= 0 {
		o.Pods = 64
	}
	if o.Loads == nil {
		o.Loads = nodeload.New()
	}
	if o.DisruptionTaints == nil {
		taints := nodes.DefaultTaints()
		o.DisruptionTaints = &taints
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Service registers runners, and unregisters them. It is safe for concurrent use.
type Service struct {
	options Options
	client  client.Client
	reader  client.Reader // past the cache
	pods    client.Reader // the cache of pods
	events  events.EventRecorder
	metrics *metrics
	nodes   *nodeBook
	memory  *memory // of what GitHub has answered

	mu sync.Mutex
	// bulkheads bound what is under way with each set of credentials, so that a GitHub that hangs delays no other.
	bulkheads map[registration.Credentials]chan struct{}
	prepared  map[types.UID]remembered // by what stands behind the runner
	projected map[string]Prepared      // by pod
	listeners []func(types.NamespacedName)
}

var _ lifecycle.Fence = (*Service)(nil)

// New returns a Service: reader reads past the cache, and pods is the cache of pods. Callers without a manager call Reconcile for each pod
// that has changed.
func New(c client.Client, reader, pods client.Reader, recorder events.EventRecorder, options Options) (*Service, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{
		options: options, client: c, reader: reader, pods: pods, events: recorder, nodes: newNodeBook(*options.DisruptionTaints), memory: newMemory(),
		bulkheads: map[registration.Credentials]chan struct{}{}, prepared: map[types.UID]remembered{}, projected: map[string]Prepared{},
	}
	if s.metrics, err = newMetrics(options.Registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return s, nil
}

// Setup adds the Service's own work to the manager: the controller of pods that are being deleted, have ended, or have no
// owner. The manager's cache must hold the pods of self-registering runners, as TrimPod leaves them, Runners and nodes.
func Setup(mgr manager.Manager, options Options) (*Service, error) {
	s, err := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), mgr.GetEventRecorder(Name), options)
	if err != nil {
		return nil, err
	}
	return s, s.watch(mgr)
}

func (s *Service) now() time.Time { return s.options.Now() }

// Place is what is known of a node now. It never waits.
func (s *Service) Place(node string) Place { return s.nodes.place(node) }

// Loads counts the runners on each node, of all owners.
func (s *Service) Loads() *nodeload.Book { return s.options.Loads }

// OnChange has notify called with each pod of which something has changed that its own events do not tell: its node has
// gone or come back. It is for before the manager starts; notify must not wait.
func (s *Service) OnChange(notify func(pod types.NamespacedName)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, notify)
}

func (s *Service) changed(pod types.NamespacedName) {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, notify := range listeners {
		notify(pod)
	}
}

// View reads a pod from the cache; false where there is none.
func (s *Service) View(ctx context.Context, pod types.NamespacedName) (View, bool, error) {
	return s.view(ctx, s.pods, pod)
}

// Fresh is View past the cache: its no is authoritative.
func (s *Service) Fresh(ctx context.Context, pod types.NamespacedName) (View, bool, error) {
	return s.view(ctx, s.reader, pod)
}

func (s *Service) view(ctx context.Context, from client.Reader, key types.NamespacedName) (View, bool, error) {
	var pod corev1.Pod
	if err := from.Get(ctx, key, &pod); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return View{}, false, nil
		}
		return View{}, false, fmt.Errorf("reading pod %s: %w", key.Name, err)
	}
	return Observe(&pod), true, nil
}

// Remover deletes the pods of self-registering runners, with this Service as its fence (EXCL-2).
func (s *Service) Remover() *removal.Remover {
	return &removal.Remover{Client: s.client, Fence: s}
}

// RemovePod removes a pod as it was observed, if GitHub has removed its registration, or if the pod has ended. Granted means that the
// deletion was accepted, or that the pod is gone; any other verdict that the pod stays, and why. Calling it again at once is harmless:
// answers are kept for as long as they hold.
func (s *Service) RemovePod(ctx context.Context, v *View) (lifecycle.Answer, error) {
	place := s.Place(v.Node)
	grant := removal.Grant{NodeGone: place.vanished(s.now())}
	if grant.NodeGone {
		gone, err := s.nodes.confirm(ctx, s.reader, v.Node, s.now()) // POOL-7: it may have come back since
		if err != nil || !gone {
			return lifecycle.Answer{Detail: "its node " + v.Node + " may be there again"}, err
		}
	}
	if !v.Ended {
		ref := v.Ref()
		ref.Lost = place.Lost(s.now())
		answer := s.Ask(ctx, []lifecycle.RunnerRef{ref})[0]
		if answer.Verdict != lifecycle.Granted {
			return answer, nil
		}
		grant.UID, grant.Proof, grant.Lost = v.UID, answer.Proof, ref.Lost
	}
	pod := v.Removal()
	if !v.Ended { // the grant has been written on the pod since
		fresh, exists, err := s.Fresh(ctx, v.Key())
		if err != nil || !exists || fresh.UID != v.UID {
			return lifecycle.Answer{Verdict: lifecycle.Granted}, err
		}
		pod = fresh.Removal()
	}
	answer, err := s.Remover().Remove(ctx, pod, grant)
	switch {
	case err == nil:
		s.metrics.removals.Inc()
		return lifecycle.Answer{Verdict: lifecycle.Granted}, nil
	case errors.Is(err, lifecycle.ErrNotNow):
		return answer, nil
	case errors.Is(err, lifecycle.ErrVetoed), errors.Is(err, lifecycle.ErrNoGrant):
		return lifecycle.Answer{Verdict: lifecycle.Busy, Detail: pod.Signs.Work()}, nil
	default:
		return lifecycle.Answer{}, fmt.Errorf("removing runner %s: %w", v.Name, err)
	}
}

// patchPod merges into exactly that pod. That it is gone is no failure.
func (s *Service) patchPod(ctx context.Context, v *View, patch map[string]any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("writing on pod %s: %w", v.Name, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name}}
	if err := s.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, text)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing on pod %s: %w", v.Name, err)
	}
	return nil
}
