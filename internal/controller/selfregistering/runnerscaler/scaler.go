package runnerscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling/selfregistering"
)

// Name of the controller, in Events.
const Name = "bullpen-runnerscaler"

// Source says which jobs all targets' runners are for, whole or not at all.
type Source interface {
	// Demand answers for each target, in the order asked. An error means that nothing is known, not that nothing is wanted.
	Demand(ctx context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error)
}

// Queue is GitHub's queue of a repository, read with the credentials that runners of a target use. Errors are those of
// github.Client and of package registration.
type Queue interface {
	// Runs lists a page of the repository's runs of that status, newest first; next is zero on the last page.
	Runs(ctx context.Context, credentials registration.Credentials, target registration.Target, repository, status string, page int) (list []github.Run, next int, err error)
	// RunJobs lists a page of the jobs of a run's latest attempt.
	RunJobs(ctx context.Context, credentials registration.Credentials, target registration.Target, repository string, runID int64, page int) (list []github.WorkflowJob, next int, err error)
}

// Options configures the scaler.
type Options struct {
	// Source of the demand. Required.
	Source Source
	// Queue is GitHub's. Required.
	Queue Queue
	// Namespace of the owners. Required.
	Namespace string
	// Every is the time between two passes, in which all that has happened makes one write an owner; the default is 3 s.
	Every time.Duration
	// Timeout bounds one question to the server, and one write; the default is 5 s. ReadTimeout bounds the reading of one
	// repository's queue; the default is a minute.
	Timeout, ReadTimeout time.Duration
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log receives each change of a number, and each failure to observe. Required.
	Log *slog.Logger
	// Now is the clock, After its timer; the defaults are those of package time.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Source == nil || o.Queue == nil || o.Namespace == "" || o.Registry == nil || o.Log == nil {
		return o, errors.New("runnerscaler: Source, Queue, Namespace, Registry and Log are required")
	}
	orDefault := func(value *time.Duration, standard time.Duration) {
		if *value <= 0 {
			*value = standard
		}
	}
	orDefault(&o.Every, 3*time.Second)
	orDefault(&o.Timeout, 5*time.Second)
	orDefault(&o.ReadTimeout, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	return o, nil
}

// Scaler is a Runnable of a manager, for the leader only. Its passes follow each other; only the readings of queues run beside
// them.
type Scaler struct {
	options  Options
	client   client.Client
	recorder events.EventRecorder
	metrics  *metrics
	readings *readings
	nudge    chan struct{} // an owner is new, or its spec has changed

	// Of the passes alone:
	memory map[types.UID]*memory
	zones  map[string]*time.Location
	blind  bool // the server could not be asked the last time
}

// memory is what is known of one owner from one pass to the next. None of it need survive: a number that is in an owner's
// status stands until what was seen since the start says otherwise.
type memory struct {
	state   selfregistering.State
	word    selfregistering.Server // the server's last
	written *v1alpha1.AutoscalingStatus
	wroteAt time.Time
}

// Setup adds the scaler to the manager, whose cache must hold RunnerDeployments, RunnerReplicaSets and RunnerSets.
func Setup(mgr manager.Manager, options Options) error {
	s, err := newScaler(mgr.GetClient(), mgr.GetEventRecorder(Name), options)
	if err != nil {
		return err
	}
	for _, kind := range []client.Object{&v1alpha1.RunnerDeployment{}, &v1alpha1.RunnerSet{}} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), kind)
		if err != nil {
			return fmt.Errorf("watching owners of runners: %w", err)
		}
		if _, err := informer.AddEventHandler(s.specEvents()); err != nil {
			return fmt.Errorf("watching owners of runners: %w", err)
		}
	}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("adding the scaler of runners: %w", err)
	}
	return nil
}

func newScaler(c client.Client, recorder events.EventRecorder, options Options) (*Scaler, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Scaler{
		options: options, client: c, recorder: recorder, nudge: make(chan struct{}, 1),
		memory: map[types.UID]*memory{}, zones: map[string]*time.Location{},
	}
	if s.metrics, err = newMetrics(options.Registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	s.readings = newReadings(options, s.metrics)
	return s, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two scalers would each have a past of their own.
func (s *Scaler) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: a pass after the other until ctx ends, and the readings with it.
func (s *Scaler) Start(ctx context.Context) error {
	defer s.readings.wait()
	for {
		s.pass(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.options.After(s.options.Every):
		case <-s.nudge:
		}
	}
}

// specEvents start a pass when an owner is new or its spec has changed, so that a user's change takes effect at once.
func (s *Scaler) specEvents() toolscache.ResourceEventHandler {
	look := func() {
		select {
		case s.nudge <- struct{}{}:
		default: // one is enough
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() },
		UpdateFunc: func(before, after any) {
			old, was := before.(client.Object)
			changed, is := after.(client.Object)
			if was && is && old.GetGeneration() != changed.GetGeneration() {
				look()
			}
		},
	}
}

// pass looks, decides and writes once for all owners.
func (s *Scaler) pass(ctx context.Context) {
	owners, err := s.observe(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.options.Log.Error("autoscaling pass failed, numbers of runners unchanged", "error", err)
		}
		s.metrics.passes.WithLabelValues("failed").Inc()
		return
	}
	s.readings.begin(ctx, s.options.Now(), owners)
	s.ask(ctx, owners)
	if ctx.Err() != nil {
		return // what an interrupted look has shown is not worth writing
	}
	now := s.options.Now()
	var todo []change
	for i := range owners {
		o := &owners[i]
		if o.scaling == nil {
			continue
		}
		result := selfregistering.Decide(s.input(o, now))
		todo = append(todo, change{owner: o, result: result})
		o.memory.state = result.State
	}
	s.publish(ctx, now, todo)
	s.clear(ctx, owners)
	s.metrics.show(todo)
	s.metrics.passes.WithLabelValues(outcome(todo)).Inc()
}

func outcome(todo []change) string {
	for _, c := range todo {
		if c.result.Problem != "" {
			return "no_data"
		}
	}
	return "decided"
}

// ask sends one request to the server for all owners whose jobs count. Without a response the last one stands, and no number falls
// (POOL-8).
func (s *Scaler) ask(ctx context.Context, owners []owner) {
	var of []*owner
	for i := range owners {
		if o := &owners[i]; o.scaling != nil && o.scaling.Jobs != nil {
			of = append(of, o)
		}
	}
	failed := error(nil)
	for len(of) > 0 {
		some := of[:min(len(of), runnerapi.MostDemandTargets)]
		of = of[len(some):]
		if err := s.askSome(ctx, some); err != nil {
			failed = err
			for _, o := range some {
				o.memory.word.Problem = "the server cannot list queued jobs" // its cause is logged: it may be another each time
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	switch {
	case failed != nil && !s.blind:
		s.options.Log.Warn("cannot read queued jobs from the server: not scaling down until it responds", "error", failed)
	case failed == nil && s.blind:
		s.options.Log.Info("reading queued jobs from the server again")
	}
	s.blind = failed != nil
}

func (s *Scaler) askSome(ctx context.Context, owners []*owner) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	targets := make([]runnerapi.DemandTarget, len(owners))
	for i, o := range owners {
		targets[i] = runnerapi.DemandTarget{
			Key: string(o.uid), Enterprise: o.registration.Enterprise, Organization: o.registration.Organization, Repository: o.registration.Repository,
			Labels: o.labels(), NoDefaultLabels: o.registration.NoDefaultLabels, Most: int(o.scaling.MaxReplicas),
		}
		if o.registration.Enterprise != "" {
			targets[i].Repositories = o.scaling.Jobs.Repositories
		}
		most := min(runnerapi.MostDemandJobs, runnerapi.MostDemandSeen/len(owners))
		targets[i].Seen = s.readings.seen(o, most)
	}
	answers, err := s.options.Source.Demand(ctx, targets)
	if err == nil && len(answers) != len(targets) {
		err = fmt.Errorf("the server reported %d of %d targets", len(answers), len(targets))
	}
	if err != nil {
		return err
	}
	for i, o := range owners {
		o.memory.word = wordOf(answers[i])
	}
	return nil
}

func wordOf(answer runnerapi.TargetDemand) selfregistering.Server {
	word := selfregistering.Server{Sees: answer.Sees, More: answer.More, Settled: answer.Settled}
	for _, job := range answer.Queued {
		word.Jobs = append(word.Jobs, selfregistering.Job{ID: job.ID, Repository: job.Repository, Since: job.Since})
	}
	for _, job := range answer.Running {
		word.Jobs = append(word.Jobs, selfregistering.Job{ID: job.ID, Repository: job.Repository, Since: job.Since, Running: true, Runner: job.RunnerName})
	}
	return word
}
