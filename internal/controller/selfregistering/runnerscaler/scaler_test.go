package runnerscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Both kinds of owners are scaled by their jobs, up at once and down after the cooldown, in one question for all.
func TestScaler_61_UpAndDown(t *testing.T) {
	b := newBench(t)
	d, s := b.deployment("web", autoscaling(1, 4)), b.set("db", autoscaling(0, 3))
	none := b.deployment("fixed", nil)
	b.look(0)
	require.Equal(t, []int{1, 0}, []int{b.desired(d), b.desired(s)})
	require.Nil(t, b.status(none))
	require.Equal(t, 1, b.calls, "one question for all")
	require.Len(t, b.asked, 2)
	require.Equal(t, []string{"Normal ScaledUp Scaled from 0 to 1 runners: at least 1"}, b.events())

	b.waits("web", 1, 2, 3, 4, 5, 6)
	b.waits("db", 7)
	b.look(3 * time.Second)
	require.Equal(t, []int{4, 1}, []int{b.desired(d), b.desired(s)}, "6.1")
	status := b.status(d)
	require.Equal(t, int32(6), status.Queued)
	require.Equal(t, b.now, status.ScaledAt.UTC())
	require.Empty(t, status.Problem)
	require.ElementsMatch(t, []string{
		"Normal ScaledUp Scaled from 1 to 4 runners: 0 running and 6 queued, and the maximum is 4", "Normal ScaledUp Scaled from 0 to 1 runners: 0 running and 1 queued",
	}, b.events())
	require.Equal(t, 4.0, b.metric("desired_runners", "web"))
	require.Equal(t, 6.0, b.metric("queued_jobs", "web"))

	b.waits("web")
	b.look(3 * time.Second)
	b.passes(9 * time.Minute)
	require.Equal(t, 4, b.desired(d))
	b.passes(time.Minute)
	require.Equal(t, 1, b.desired(d))
	require.Equal(t, b.now, b.status(d).LastScaleDownTime.UTC())
	require.Equal(t, []string{"Normal ScaledDown Scaled from 4 to 1 runners: at least 1"}, b.events())
	require.Equal(t, 1.0, b.metric("decisions_total", "RunnerDeployment", "down"))

	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Spec.Autoscaling = nil
	require.NoError(t, b.admin.Update(t.Context(), d))
	b.writes("web")
	b.passes(time.Minute)
	require.Nil(t, b.status(d), "it is not autoscaled any more")
	require.Equal(t, 1, b.writes("web"))
	require.Zero(t, b.metric("desired_runners", "web"))
}

// 6.4, and the rows e2c8163b and af96de61 of the peer's table: whatever happens to an owner between two looks makes one write, which
// says everything at once, its time too; and where nothing happens nothing is written.
func TestScaler_64_e2c8163b_af96de61_EventsMergeIntoOneWritePerOwner(t *testing.T) {
	b := newBench(t)
	d, s := b.deployment("web", autoscaling(0, 50)), b.set("db", autoscaling(0, 50))
	b.look(0)
	b.writes("web")
	b.writes("db")
	for id := int64(1); id <= 30; id++ { // a burst
		b.waits("web", id)
		b.waits("db", id)
	}
	many := make([]int64, 30)
	for i := range many {
		many[i] = int64(i) + 1
	}
	b.waits("web", many...)
	b.waits("db", many[:20]...)
	b.look(3 * time.Second)
	require.Equal(t, []int{1, 1}, []int{b.writes("web"), b.writes("db")})
	require.Equal(t, []int{30, 20}, []int{b.desired(d), b.desired(s)})
	require.Equal(t, b.now, b.status(d).ScaledAt.UTC())

	b.counts(d, 30, 0)
	b.counts(s, 20, 0)
	for range 20 {
		b.look(3 * time.Second)
	}
	require.Zero(t, b.writes("web")+b.writes("db"), "nothing has changed")

	// af96de61: a change of the time alone is written as well: all have ended, one job waits, and the number is what it was.
	b.waits("db", 21)
	b.complete(s)
	b.counts(s, 0, 0)
	b.look(3 * time.Second)
	require.Equal(t, 20, b.desired(s))
	require.Equal(t, b.now, b.status(s).ScaledAt.UTC())
	require.Equal(t, 1, b.writes("db"))
	for range 20 {
		b.look(3 * time.Second)
	}
	require.Zero(t, b.writes("db"), "said once, whatever comes of it")
}

// complete has all of a set been there just now.
func (b *bench) complete(s *v1alpha1.RunnerSet) {
	b.Helper()
	body := fmt.Sprintf(`{"status":{"completeAt":%q}}`, b.now.Format(time.RFC3339))
	require.NoError(b, b.admin.Status().Patch(b.Context(), s, client.RawPatch("application/merge-patch+json", []byte(body))))
}

// 6.6: a message that comes twice adds nothing, and the end of a job frees that job, not another.
func TestScaler_66_ByJobIDs(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(0, 9)
	scaling.ScaleDownCooldown = &metav1.Duration{}
	scaling.Jobs.Repositories = []string{"acme/app"}
	d := b.deployment("web", scaling)
	b.queue["acme/app"] = []github.WorkflowJob{
		atGitHub(1, github.JobQueued, "WEB"), atGitHub(2, github.JobInProgress, "web", "self-hosted"), atGitHub(3, github.JobQueued, "other"),
	}
	b.waits("web", 1, 1)
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 2, b.desired(d), "1 is queued, 2 is running, and 3 is another owner's")
	require.Equal(t, []int64{1, 2}, b.asked[0].Seen, "the server is asked what has become of them")
	b.jobs["web"] = []runnerapi.DemandJob{{ID: 1, Repository: "acme/app", RunnerName: "web-1a2b3c4d-x-y"}, {ID: 4, Repository: "acme/app"}}
	b.look(3 * time.Second)
	status := b.status(d)
	require.Equal(t, []int32{3, 1, 2}, []int32{*status.DesiredReplicas, status.Queued, status.Running})
	b.jobs["web"] = b.jobs["web"][1:] // the first one has ended, and GitHub is not read again for a while
	b.settle(1)
	b.look(3 * time.Second)
	status = b.status(d)
	require.Equal(t, []int32{2, 1, 1}, []int32{*status.DesiredReplicas, status.Queued, status.Running})
}

// settle has the server say that jobs have ended.
func (b *bench) settle(ids ...int64) {
	source := b.scaler.options.Source
	b.scaler.options.Source = sourceFunc(func(ctx context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
		answers, err := source.Demand(ctx, targets)
		for i := range answers {
			answers[i].Settled = ids
		}
		return answers, err
	})
}

type sourceFunc func(context.Context, []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error)

func (f sourceFunc) Demand(ctx context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
	return f(ctx, targets)
}

// 6.7: GitHub's queue is read at an interval, and makes up for lost webhooks; for an owner that the App does not see it is the only source.
func TestScaler_67_GitHubsQueueRepairsWhatWasLost(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(0, 9)
	scaling.ScaleDownCooldown = &metav1.Duration{}
	scaling.Jobs.ReadEvery = &metav1.Duration{Duration: 2 * time.Minute}
	d := b.deployment("web", scaling, func(s *v1alpha1.RunnerSpec) { s.Organization, s.Repository = "", "acme/app" })
	b.waits("web", 1)
	b.queue["acme/app"] = []github.WorkflowJob{atGitHub(1, github.JobQueued, "web"), atGitHub(2, github.JobQueued, "web")}
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 2, b.desired(d), "of 2 no message came")
	b.queue["acme/app"] = nil
	b.look(time.Minute)
	require.Equal(t, 1, b.reads["acme/app"], "not before its time")
	b.look(57 * time.Second) // the second reading
	b.look(3 * time.Second)
	require.Equal(t, 1, b.desired(d), "2 is over")
	b.look(2 * time.Minute)
	b.look(3 * time.Second)
	require.Equal(t, 3, b.reads["acme/app"])
	require.Equal(t, 0, b.desired(d), "the end of 1 was not reported, and two readings lack it")

	other := b.deployment("gpu", autoscaling(0, 9), func(s *v1alpha1.RunnerSpec) { s.Organization, s.Repository = "", "else/where" })
	b.blind["gpu"] = true
	b.queue["else/where"] = []github.WorkflowJob{atGitHub(5, github.JobInProgress, "gpu"), atGitHub(6, github.JobQueued, "gpu")}
	b.look(3 * time.Second)
	b.look(3 * time.Second)
	require.Equal(t, 2, b.desired(other))
	require.Empty(t, b.status(other).Problem)
}

// POOL-8: while the server cannot be asked no number falls, what is seen at GitHub raises it, and one sentence says so. A controller
// that begins then, or at any other time, lowers nothing before it has watched for the cooldown.
func TestScaler_POOL8_NothingFallsWhileBlind(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(0, 9)
	scaling.Jobs.Repositories = []string{"acme/lib"}
	d := b.deployment("web", scaling)
	b.waits("web", 1, 2, 3)
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 3, b.desired(d))
	b.events()
	b.writes("web")

	b.down = errors.New("connection refused from 10.0.0.1:34567")
	b.waits("web")
	b.passes(30 * time.Minute)
	require.Equal(t, 3, b.desired(d))
	require.Equal(t, "the server cannot list queued jobs", b.status(d).Problem)
	require.Equal(t, 1, b.writes("web"), "its words do not change")
	require.Equal(t, []string{"Warning ScalingInactive Not scaling below 3 runners: the server cannot list queued jobs"}, b.events())
	require.Equal(t, 1.0, b.metric("no_data", "web"))
	b.queue["acme/lib"] = []github.WorkflowJob{atGitHub(7, github.JobQueued, "web")}
	b.passes(6 * time.Minute)
	require.Equal(t, 4, b.desired(d), "what it said last and what GitHub shows")

	b.restart()
	b.passes(20 * time.Minute)
	require.Equal(t, 4, b.desired(d))
	b.down = nil
	b.queue["acme/lib"] = nil
	b.restart()
	b.events()
	b.passes(9 * time.Minute)
	require.Equal(t, 4, b.desired(d))
	require.Empty(t, b.status(d).Problem)
	require.Equal(t, []string{"Normal ScalingActive Autoscaling has complete data again"}, b.events())
	b.passes(2 * time.Minute)
	require.Equal(t, 0, b.desired(d))
}

// 6.8: owners whose credentials, repositories or objects are broken, or whose GitHub hangs, delay no other.
func TestScaler_68_ABrokenTargetDelaysNoOther(t *testing.T) {
	b := newBench(t)
	repository := func(name string) func(*v1alpha1.RunnerSpec) {
		return func(s *v1alpha1.RunnerSpec) { s.Organization, s.Repository = "", "acme/"+name }
	}
	owners := map[string]*v1alpha1.RunnerDeployment{}
	for _, name := range []string{"hangs", "forbidden", "secretless", "limited", "gone", "well"} {
		owners[name] = b.deployment(name, autoscaling(0, 9), repository(name))
	}
	hung := make(chan struct{}, 1)
	b.onRead = func(ctx context.Context, repository string) error {
		switch strings.TrimPrefix(repository, "acme/") {
		case "hangs":
			<-ctx.Done() // as a client does whose deadline comes
			hung <- struct{}{}
			return ctx.Err()
		case "forbidden":
			return fmt.Errorf("listing: %w", fleet.ErrForbidden)
		case "secretless":
			return fmt.Errorf("%w: Secret x is missing; create it", registration.ErrCredentials)
		case "limited":
			return &fleet.RateLimitedError{Resource: "core", Until: t0.Add(time.Hour)}
		}
		return nil
	}
	b.scaler.readings.options.ReadTimeout = time.Hour // it hangs throughout
	b.onPatch = func(name string) error {
		if name == "gone" {
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("runnerdeployments").GroupResource(), name)
		}
		return nil
	}
	b.queue["acme/well"] = []github.WorkflowJob{atGitHub(1, github.JobQueued, "well")}
	pass := func() { b.elapse(3 * time.Second); b.scaler.pass(b.ctx) }
	pass()
	require.Eventually(t, func() bool {
		pass()
		status := b.status(owners["well"])
		return status != nil && *status.DesiredReplicas == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.Empty(t, b.status(owners["well"]).Problem)
	for name, problem := range map[string]string{
		"forbidden":  "GitHub's queue of acme/forbidden cannot be read: GitHub denies access: the credentials need permission to read actions",
		"secretless": "GitHub's queue of acme/secretless cannot be read: there are no usable credentials: Secret x is missing; create it",
		"limited":    "GitHub's queue of acme/limited cannot be read: GitHub's request quota is exhausted",
	} {
		got := ""
		require.Eventually(t, func() bool {
			pass()
			status := b.status(owners[name])
			if status != nil {
				got = status.Problem
			}
			return got != ""
		}, 20*time.Second, 10*time.Millisecond, name)
		require.Equal(t, problem, got)
	}
	b.waits("hangs", 1, 2)
	pass()
	require.Equal(t, 2, b.desired(owners["hangs"]), "the server's data on it counts in the meantime")

	// No pass waits for a deleted owner, and its worker exits; no owner is read again before its time.
	require.NoError(t, b.admin.Delete(t.Context(), owners["hangs"]))
	require.NoError(t, b.admin.Delete(t.Context(), owners["gone"]))
	limited := b.read("acme/limited")
	for range 30 {
		pass()
	}
	require.Len(t, b.scaler.memory, 4)
	require.Equal(t, limited, b.read("acme/limited"), "GitHub has said when to come back")
	require.Equal(t, 1, b.desired(owners["well"]))
	b.stop()
	await.Receive(t, hung, "the reading that hangs is cancelled")
}

// An owner's place and credentials change with its spec: earlier readings no longer count.
func TestScaler_ChangedPlacesBeginAnew(t *testing.T) {
	b := newBench(t)
	d := b.deployment("web", autoscaling(0, 9), func(s *v1alpha1.RunnerSpec) { s.Organization, s.Repository = "", "acme/app" })
	b.queue["acme/app"] = []github.WorkflowJob{atGitHub(1, github.JobQueued, "web")}
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 1, b.reads["acme/app"])
	require.Equal(t, 1, b.desired(d))
	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Spec.Template.Spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: "mine"}
	require.NoError(t, b.admin.Update(t.Context(), d))
	b.look(3 * time.Second)
	require.Equal(t, 2, b.reads["acme/app"], "at once, with other credentials")
	require.Equal(t, place{
		credentials: registration.Credentials{Namespace: b.namespace, Secret: "mine"}, target: registration.Target{Repository: "acme/app"},
	}, b.as["acme/app"])
	require.Len(t, b.scaler.readings.of, 1)
}

// 6.9: schedules are followed in their time zones; an invalid one is reported.
func TestScaler_69_Schedules(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(1, 9)
	scaling.Schedules = []v1alpha1.ScalingSchedule{{
		Name: "day", Start: metav1.NewTime(t0.Add(-24*time.Hour + time.Minute)), End: metav1.NewTime(t0.Add(-23 * time.Hour)), Repeat: v1alpha1.FrequencyDaily,
		TimeZone: "Europe/Berlin", MinReplicas: 5,
	}}
	d := b.deployment("web", scaling)
	b.look(0)
	require.Equal(t, 1, b.desired(d))
	b.look(time.Minute)
	require.Equal(t, 5, b.desired(d))
	require.Equal(t, "day", b.status(d).Schedule)
	b.passes(time.Hour)
	require.Empty(t, b.status(d).Schedule, "the field is taken away")
	b.passes(10 * time.Minute)
	require.Equal(t, 1, b.desired(d))
	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Spec.Autoscaling.Schedules[0].TimeZone = "Mars/Base"
	require.NoError(t, b.admin.Update(t.Context(), d))
	b.look(3 * time.Second)
	require.Contains(t, b.status(d).Problem, "unknown time zone Mars/Base")
}

// Other parts of the status stay whose they are, and this one its own.
func TestScaler_WritesNothingButItsOwn(t *testing.T) {
	b := newBench(t)
	d := b.deployment("web", autoscaling(2, 9))
	b.counts(d, 7, 3)
	b.look(0)
	require.Equal(t, 7, b.desired(d), "until now it has what it has")
	require.Equal(t, []int32{7, 3}, []int32{d.Status.Replicas, d.Status.Busy})

	require.NoError(t, b.admin.Status().Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"autoscaling":{"desiredReplicas":1}}}`))))
	b.passes(time.Minute)
	require.Equal(t, 7, b.desired(d), "another client's change is reverted")
}

// The whole of it runs in a manager: an owner that is made is decided on at once, and the end of the manager ends it.
func TestSetup_InAManager(t *testing.T) {
	b := newBench(t)
	mgr, err := manager.New(kit.Cluster(t).As(t, "admin", "system:masters"), manager.Options{
		Scheme: b.admin.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{b.namespace: {}}},
	})
	require.NoError(t, err)
	require.Error(t, Setup(mgr, Options{}), "without what it needs")
	require.NoError(t, Setup(mgr, Options{
		Source: b, Queue: b, Namespace: b.namespace, Every: time.Hour, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	d := b.deployment("web", autoscaling(3, 9))
	require.Eventually(t, func() bool { status := b.status(d); return status != nil && *status.DesiredReplicas == 3 }, 30*time.Second, 20*time.Millisecond)
	cancel()
	require.NoError(t, await.Receive(t, ended, "the manager stops"))
}
