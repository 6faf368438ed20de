package runnerscaler

import (
	"context"
	"fmt"
	"time"
	_ "time/tzdata" // schedules name time zones, and images have no list of them

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling/selfregistering"
)

// The defaults of the spec's fields, for objects that were made without the API server's defaulting.
const (
	defaultMin       = 1
	defaultCooldown  = 10 * time.Minute
	defaultReadEvery = 5 * time.Minute
)

// lag is how late GitHub's messages may be.
const lag = time.Minute

// owner is one RunnerDeployment or RunnerSet as a pass has seen it.
type owner struct {
	kind, namespace, name string
	uid                   types.UID
	object                client.Object // a copy, for Events and for the patch
	deleted               bool
	registration          v1alpha1.Registration
	scaling               *v1alpha1.RunnerAutoscaling // nil: it does not autoscale, or is being deleted
	runners               selfregistering.Runners
	status                *v1alpha1.AutoscalingStatus
	memory                *memory
	rivals                []string
}

func (o *owner) labels() []string {
	if o.registration.Labels == nil {
		return []string{}
	}
	return o.registration.Labels
}

// place is where the owner's runners are registered, and with which credentials.
func (o *owner) place() (registration.Credentials, registration.Target) {
	r := o.registration
	credentials := registration.Credentials{}
	if r.Credentials != nil {
		credentials = registration.Credentials{Namespace: o.namespace, Secret: r.Credentials.SecretName}
	}
	return credentials, registration.Target{Enterprise: r.Enterprise, Organization: r.Organization, Repository: r.Repository, Group: r.Group}
}

// repositories are those whose queue is read.
func (o *owner) repositories() []string {
	if o.scaling == nil || o.scaling.Jobs == nil {
		return nil
	}
	if o.registration.Repository != "" {
		return []string{o.registration.Repository}
	}
	return o.scaling.Jobs.Repositories
}

func (o *owner) readEvery() time.Duration {
	return duration(o.scaling.Jobs.ReadEvery, defaultReadEvery)
}

func duration(d *metav1.Duration, standard time.Duration) time.Duration {
	if d == nil {
		return standard
	}
	return d.Duration
}

// observe reads all owners, in the order of the cache, and forgets those that are gone.
func (s *Scaler) observe(ctx context.Context) ([]owner, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	in := client.InNamespace(s.options.Namespace)
	var deployments v1alpha1.RunnerDeploymentList
	var sets v1alpha1.RunnerSetList
	var replicaSets v1alpha1.RunnerReplicaSetList
	for _, list := range []client.ObjectList{&deployments, &sets, &replicaSets} {
		if err := s.client.List(ctx, list, in); err != nil {
			return nil, fmt.Errorf("listing owners of runners: %w", err)
		}
	}
	var owners []owner
	for i := range deployments.Items {
		d := &deployments.Items[i]
		o := ownerOf(v1alpha1.KindRunnerDeployment, d, d.Spec.Template.Spec.Registration, d.Spec.Autoscaling, d.Status.RunnerCounts, d.Status.Autoscaling)
		o.runners.CompleteAt = completeAt(d, replicaSets.Items)
		owners = append(owners, o)
	}
	for i := range sets.Items {
		r := &sets.Items[i]
		o := ownerOf(v1alpha1.KindRunnerSet, r, r.Spec.Registration, r.Spec.Autoscaling, r.Status.RunnerCounts, r.Status.Autoscaling)
		if r.Status.CompleteAt != nil {
			o.runners.CompleteAt = r.Status.CompleteAt.Time
		}
		owners = append(owners, o)
	}
	s.remember(owners)
	return owners, nil
}

func ownerOf(
	kind string, object client.Object, at v1alpha1.Registration, scaling *v1alpha1.RunnerAutoscaling, counts v1alpha1.RunnerCounts, status *v1alpha1.AutoscalingStatus,
) owner {
	o := owner{
		kind: kind, namespace: object.GetNamespace(), name: object.GetName(), uid: object.GetUID(), object: object, registration: at, status: status,
		deleted: object.GetDeletionTimestamp() != nil, runners: selfregistering.Runners{Exist: int(counts.Replicas), Busy: int(counts.Busy)},
	}
	if !o.deleted {
		o.scaling = scaling
	}
	return o
}

// completeAt is that of the deployment's present template: its former sets are complete when they are empty.
func completeAt(d *v1alpha1.RunnerDeployment, sets []v1alpha1.RunnerReplicaSet) (at time.Time) {
	for i := range sets {
		set := &sets[i]
		if metav1.IsControlledBy(set, d) && set.Status.TemplateHash == d.Status.TemplateHash && set.Status.CompleteAt != nil && set.Status.CompleteAt.After(at) {
			at = set.Status.CompleteAt.Time
		}
	}
	return at
}

func (s *Scaler) remember(owners []owner) {
	known := make(map[types.UID]*memory, len(owners))
	names := make([]string, len(owners))
	for i, o := range owners {
		names[i] = o.name
	}
	for i := range owners {
		o := &owners[i]
		o.rivals = names
		o.memory = s.memory[o.uid]
		if o.memory == nil {
			o.memory = &memory{state: stateOf(o.status), written: o.status}
		}
		known[o.uid] = o.memory
		if o.scaling == nil {
			o.memory.state = selfregistering.State{} // when it autoscales again it begins with what it has by then
		}
	}
	s.memory = known
}

// stateOf is what an owner's status says, for one that this process has not seen before.
func stateOf(status *v1alpha1.AutoscalingStatus) selfregistering.State {
	state := selfregistering.State{}
	if status == nil {
		return state
	}
	if status.DesiredReplicas != nil {
		state.Desired, state.Decided = int(*status.DesiredReplicas), true
	}
	if status.ScaledAt != nil {
		state.ScaledAt = status.ScaledAt.Time
	}
	if status.LastScaleDownTime != nil {
		state.LastScaleDown = status.LastScaleDownTime.Time
	}
	return state
}

// input is the input of a decision about the owner.
func (s *Scaler) input(o *owner, now time.Time) selfregistering.Input {
	spec := selfregistering.Spec{
		Owner: o.name, Rivals: o.rivals, Min: int(ptr.Deref(o.scaling.MinReplicas, defaultMin)), Max: int(o.scaling.MaxReplicas),
		Cooldown: duration(o.scaling.ScaleDownCooldown, defaultCooldown),
	}
	evidence := selfregistering.Evidence{Server: o.memory.word}
	if jobs := o.scaling.Jobs; jobs != nil {
		spec.Jobs = &selfregistering.Jobs{MinIdle: int(jobs.MinIdle), Lag: lag}
		if !o.memory.word.Sees { // which runner took which job is unknown until the queue is read again
			spec.Jobs.Lag = o.readEvery() + lag
		}
		evidence.Queues = s.readings.queues(o)
	}
	if p := o.scaling.PercentageBusy; p != nil {
		spec.Percentage = &selfregistering.Percentage{
			UpAbove: int(p.UpAbove), DownBelow: int(p.DownBelow), UpFactor: int(p.UpFactor), DownFactor: int(p.DownFactor),
		}
	}
	for _, schedule := range o.scaling.Schedules {
		spec.Schedules = append(spec.Schedules, s.schedule(schedule))
	}
	return selfregistering.Input{Now: now, Spec: spec, Runners: o.runners, Evidence: evidence, State: o.memory.state}
}

func (s *Scaler) schedule(from v1alpha1.ScalingSchedule) selfregistering.Schedule {
	to := selfregistering.Schedule{
		Name: from.Name, Start: from.Start.Time, End: from.End.Time, Repeat: selfregistering.Frequency(from.Repeat), Min: int(from.MinReplicas),
	}
	if from.Until != nil {
		to.Until = from.Until.Time
	}
	zone, known := s.zones[from.TimeZone]
	if !known {
		var err error
		if zone, err = time.LoadLocation(from.TimeZone); err != nil || from.TimeZone == "Local" { // that would be the controller's
			zone = nil
		}
		if len(s.zones) > 1000 { // there are fewer; the rest is made up
			clear(s.zones)
		}
		s.zones[from.TimeZone] = zone
	}
	if to.Zone = zone; zone == nil {
		to.Problem = fmt.Sprintf("unknown time zone %s: use one such as Europe/Berlin", from.TimeZone)
	}
	return to
}
