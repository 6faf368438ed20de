package runnerscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// bench is a scaler on a real API server, whose passes a test makes; a server that answers and a GitHub that shows what it says.
type bench struct {
	*testing.T
	admin     client.WithWatch
	namespace string
	scaler    *Scaler
	registry  *prometheus.Registry
	recorder  *events.FakeRecorder
	stop      context.CancelFunc
	ctx       context.Context //nolint:containedctx // the life of one scaler

	mu      sync.Mutex
	now     time.Time
	jobs    map[string][]runnerapi.DemandJob // at the server, by owner's name; one with a runner runs
	blind   map[string]bool                  // owners that GitHub does not tell the server of
	asked   []runnerapi.DemandTarget         // in the last call
	calls   int
	down    error
	patchs  []string // what was written, by owner and body
	onPatch func(name string) error

	queue  map[string][]github.WorkflowJob // at GitHub, by repository
	reads  map[string]int
	as     map[string]place // with which credentials a repository was read last, and for which target
	onRead func(ctx context.Context, repository string) error
	onJobs func(ctx context.Context, run int64) error
}

func newBench(t *testing.T) *bench {
	env := kit.Cluster(t)
	b := &bench{
		T: t, namespace: env.Namespace(t), now: t0, jobs: map[string][]runnerapi.DemandJob{}, blind: map[string]bool{},
		queue: map[string][]github.WorkflowJob{}, reads: map[string]int{}, as: map[string]place{}, recorder: events.NewFakeRecorder(1000),
	}
	b.admin = env.Client(t, v1alpha1.AddToScheme)
	b.start()
	t.Cleanup(func() { b.halt() })
	return b
}

// start makes a scaler that knows nothing yet.
func (b *bench) start() {
	b.registry = prometheus.NewRegistry()
	counting := interceptor.NewClient(b.admin, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			body, err := patch.Data(object)
			require.NoError(b, err)
			b.mu.Lock()
			b.patchs = append(b.patchs, object.GetName()+" "+string(body))
			fail := b.onPatch
			b.mu.Unlock()
			if fail != nil {
				if err := fail(object.GetName()); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, object, patch, opts...)
		},
	})
	var err error
	b.scaler, err = newScaler(counting, b.recorder, Options{
		Source: b, Queue: b, Namespace: b.namespace, Registry: b.registry, Log: slog.New(slog.DiscardHandler), Now: b.clock,
	})
	require.NoError(b, err)
	b.ctx, b.stop = context.WithCancel(context.Background())
}

func (b *bench) halt() {
	b.stop()
	b.scaler.readings.wait()
}

func (b *bench) restart() {
	b.halt()
	b.start()
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) elapse(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// read is how often a queue has been read.
func (b *bench) read(repository string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads[repository]
}

// look is a pass after so long, with the readings that it begins finished.
func (b *bench) look(after time.Duration) {
	b.Helper()
	b.elapse(after)
	b.scaler.pass(b.ctx)
	b.scaler.readings.wait()
}

// passes advances the clock.
func (b *bench) passes(d time.Duration) {
	b.Helper()
	for step := 20 * time.Second; d > 0; d -= step {
		b.look(min(d, step))
	}
}

// Demand implements Source.
func (b *bench) Demand(_ context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.asked = targets
	if b.down != nil {
		return nil, b.down
	}
	var out []runnerapi.TargetDemand
	for _, target := range targets {
		name := target.Labels[0]
		answer := runnerapi.TargetDemand{Key: target.Key, Sees: !b.blind[name], Queued: []runnerapi.DemandJob{}, Running: []runnerapi.DemandJob{}}
		for _, job := range b.jobs[name] {
			if job.RunnerName != "" {
				answer.Running = append(answer.Running, job)
			} else {
				answer.Queued = append(answer.Queued, job)
			}
		}
		out = append(out, answer)
	}
	return out, nil
}

// Runs implements Queue: each job is a run of its own.
func (b *bench) Runs(
	ctx context.Context, credentials registration.Credentials, target registration.Target, repository, status string, page int,
) (runs []github.Run, next int, err error) {
	b.mu.Lock()
	jobs, fail := b.queue[repository], b.onRead
	b.as[repository] = place{credentials: credentials, target: target}
	if status == github.RunQueued && page == 1 {
		b.reads[repository]++
	}
	b.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, repository); err != nil {
			return nil, 0, err
		}
	}
	for _, job := range jobs {
		if job.Status == status {
			runs = append(runs, github.Run{ID: job.ID, Status: status})
		}
	}
	if len(runs) == 0 {
		return nil, 0, nil
	}
	if page < len(runs) { // one a page
		next = page + 1
	}
	return runs[page-1 : page], next, nil
}

// RunJobs implements Queue.
func (b *bench) RunJobs(
	ctx context.Context, _ registration.Credentials, _ registration.Target, repository string, run int64, _ int,
) ([]github.WorkflowJob, int, error) {
	if b.onJobs != nil {
		if err := b.onJobs(ctx, run); err != nil {
			return nil, 0, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, job := range b.queue[repository] {
		if job.ID == run {
			return []github.WorkflowJob{job, {ID: job.ID + 1000, Status: github.JobCompleted, Labels: job.Labels}}, 0, nil
		}
	}
	return nil, 0, errors.New("no such run")
}

// waits has jobs of the server's wait for an owner's runners.
func (b *bench) waits(name string, ids ...int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[name] = nil
	for _, id := range ids {
		b.jobs[name] = append(b.jobs[name], runnerapi.DemandJob{ID: id, Repository: "acme/app", Since: b.now})
	}
}

func atGitHub(id int64, status string, labels ...string) github.WorkflowJob {
	return github.WorkflowJob{ID: id, Status: status, Labels: labels}
}

func template(name string) v1alpha1.RunnerSpec {
	return v1alpha1.RunnerSpec{
		Registration: v1alpha1.Registration{Organization: "acme", Labels: []string{name}},
		Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "runner:1"}}}},
	}
}

func autoscaling(least, most int32) *v1alpha1.RunnerAutoscaling {
	return &v1alpha1.RunnerAutoscaling{MinReplicas: ptr.To(least), MaxReplicas: most, Jobs: &v1alpha1.JobDemand{}}
}

// deployment makes a RunnerDeployment whose label is its name.
func (b *bench) deployment(name string, scaling *v1alpha1.RunnerAutoscaling, change ...func(*v1alpha1.RunnerSpec)) *v1alpha1.RunnerDeployment {
	b.Helper()
	d := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec:       v1alpha1.RunnerDeploymentSpec{Autoscaling: scaling, Template: v1alpha1.RunnerTemplateSpec{Spec: template(name)}},
	}
	for _, c := range change {
		c(&d.Spec.Template.Spec)
	}
	require.NoError(b, b.admin.Create(b.Context(), d))
	return d
}

func (b *bench) set(name string, scaling *v1alpha1.RunnerAutoscaling) *v1alpha1.RunnerSet {
	b.Helper()
	s := &v1alpha1.RunnerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec:       v1alpha1.RunnerSetSpec{Autoscaling: scaling, RunnerSpec: template(name)},
	}
	require.NoError(b, b.admin.Create(b.Context(), s))
	return s
}

// counts writes what an owner counts, as its controller does.
func (b *bench) counts(object client.Object, exist, busy int) {
	b.Helper()
	body := fmt.Sprintf(`{"status":{"replicas":%d,"busy":%d,"starting":0,"idle":0,"terminating":0,"finished":0,"updatedReplicas":0}}`, exist, busy)
	require.NoError(b, b.admin.Status().Patch(b.Context(), object, client.RawPatch("application/merge-patch+json", []byte(body))))
}

func (b *bench) status(object client.Object) *v1alpha1.AutoscalingStatus {
	b.Helper()
	require.NoError(b, b.admin.Get(b.Context(), client.ObjectKeyFromObject(object), object))
	if set, is := object.(*v1alpha1.RunnerSet); is {
		return set.Status.Autoscaling
	}
	return object.(*v1alpha1.RunnerDeployment).Status.Autoscaling
}

func (b *bench) desired(object client.Object) int {
	b.Helper()
	status := b.status(object)
	require.NotNil(b, status)
	return int(*status.DesiredReplicas)
}

// writes gives how often an owner was written since the last time that this was asked.
func (b *bench) writes(name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, patch := range b.patchs {
		if strings.HasPrefix(patch, name+" ") {
			n++
		} else {
			left = append(left, patch)
		}
	}
	b.patchs = left
	return n
}

func (b *bench) events() (all []string) {
	for len(b.recorder.Events) > 0 {
		all = append(all, <-b.recorder.Events) // bounded: its length is not zero
	}
	return all
}

func (b *bench) metric(name string, labels ...string) float64 {
	b.Helper()
	families, err := b.registry.Gather()
	require.NoError(b, err)
	total := 0.0
	for _, family := range families {
		if family.GetName() != "bullpen_runnerscaler_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			text, err := json.Marshal(m.GetLabel())
			require.NoError(b, err)
			has := true
			for _, label := range labels {
				has = has && strings.Contains(string(text), `"`+label+`"`)
			}
			if has {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}
