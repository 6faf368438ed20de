package pool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// sink is where the recorder of Kubernetes writes Events: new ones, and counts of those that it has merged.
type sink struct{ notes, merged chan string }

func (s *sink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.notes <- e.Note
	return e, nil
}

func (s *sink) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }

func (s *sink) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.merged <- e.Note
	return e, nil
}

// The recorder merges Events that differ in their text only, and keeps the first text. Texts that name runners, or have numbers, are not merged.
func TestEvents_EachKeepsItsText(t *testing.T) {
	written := &sink{notes: make(chan string, 10), merged: make(chan string, 10)}
	broadcaster := events.NewBroadcaster(written)
	defer broadcaster.Shutdown()
	require.NoError(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	writer := &eventWriter{recorder: broadcaster.NewRecorder(scheme, "runnerpool"), object: func(types.NamespacedName) runtime.Object { return reference(poolFor()) }}
	is := func(want string) {
		t.Helper()
		select {
		case text := <-written.merged:
			require.Fail(t, "an Event was merged", text)
		default:
			require.Equal(t, want, await.Receive(t, written.notes, "an Event is written"))
		}
	}
	writer.created(key, lifecycle.ReasonScaleUp, []string{"a", "b"})
	is("Creating a, b")
	writer.created(key, lifecycle.ReasonScaleUp, []string{"c"})
	is("Creating c")
	for version, text := range map[string]string{"7": "1 job queued", "8": "9 jobs queued"} {
		writer.turned(key, version, nil, []metav1.Condition{{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionTrue, Reason: "AtCapacity", Message: text}})
		is(text)
	}
	for _, name := range []string{"d", "e"} {
		action := lifecycle.Action{Runner: lifecycle.Runner{Name: name, UID: name}, Reason: lifecycle.ReasonMaxAge, Detail: "old"}
		writer.asked(key, []lifecycle.Action{action}, []lifecycle.Answer{{Verdict: lifecycle.Granted}})
		is("Removing " + name + ": old")
	}
}
