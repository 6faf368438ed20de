package runnerscaler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// One reading has an end, however long the queue; then absence from it proves nothing.
func TestReadings_AreBounded(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(0, 1000)
	scaling.Jobs.Repositories = []string{"acme/app"}
	d := b.deployment("web", scaling)
	for id := int64(1); id <= mostRuns+100; id++ {
		b.queue["acme/app"] = append(b.queue["acme/app"], atGitHub(id, github.JobQueued, "web"))
	}
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, mostRuns, b.desired(d))
	for _, known := range b.scaler.readings.of {
		require.Len(t, known.looks, 1)
		require.True(t, known.looks[0].partial)
	}
	require.Len(t, b.asked[0].Seen, mostRuns)
}

// 6.7: a queue that is too long for the time there is to read it raises the number as far as it was read, and no more of it is read than
// makes a difference.
func TestReadings_67_ALongQueueIsReadAsFarAsItCanBe(t *testing.T) {
	b := newBench(t)
	scaling := autoscaling(0, 20)
	scaling.Jobs.Repositories = []string{"acme/app"}
	d := b.deployment("web", scaling)
	for id := int64(1); id <= 100; id++ {
		b.queue["acme/app"] = append(b.queue["acme/app"], atGitHub(id, github.JobQueued, "web"))
	}
	b.scaler.readings.options.ReadTimeout = time.Second // for seven readings in memory, and then it hangs
	b.onJobs = func(ctx context.Context, run int64) error {
		if run > 7 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 7, b.desired(d))
	require.Equal(t, "GitHub's queue of acme/app is too long to be read completely", b.status(d).Problem)

	reads := 0
	b.onJobs = func(context.Context, int64) error {
		reads++
		return nil
	}
	b.scaler.readings.options.ReadTimeout = time.Minute
	b.look(5 * time.Minute)
	b.look(3 * time.Second)
	require.Equal(t, 20, b.desired(d))
	require.Equal(t, 20, reads, "as many as there may be runners: each is a call of their credentials")
	require.Empty(t, b.status(d).Problem)
}

// Credentials without a free slot are no problem: the queue is read again soon, and nothing is logged. The number of concurrent readings
// with one set of credentials is bounded, and others have slots of their own (6.8).
func TestReadings_68_EachSetOfCredentialsHasItsShare(t *testing.T) {
	b := newBench(t)
	repositories := func(n int, secret string) (*v1alpha1.RunnerAutoscaling, func(*v1alpha1.RunnerSpec)) {
		scaling := autoscaling(0, 9)
		for i := range n {
			scaling.Jobs.Repositories = append(scaling.Jobs.Repositories, fmt.Sprintf("acme/%s%d", secret, i))
		}
		return scaling, func(s *v1alpha1.RunnerSpec) {
			if secret != "" {
				s.Credentials = &v1alpha1.GitHubCredentials{SecretName: secret}
			}
		}
	}
	entered, leave := make(chan string, 100), make(chan struct{})
	b.onRead = func(ctx context.Context, repository string) error {
		entered <- repository
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	for i := range readersShared {
		scaling, change := repositories(3, "")
		b.deployment(fmt.Sprint("app", i), scaling, change)
	}
	b.scaler.pass(b.ctx)
	for range readersShared {
		await.Receive(t, entered, "a reading of GitHub's queue begins")
	}
	select {
	case repository := <-entered:
		t.Fatalf("%s is read beside %d others", repository, readersShared)
	case <-time.After(100 * time.Millisecond):
	}
	scaling, change := repositories(1, "mine")
	b.deployment("mine", scaling, change)
	b.scaler.pass(b.ctx)
	require.Equal(t, "acme/mine0", await.Receive(t, entered, "a reading of GitHub's queue begins"), "others have their own share")
	close(leave)
	b.halt()

	b.start()
	b.onRead = func(context.Context, string) error { return fmt.Errorf("reading: %w", registration.ErrBusy) }
	b.look(0)
	read := b.reads["acme/mine0"]
	b.look(crowdedFor)
	require.Equal(t, read+1, b.reads["acme/mine0"])
	var d v1alpha1.RunnerDeployment
	d.Namespace, d.Name = b.namespace, "mine"
	require.Empty(t, b.status(&d).Problem)
}

// RUN-4: the time since which a deployment's runners are held is that of the set of its present template.
func TestScaler_RUN4_CompleteAtOfThePresentTemplate(t *testing.T) {
	b := newBench(t)
	d := b.deployment("web", autoscaling(2, 9))
	b.look(0)
	b.counts(d, 1, 0)
	patch := func(object client.Object, body string) {
		t.Helper()
		require.NoError(t, b.admin.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(body))))
	}
	patch(d, `{"status":{"templateHash":"new"}}`)
	set := func(hash string, complete time.Time) {
		t.Helper()
		rrs := &v1alpha1.RunnerReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web-" + hash},
			Spec:       v1alpha1.RunnerReplicaSetSpec{Replicas: ptr.To[int32](0), Template: d.Spec.Template},
		}
		require.NoError(t, controllerutil.SetControllerReference(d, rrs, b.admin.Scheme()))
		require.NoError(t, b.admin.Create(t.Context(), rrs))
		patch(rrs, fmt.Sprintf(`{"status":{"templateHash":%q,"completeAt":%q}}`, hash, complete.Format(time.RFC3339)))
	}
	set("old", t0.Add(time.Minute))
	b.look(2 * time.Minute)
	require.Equal(t, t0, b.status(d).ScaledAt.UTC(), "nothing holds the new set back: it was never complete")
	set("new", t0.Add(time.Minute))
	b.look(3 * time.Second)
	require.Equal(t, b.now, b.status(d).ScaledAt.UTC())
}

// While it is unknown which runner took a job, until the queue is read again, that job is not counted a second time.
func TestScaler_610_BetweenTwoReadings(t *testing.T) {
	b := newBench(t)
	d := b.deployment("web", autoscaling(0, 9), func(s *v1alpha1.RunnerSpec) { s.Organization, s.Repository = "", "acme/app" })
	b.blind["web"] = true
	b.queue["acme/app"] = []github.WorkflowJob{atGitHub(1, github.JobQueued, "web"), atGitHub(2, github.JobQueued, "web")}
	b.look(0)
	b.look(3 * time.Second)
	require.Equal(t, 2, b.desired(d))
	b.counts(d, 2, 2)
	b.queue["acme/app"] = []github.WorkflowJob{atGitHub(1, github.JobInProgress, "web"), atGitHub(2, github.JobInProgress, "web")}
	b.passes(6 * time.Minute)
	require.Equal(t, 2, b.desired(d))
	require.Equal(t, int32(2), b.status(d).Running)
}

func TestScaler_69_TheControllersZoneIsNone(t *testing.T) {
	s := &Scaler{zones: map[string]*time.Location{}}
	require.Nil(t, s.schedule(v1alpha1.ScalingSchedule{TimeZone: "Local"}).Zone)
	require.Equal(t, time.UTC, s.schedule(v1alpha1.ScalingSchedule{}).Zone)
	require.Equal(t, "Asia/Kathmandu", s.schedule(v1alpha1.ScalingSchedule{TimeZone: "Asia/Kathmandu"}).Zone.String())
}
