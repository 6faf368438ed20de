package machost

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// eventWriter writes the Events of MacHosts. Its input holds no secret: see scrub.go.
type eventWriter struct{ recorder events.EventRecorder }

// attention are the states that need a person.
var attention = map[State]bool{
	StateFailed: true, StateWrongPassword: true, StateHostKeyChanged: true, StateUnreachable: true, StateInvalid: true, StateSecretMissing: true,
	StateSecretForbidden: true, StateConflict: true, StateBackingOff: true, StateNodeMissing: true,
}

// turned records a change of state, and a drain that is overdue.
func (e *eventWriter) turned(host *v1alpha1.MacHost, before, after *v1alpha1.MacHostStatus) {
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	if is != nil && (was == nil || was.Reason != is.Reason) && State(is.Reason) != StateApplying { // an attempt has an Event of its own
		kind := corev1.EventTypeNormal
		if attention[State(is.Reason)] {
			kind = corev1.EventTypeWarning
		}
		e.write(host, kind, is.Reason, "Reconcile", is.Message)
	}
	drained := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionDrained)
	if overdue(drained) && !overdue(meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionDrained)) {
		e.write(host, corev1.EventTypeWarning, "DrainOverdue", "Drain", drained.Message)
	}
}

func overdue(c *metav1.Condition) bool { return c != nil && c.Reason == reasonOverdue }

func (e *eventWriter) attempt(host *v1alpha1.MacHost, why string) {
	e.write(host, corev1.EventTypeNormal, "Applying", "Apply", "Applying the configuration: "+why)
}

func (e *eventWriter) cordoned(host *v1alpha1.MacHost, node string, on bool, why string) {
	if on {
		e.write(host, corev1.EventTypeNormal, "Cordoned", "Cordon", "Cordoned the Node "+node+": "+why)
		return
	}
	e.write(host, corev1.EventTypeNormal, "Uncordoned", "Uncordon", "Uncordoned the Node "+node)
}

func (e *eventWriter) left(host *v1alpha1.MacHost) {
	e.write(host, corev1.EventTypeNormal, "Left", "Delete", "The Mac and its Node "+nodeNameOf(host)+" are not changed. To remove the Mac, cordon the Node, stop its node agent, and delete the Node")
}

func (e *eventWriter) write(host *v1alpha1.MacHost, kind, reason, action, note string) {
	about := &v1alpha1.MacHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindMacHost},
		ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name, UID: host.UID},
	}
	e.recorder.Eventf(about, nil, kind, reason, action, "%s", printable(note, 1000))
}
