package pool

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Reasons of Events beside those of lifecycle.Reason.
const (
	reasonCreateFailed    = "CreateFailed"
	reasonRunnerFailed    = "RunnerFailed"
	reasonRunnerEvicted   = "RunnerEvicted"
	reasonFenceUnknown    = "FenceUnknown"
	reasonInvalidTemplate = "InvalidTemplate"
	reasonDraining        = "Draining"
	reasonDrained         = "Drained"

	reasonStuckTerminating = "StuckTerminating"
)

// eventWriter writes the Events of pools. Names of runners are listed up to a few: an Event is read by a person.
type eventWriter struct {
	recorder events.EventRecorder
	object   func(types.NamespacedName) runtime.Object // nil when the pool is gone
}

const namesInEvent = 5

func (e *eventWriter) write(pool types.NamespacedName, kind, reason, action, note string, args ...any) {
	if object := e.object(pool); object != nil {
		e.recorder.Eventf(object, nil, kind, reason, action, note, args...)
	}
}

// writeAbout is write about a pod of the pool: Events about different pods are not counted as one. An Event that is counted keeps the text of
// its first occurrence, so texts that name runners need it.
func (e *eventWriter) writeAbout(pool types.NamespacedName, pod, uid, kind, reason, action, note string, args ...any) {
	object := e.object(pool)
	if object == nil {
		return
	}
	related := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pod, UID: types.UID(uid)},
	}
	e.recorder.Eventf(object, related, kind, reason, action, note, args...)
}

// writeAt is write about one version of the pool: Events about different versions are not counted as one.
func (e *eventWriter) writeAt(pool types.NamespacedName, version, kind, reason, action, note string, args ...any) {
	object := e.object(pool)
	if object == nil {
		return
	}
	related := &v1alpha1.RunnerPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunnerPool},
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name, ResourceVersion: version},
	}
	e.recorder.Eventf(object, related, kind, reason, action, note, args...)
}

// stuck reports pods that were not deleted in time (POOL-10): the first few each, the rest as a number.
func (e *eventWriter) stuck(pool types.NamespacedName, pods []removal.Stuck) {
	for _, pod := range pods[:min(len(pods), namesInEvent)] {
		e.writeAbout(pool, pod.Name, pod.UID, corev1.EventTypeWarning, reasonStuckTerminating, "Delete", "Not deleted in time: %s", pod)
	}
	if more := len(pods) - namesInEvent; more > 0 {
		e.write(pool, corev1.EventTypeWarning, reasonStuckTerminating, "Delete", "Not deleted in time: %s", many(more, "more pod"))
	}
}

// turn says which status of a condition is a problem, and the reasons of the Events about its beginning and its end.
type turn struct {
	bad          metav1.ConditionStatus
	begins, ends string
	normal       bool   // no problem: an Event of type Normal
	reason       string // the only reason with which it is a problem; empty: with any
}

// turns are of the conditions whose turns are reported in an Event. An Event never carries the name of a problem that is over.
var turns = map[string]turn{
	v1alpha1.ConditionSaturated:     {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionSaturated, ends: "NoLongerSaturated"},
	v1alpha1.ConditionStarved:       {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionStarved, ends: "NoLongerStarved"},
	v1alpha1.ConditionLabelConflict: {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionLabelConflict, ends: "LabelConflictResolved"},
	v1alpha1.ConditionOutdated:      {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionOutdated, ends: "NoLongerOutdated"},
	v1alpha1.ConditionRefused:       {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionRefused, ends: "AcceptedByGitHub"},
	v1alpha1.ConditionDraining:      {bad: metav1.ConditionTrue, begins: reasonDraining, ends: reasonDrained, normal: true},
	v1alpha1.ConditionImagesPulled:  {bad: metav1.ConditionFalse, reason: v1alpha1.ReasonPullFailed, begins: "ImagePullFailed", ends: "ImagePullRecovered"},
	v1alpha1.ConditionScalingActive: {bad: metav1.ConditionFalse, begins: "ScalingInactive", ends: v1alpha1.ConditionScalingActive},
}

// holds reports whether the condition is a problem.
func (t turn) holds(c metav1.Condition) bool {
	return c.Status == t.bad && (t.reason == "" || t.reason == c.Reason)
}

// turned writes an Event about each condition that has turned on or off. version is that of the pool with the conditions after it: each turn
// has an Event of its own, with its text.
func (e *eventWriter) turned(pool types.NamespacedName, version string, before, after []metav1.Condition) {
	for _, c := range after {
		turn, reported := turns[c.Type]
		old := meta.FindStatusCondition(before, c.Type)
		was := old != nil && turn.holds(*old)
		switch is := turn.holds(c); {
		case !reported || is == was:
		case !is:
			e.writeAt(pool, version, corev1.EventTypeNormal, turn.ends, c.Reason, "%s", c.Message)
		case turn.normal:
			e.writeAt(pool, version, corev1.EventTypeNormal, turn.begins, c.Reason, "%s", c.Message)
		default:
			e.writeAt(pool, version, corev1.EventTypeWarning, turn.begins, c.Reason, "%s", c.Message)
		}
	}
}

func (e *eventWriter) created(pool types.NamespacedName, reason lifecycle.Reason, names []string) {
	if len(names) > 0 && reason != "" {
		e.writeAbout(pool, names[0], "", corev1.EventTypeNormal, string(reason), "Create", "Creating %s", listed(names))
	}
}

func (e *eventWriter) createFailed(pool types.NamespacedName, err error) {
	e.write(pool, corev1.EventTypeWarning, reasonCreateFailed, "Create", "%s", firstLine(err))
}

func (e *eventWriter) invalid(pool types.NamespacedName, err error) {
	e.write(pool, corev1.EventTypeWarning, reasonInvalidTemplate, "Create", "%s", firstLine(err))
}

// asked tells what the fence said, one Event per reason and verdict.
func (e *eventWriter) asked(pool types.NamespacedName, asks []lifecycle.Action, answers []lifecycle.Answer) {
	type key struct {
		reason  lifecycle.Reason
		verdict lifecycle.Verdict
	}
	var order []key
	names, details, first := map[key][]string{}, map[key]string{}, map[key]lifecycle.Runner{}
	for i, a := range asks {
		k := key{a.Reason, answers[i].Verdict}
		if names[k] == nil {
			order, first[k] = append(order, k), a.Runner
			details[k] = a.Detail
			if answers[i].Detail != "" {
				details[k] += "; " + answers[i].Detail
			}
		}
		names[k] = append(names[k], a.Runner.Name)
	}
	for _, k := range order {
		switch k.verdict {
		case lifecycle.Granted:
			e.writeAbout(pool, first[k].Name, first[k].UID, kindOf(k.reason), string(k.reason), "Remove", "Removing %s: %s", listed(names[k]), details[k])
		case lifecycle.Busy:
			e.writeAbout(pool, first[k].Name, first[k].UID, corev1.EventTypeNormal, string(k.reason), "Keep", "Keeping %s: %s", listed(names[k]), details[k])
		default:
			e.writeAbout(pool, first[k].Name, first[k].UID, corev1.EventTypeWarning, reasonFenceUnknown, "Keep", "Keeping %s, because it is unknown whether they are busy: %s", listed(names[k]), details[k])
		}
	}
}

// kindOf is Warning if a runner is removed because something is wrong with it or with its node.
func kindOf(reason lifecycle.Reason) string {
	switch reason {
	case lifecycle.ReasonStartTimeout, lifecycle.ReasonUnschedulable, lifecycle.ReasonDefective, lifecycle.ReasonLost,
		lifecycle.ReasonNodeNotReady:
		return corev1.EventTypeWarning
	default:
		return corev1.EventTypeNormal
	}
}

// removed reports a runner that ended for another reason than a completed job.
func (e *eventWriter) removed(pool types.NamespacedName, m member) {
	switch {
	case m.view.end.evicted != "":
		e.writeAbout(pool, m.name, m.uid, corev1.EventTypeWarning, reasonRunnerEvicted, "Remove", "%s was %s", m.name, m.view.end.evicted)
		return
	case !m.view.failed && m.died() && m.view.end.exited: // GitHub has no place for the reason
		e.writeAbout(pool, m.name, m.uid, corev1.EventTypeWarning, reasonRunnerFailed, "Remove",
			"%s exited with code %d during its job: %s. GitHub fails the job; `bullpen runners logs %s` shows the last log lines",
			m.name, m.view.end.exitCode, m.view.end.reason, m.name)
		return
	case !m.view.failed:
		return
	}
	ended := "exited"
	if m.view.end.exited {
		ended = fmt.Sprintf("exited with code %d", m.view.end.exitCode)
	}
	e.writeAbout(pool, m.name, m.uid, corev1.EventTypeWarning, reasonRunnerFailed, "Remove", "%s %s before it received a job: %s", m.name, ended, m.view.end.reason)
}

func listed(names []string) string {
	if len(names) <= namesInEvent {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesInEvent], ", "), len(names)-namesInEvent)
}

// firstLine keeps an error's text to what fits a condition or an Event.
func firstLine(err error) string { return oneLine(err.Error(), 500) }

// oneLine is the text's first line, or as much of it as fits. What it returns keeps nothing else of the text in memory.
func oneLine(text string, longest int) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > longest {
		return strings.ToValidUTF8(line[:longest], "") + "…"
	}
	if len(line) < len(text) {
		return strings.Clone(line)
	}
	return line
}

// reference is what Events need of a pool, without the rest.
func reference(pool *v1alpha1.RunnerPool) *v1alpha1.RunnerPool {
	return &v1alpha1.RunnerPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunnerPool},
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name, UID: pool.UID},
	}
}
