package clusterevents

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Event is something that happened, once or repeatedly.
type Event struct {
	At        time.Time `json:"at"`    // the last time
	First     time.Time `json:"first"` // the first time
	Count     int32     `json:"count"`
	Type      string    `json:"type"` // Normal or Warning
	Reason    string    `json:"reason"`
	Action    string    `json:"action,omitempty"`
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Related   string    `json:"related,omitempty"` // kind/name of what else it is about
	Message   string    `json:"message"`
	Reporter  string    `json:"reporter,omitempty"`

	uid, object string // the Event's own UID and name
	ours        bool
}

// ObjectName is the name of the Event object itself.
func (e Event) ObjectName() string { return e.object }

// Object is what the event is about, as kubectl takes it.
func (e Event) Object() string { return strings.ToLower(e.Kind) + "/" + e.Name }

// nodeAgent reports on pods, in place of a kubelet.
const nodeAgent = "bullpen-node"

// reporters are the names that the fleet's parts write Events under; cmd/bullpen has a test that there are no others.
func reporters() []string {
	return []string{
		"runnerpool", "runner", "registered", "runnerreplicaset", "runnerset", "runnerdeployment", "bullpen-runnerscaler", "machost", nodeAgent,
	}
}

// Reports says whether a part of the fleet writes Events under that name.
func Reports(name string) bool { return slices.Contains(reporters(), name) }

func of(e *eventsv1.Event) Event {
	out := Event{
		At: e.EventTime.Time, First: e.EventTime.Time, Count: max(1, e.DeprecatedCount), Type: e.Type, Reason: e.Reason, Action: e.Action,
		Namespace: cmp.Or(e.Regarding.Namespace, e.Namespace), Kind: e.Regarding.Kind, Name: e.Regarding.Name, Message: e.Note,
		Reporter: cmp.Or(e.ReportingController, e.DeprecatedSource.Component), uid: string(e.UID), object: e.GetName(),
	}
	for _, at := range []metav1.Time{e.DeprecatedFirstTimestamp, e.CreationTimestamp} {
		if out.First.IsZero() {
			out.First = at.Time
		}
	}
	if last := e.DeprecatedLastTimestamp.Time; last.After(out.At) {
		out.At = last
	}
	if e.Series != nil {
		out.Count = max(out.Count, e.Series.Count)
		if last := e.Series.LastObservedTime.Time; last.After(out.At) {
			out.At = last
		}
	}
	if out.At.IsZero() {
		out.At = out.First
	}
	if e.Related != nil {
		out.Related = strings.ToLower(e.Related.Kind) + "/" + e.Related.Name
	}
	group, _, _ := strings.Cut(e.Regarding.APIVersion, "/")
	out.ours = group == v1alpha1.GroupVersion.Group || Reports(out.Reporter)
	return out
}

// Filter selects events.
type Filter struct {
	Namespace string // empty: all
	All       bool   // also events that are neither by Bullpen, nor about its kinds, nor warnings of the namespace
	For       string // kind/name, as in kubectl; empty: any
	Types     []string
	Since     time.Time // zero: all
	Most      int       // the newest ones; 0: all
}

// kinds are short names of kinds.
var kinds = map[string]string{
	"pool": "runnerpool", "pools": "runnerpool", "rpool": "runnerpool", "po": "pod", "pods": "pod", "no": "node", "nodes": "node", "mac": "machost",
	"rdeploy": "runnerdeployment", "rrs": "runnerreplicaset", "rset": "runnerset",
}

// Check validates a filter.
func (f Filter) Check() error {
	if kind, name, ok := strings.Cut(f.For, "/"); f.For != "" && (!ok || kind == "" || name == "") {
		return fmt.Errorf("--for must be KIND/NAME, such as pool/linux or pod/linux-x7k2p, got %q", f.For)
	}
	for _, t := range f.Types {
		if !strings.EqualFold(t, "Normal") && !strings.EqualFold(t, "Warning") {
			return fmt.Errorf("--types must be Normal or Warning, got %q", t)
		}
	}
	return nil
}

func (f Filter) wants(e Event) bool {
	if e.At.Before(f.Since) || !f.concerns(e) {
		return false
	}
	if len(f.Types) > 0 && !slices.ContainsFunc(f.Types, func(t string) bool { return strings.EqualFold(t, e.Type) }) {
		return false
	}
	if f.For == "" {
		return true
	}
	kind, name, _ := strings.Cut(strings.ToLower(f.For), "/")
	kind = cmp.Or(kinds[kind], strings.TrimSuffix(kind, ".bullpen.dev"))
	wanted := kind + "/" + name
	return wanted == strings.ToLower(e.Object()) || wanted == strings.ToLower(e.Related) || wanted == "runner/"+name && strings.EqualFold(e.Object(), "pod/"+name)
}

// concerns says whether the event is of the fleet. Nearly all others are of pods that start; the node agent reports those as a kubelet does.
// All events of an object are shown if it is named.
func (f Filter) concerns(e Event) bool {
	if f.All || f.For != "" {
		return true
	}
	if e.Type == corev1.EventTypeWarning {
		return e.ours || f.Namespace != ""
	}
	return e.ours && (e.Reporter != nodeAgent || e.Kind != "Pod")
}

// pick returns the matching events, newest last.
func (f Filter) pick(list []eventsv1.Event) []Event {
	events := []Event{}
	for i := range list {
		if e := of(&list[i]); f.wants(e) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Object(), b.Object()), cmp.Compare(a.Reason, b.Reason))
	})
	if f.Most > 0 && len(events) > f.Most {
		events = events[len(events)-f.Most:]
	}
	return events
}
