package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// nodeEvent tells something of the node, where kubectl describe looks for it: a kubelet, too, gives the node's name as its UID.
func (a *Agent) nodeEvent(kind, reason, message string) {
	a.events.Event(&corev1.ObjectReference{Kind: "Node", Name: a.opts.Name, UID: types.UID(a.opts.Name)}, kind, reason, message)
}

// kubeletReasons are what a kubelet calls the changes of its conditions.
var kubeletReasons = map[corev1.NodeConditionType]map[corev1.ConditionStatus]string{
	corev1.NodeMemoryPressure: {corev1.ConditionTrue: "NodeHasInsufficientMemory", corev1.ConditionFalse: "NodeHasSufficientMemory"},
	corev1.NodeDiskPressure:   {corev1.ConditionTrue: "NodeHasDiskPressure", corev1.ConditionFalse: "NodeHasNoDiskPressure"},
	corev1.NodePIDPressure:    {corev1.ConditionTrue: "NodeHasInsufficientPID", corev1.ConditionFalse: "NodeHasSufficientPID"},
	corev1.NodeReady:          {corev1.ConditionTrue: "NodeReady", corev1.ConditionFalse: "NodeNotReady"},
}

// conditionEvents records an Event for each changed condition.
func (a *Agent) conditionEvents(before, after []corev1.NodeCondition) {
	was := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range before {
		was[c.Type] = c.Status
	}
	for _, c := range after {
		old, known := was[c.Type]
		if !known || old == c.Status {
			continue
		}
		reason, kubelet := kubeletReasons[c.Type][c.Status]
		if !kubelet {
			reason = c.Reason
		}
		message := fmt.Sprintf("%s is %s now", c.Type, c.Status)
		if c.Message != "" {
			message += ": " + c.Message
		}
		a.nodeEvent(corev1.EventTypeNormal, reason, message)
	}
}

// maxNews bounds what is kept for a worker that is busy.
const maxNews = 16

// tellNews passes a back end's news of a pod to its worker. Unread news are bounded; the oldest are dropped.
func (a *Agent) tellNews(podUID string, news sandbox.News) {
	a.mu.Lock()
	w := a.workers[podUID]
	a.mu.Unlock()
	if w == nil {
		return
	}
	w.mail.mu.Lock()
	if len(w.mail.news) == maxNews {
		w.mail.news = w.mail.news[1:]
	}
	w.mail.news = append(w.mail.news, news)
	w.mail.mu.Unlock()
	w.poke()
}

// readNews records the back end's reports as Events.
func (w *worker) readNews() {
	w.mail.mu.Lock()
	news := w.mail.news
	w.mail.news = nil
	w.mail.mu.Unlock()
	if w.pod == nil {
		return
	}
	for _, n := range news {
		w.a.events.Event(w.pod, corev1.EventTypeNormal, n.Reason, n.Message)
		for _, t := range w.containers {
			if t.observed.stage == unstarted {
				t.observed.waiting = waiting{reason: "ContainerCreating", message: n.Message}
			}
		}
	}
}
