package clusterevents_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const patience = time.Minute

// scene is a namespace of a real cluster that Events are written in.
type scene struct {
	*testing.T
	env       *kit.Env
	namespace string
	reader    *clusterevents.Reader
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, env: kit.Cluster(t)}
	s.namespace = s.env.Namespace(t)
	var err error
	s.reader, err = clusterevents.NewReader(s.env.Config)
	require.NoError(t, err)
	return s
}

// write has something happen some time ago.
func (s *scene) write(kind, name, reason string, ago time.Duration, change ...func(*eventsv1.Event)) *eventsv1.Event {
	s.Helper()
	version := "v1"
	if kind == "RunnerPool" || kind == "MacHost" {
		version = "bullpen.dev/v1alpha1"
	}
	at := metav1.NewMicroTime(time.Now().Add(-ago))
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, EventTime: at, Type: corev1.EventTypeNormal, Reason: reason, Action: "Do", Note: reason + " of " + name,
		ReportingController: "runnerpool", ReportingInstance: "one",
		Regarding: corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: s.namespace, Name: name},
	}
	for _, c := range change {
		c(e)
	}
	created, err := s.env.Kube.EventsV1().Events(s.namespace).Create(s.Context(), e, metav1.CreateOptions{})
	require.NoError(s, err)
	return created
}

func warning(e *eventsv1.Event) { e.Type = corev1.EventTypeWarning }

func by(reporter string) func(*eventsv1.Event) {
	return func(e *eventsv1.Event) { e.ReportingController = reporter }
}

func (s *scene) reasons(f clusterevents.Filter) []string {
	s.Helper()
	events, err := s.reader.Read(s.Context(), f)
	require.NoError(s, err)
	reasons := []string{}
	for _, e := range events {
		if e.Namespace == s.namespace {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// Events are shown in their order, as far as they are selected.
func TestRead_ShowsWhatIsWanted(t *testing.T) {
	s := newScene(t)
	s.write("RunnerPool", "linux", "Scaled", 3*time.Minute)
	s.write("Pod", "linux-a", "FailedScheduling", 2*time.Minute, warning, by("default-scheduler"))
	s.write("Pod", "linux-a", "Retired", 30*time.Minute, func(e *eventsv1.Event) {
		e.Related = &corev1.ObjectReference{Kind: "RunnerPool", Namespace: s.namespace, Name: "linux"}
	})
	s.write("ConfigMap", "kube-root-ca.crt", "Elsewhere", time.Minute, by("somebody"))
	s.write("MacHost", "mac-1", "Prepared", time.Second, by("somebody"))
	s.write("Pod", "linux-b", "Started", 40*time.Minute, by("bullpen-node"))
	s.write("Pod", "linux-b", "VMFailed", 35*time.Minute, warning, by("bullpen-node"))
	in := func(change func(*clusterevents.Filter)) clusterevents.Filter {
		f := clusterevents.Filter{Namespace: s.namespace}
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		filter clusterevents.Filter
		want   []string
	}{
		"the fleet's own":      {in(func(*clusterevents.Filter) {}), []string{"VMFailed", "Retired", "Scaled", "FailedScheduling", "Prepared"}},
		"all of a namespace":   {in(func(f *clusterevents.Filter) { f.All = true }), []string{"Started", "VMFailed", "Retired", "Scaled", "FailedScheduling", "Elsewhere", "Prepared"}},
		"about another object": {in(func(f *clusterevents.Filter) { f.For = "configmap/kube-root-ca.crt" }), []string{"Elsewhere"}},
		"warnings":             {in(func(f *clusterevents.Filter) { f.Types = []string{"warning"} }), []string{"VMFailed", "FailedScheduling"}},
		"both types":           {in(func(f *clusterevents.Filter) { f.Types = []string{"Warning", "Normal"}; f.Most = 1 }), []string{"Prepared"}},
		"of late":              {in(func(f *clusterevents.Filter) { f.Since = time.Now().Add(-150 * time.Second) }), []string{"FailedScheduling", "Prepared"}},
		"the latest two":       {in(func(f *clusterevents.Filter) { f.Most = 2 }), []string{"FailedScheduling", "Prepared"}},
		"about a pool":         {in(func(f *clusterevents.Filter) { f.For = "pool/linux" }), []string{"Retired", "Scaled"}},
		"about its whole name": {in(func(f *clusterevents.Filter) { f.For = "RunnerPool.bullpen.dev/linux" }), []string{"Retired", "Scaled"}},
		"about a pod":          {in(func(f *clusterevents.Filter) { f.For = "po/linux-a" }), []string{"Retired", "FailedScheduling"}},
		"about a runner's pod": {in(func(f *clusterevents.Filter) { f.For = "runner/linux-a" }), []string{"Retired", "FailedScheduling"}},
		"about nothing":        {in(func(f *clusterevents.Filter) { f.For = "pod/linux" }), []string{}},
		"ours, everywhere":     {clusterevents.Filter{}, []string{"VMFailed", "Retired", "Scaled", "Prepared"}},
		"all, everywhere":      {clusterevents.Filter{All: true}, []string{"Started", "VMFailed", "Retired", "Scaled", "FailedScheduling", "Elsewhere", "Prepared"}},
	} {
		require.Equal(t, c.want, s.reasons(c.filter), name)
	}
	for says, f := range map[string]clusterevents.Filter{"KIND/NAME": {For: "linux"}, "Normal or Warning": {Types: []string{"Error"}}} {
		_, err := s.reader.Read(t.Context(), f)
		require.ErrorContains(t, err, says)
	}
}

// More than one page is read whole; what happened again is counted, and stands where it happened last.
func TestRead_PagesAndSeries(t *testing.T) {
	s := newScene(t)
	again := s.write("RunnerPool", "linux", "Again", time.Hour)
	for n := range 510 {
		s.write("Pod", fmt.Sprintf("p-%d", n), "Started", time.Minute)
	}
	again.Series = &eventsv1.EventSeries{Count: 7, LastObservedTime: metav1.NowMicro()}
	_, err := s.env.Kube.EventsV1().Events(s.namespace).Update(t.Context(), again, metav1.UpdateOptions{})
	require.NoError(t, err)
	events, err := s.reader.Read(t.Context(), clusterevents.Filter{Namespace: s.namespace})
	require.NoError(t, err)
	require.Len(t, events, 511)
	last := events[510]
	require.Equal(t, "Again", last.Reason)
	require.Equal(t, int32(7), last.Count)
	require.WithinDuration(t, time.Now(), last.At, time.Minute)
	require.WithinDuration(t, time.Now().Add(-time.Hour), last.First, time.Minute)
}

// Each event is reported once, and again when it recurs; events during an outage are reported after it.
func TestFollow_TellsOfEachOnce(t *testing.T) {
	s := newScene(t)
	s.write("RunnerPool", "linux", "Before", time.Minute)
	reported, again := make(chan string, 100), make(chan time.Time)
	troubles := make(chan error, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.reader.Follow(ctx, clusterevents.Filter{Namespace: s.namespace, Types: []string{"Normal"}},
			func(e clusterevents.Event) error { reported <- fmt.Sprint(e.Reason, e.Count); return nil },
			func(err error) { troubles <- err }, func() <-chan time.Time { return again })
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-reported:
			require.Equal(t, want, got)
		case err := <-troubles:
			require.NoError(t, err)
		case <-time.After(patience):
			require.Fail(t, "nothing came", want)
		}
	}
	next("Before1")
	s.write("RunnerPool", "linux", "Unwanted", 0, warning)
	e := s.write("RunnerPool", "linux", "Then", 0)
	next("Then1")
	e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NowMicro()}
	e, err := s.env.Kube.EventsV1().Events(s.namespace).Update(t.Context(), e, metav1.UpdateOptions{})
	require.NoError(t, err)
	next("Then2")
	e.Labels = map[string]string{"a": "b"} // it did not happen again
	_, err = s.env.Kube.EventsV1().Events(s.namespace).Update(t.Context(), e, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.write("RunnerPool", "linux", "Last", 0)
	next("Last1")
	stop()
	require.NoError(t, await.Receive(t, ended, "the reader of Events stops"))
	require.Empty(t, reported)
	require.Empty(t, troubles, "a requested end is none")
}

// An outage of the API server ends nothing, and loses nothing.
func TestFollow_OutlivesTheAPIServer(t *testing.T) {
	env := kit.Private(t)
	s := &scene{T: t, env: env, namespace: env.Namespace(t)}
	var err error
	s.reader, err = clusterevents.NewReader(env.Config)
	require.NoError(t, err)
	s.write("RunnerPool", "linux", "Before", time.Minute)
	reported, troubles := make(chan string, 100), make(chan error, 1000)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.reader.Follow(ctx, clusterevents.Filter{Namespace: s.namespace}, func(e clusterevents.Event) error { reported <- e.Reason; return nil },
			func(err error) {
				select {
				case troubles <- err:
				default:
				}
			}, func() <-chan time.Time { return time.After(50 * time.Millisecond) })
	}()
	require.Equal(t, "Before", await.Receive(t, reported, "an Event is delivered"))
	require.NoError(t, env.Plane.Restart(t.Context(), "kube-apiserver"))
	require.Eventually(t, func() bool {
		_, err := env.Kube.EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err == nil
	}, patience, 50*time.Millisecond)
	s.write("RunnerPool", "linux", "After", 0)
	select {
	case got := <-reported:
		require.Equal(t, "After", got)
	case <-time.After(patience):
		require.Fail(t, "nothing came", "%d troubles", len(troubles))
	}
	stop()
	require.NoError(t, await.Receive(t, ended, "the reader of Events stops"))
}

// Without the right to read Events the error names that right.
func TestRead_NeedsARight(t *testing.T) {
	s := newScene(t)
	config := s.env.As(t, "carla")
	reader, err := clusterevents.NewReader(config)
	require.NoError(t, err)
	_, err = reader.Read(t.Context(), clusterevents.Filter{Namespace: s.namespace})
	require.True(t, apierrors.IsForbidden(err))
	require.ErrorContains(t, err, `cannot list resource "events" in API group "events.k8s.io"`)
	require.ErrorContains(t, reader.Follow(t.Context(), clusterevents.Filter{Namespace: s.namespace}, nil, nil, nil), "cannot list")

	_, err = s.env.Kube.RbacV1().Roles(s.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "events"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.env.Kube.RbacV1().RoleBindings(s.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "events"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "events"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "carla"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := reader.Read(t.Context(), clusterevents.Filter{Namespace: s.namespace})
		return err == nil
	}, patience, 50*time.Millisecond)
}
