package runnerowner

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// eventWriter writes the Events of owners.
type eventWriter struct{ recorder events.EventRecorder }

// longestNote is less than the 1024 bytes that the API server accepts.
const longestNote = 1000

func (e *eventWriter) write(s *ownerState, kind, reason, action, note string, args ...any) {
	if object := s.reference(); object != nil {
		e.recorder.Eventf(object, nil, kind, reason, action, "%s", podsigns.OneLine(fmt.Sprintf(note, args...), longestNote))
	}
}

func (e *eventWriter) created(s *ownerState, reason lifecycle.Reason, names []string) {
	if len(names) > 0 {
		if reason == "" {
			reason = lifecycle.ReasonScaleUp
		}
		e.write(s, corev1.EventTypeNormal, string(reason), "Create", "Created %s", listed(names))
	}
}

func (e *eventWriter) createFailed(s *ownerState, err error) {
	e.write(s, corev1.EventTypeWarning, "CreateFailed", "Create", "%s", firstLine(err))
}

func (e *eventWriter) tendFailed(s *ownerState, name string, err error) {
	e.write(s, corev1.EventTypeWarning, "CannotRegister", "Register", "%s: %s", name, firstLine(err))
}

// left tells that a registration may be left behind.
func (e *eventWriter) left(s *ownerState, m *member, answer lifecycle.Answer) {
	e.write(s, corev1.EventTypeWarning, "RegistrationLeft", "Remove",
		"%s never had a pod, and its registration %s could not be removed at GitHub. Remove it there if it is still listed. %s", m.name, m.RunnerName, answer.Detail)
}

// jobLost tells why a runner has ended under its job. GitHub calls such a job failed, shows with it the runner's name, and has no
// place for the reason: it is here, under that name (F 8.14).
func (e *eventWriter) jobLost(s *ownerState, lost lostJob) {
	how := lost.end.Reason
	if lost.end.Exited {
		how = fmt.Sprintf("%s, exit code %d", how, lost.end.ExitCode)
	}
	if lost.end.Evicted != "" {
		how = lost.end.Evicted
	}
	e.write(s, corev1.EventTypeWarning, "JobLost", "Run",
		"Runner %s (%s at GitHub) exited during a job: %s. GitHub marks the job as failed; rerun it there",
		lost.member, lost.runnerName, how)
}

// asked tells what the fence said of one runner.
func (e *eventWriter) asked(s *ownerState, a lifecycle.Action, answer lifecycle.Answer) {
	switch detail := a.Detail + "; " + answer.Detail; answer.Verdict {
	case lifecycle.Granted:
		kind := corev1.EventTypeNormal
		if fruitless[a.Reason] {
			kind = corev1.EventTypeWarning
		}
		e.write(s, kind, string(a.Reason), "Remove", "Removing %s: %s", a.Runner.Name, detail)
	case lifecycle.Busy:
		e.write(s, corev1.EventTypeNormal, string(a.Reason), "Keep", "Keeping %s: %s", a.Runner.Name, detail)
	default:
		e.write(s, corev1.EventTypeWarning, "FenceUnknown", "Keep", "Keeping %s for now: %s", a.Runner.Name, detail)
	}
}

// turn says which status of a condition is reported, and the reasons of the Events about its beginning and its end.
type turn struct {
	bad          metav1.ConditionStatus
	begins, ends string
	normal       bool // no problem: an Event of type Normal
}

// turns are of the conditions whose turns are reported in an Event. An Event never carries the name of a problem that is over.
var turns = map[string]turn{
	v1alpha1.ConditionValid:             {bad: metav1.ConditionFalse, begins: "InvalidTemplate", ends: "TemplateValid"},
	v1alpha1.ConditionOutdated:          {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionOutdated, ends: "NoLongerOutdated"},
	v1alpha1.ConditionStuckTerminating:  {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionStuckTerminating, ends: "NoLongerStuckTerminating"},
	v1alpha1.ConditionDraining:          {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionDraining, ends: "Drained", normal: true},
	v1alpha1.ConditionRecreationDelayed: {bad: metav1.ConditionTrue, begins: v1alpha1.ConditionRecreationDelayed, ends: "RecreationResumed", normal: true},
}

// turned writes an Event about each condition that has turned on or off.
func (e *eventWriter) turned(s *ownerState, before, after []metav1.Condition) {
	for _, c := range after {
		turn, reported := turns[c.Type]
		old := meta.FindStatusCondition(before, c.Type)
		was := old != nil && old.Status == turn.bad
		switch is := c.Status == turn.bad; {
		case !reported || is == was:
		case !is:
			e.write(s, corev1.EventTypeNormal, turn.ends, c.Reason, "%s", c.Message)
		case turn.normal:
			e.write(s, corev1.EventTypeNormal, turn.begins, c.Reason, "%s", c.Message)
		default:
			e.write(s, corev1.EventTypeWarning, turn.begins, c.Reason, "%s", c.Message)
		}
	}
}
