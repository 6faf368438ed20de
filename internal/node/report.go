package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Report is what the node agent knows, for people on the host (`bullpen node status`). Nothing in it is secret.
type Report struct {
	Node    string    `json:"node"`
	Sandbox string    `json:"sandbox"`
	Version string    `json:"version,omitempty"`
	At      time.Time `json:"at"`
	// Registered indicates that the API server has had a Node object of this agent. Problem is why the last report to it failed.
	Registered bool   `json:"registered"`
	Problem    string `json:"problem,omitempty"`
	// LeaseRenewed is when the lease was last renewed; zero for never.
	LeaseRenewed time.Time         `json:"leaseRenewed,omitzero"`
	Conditions   []ReportCondition `json:"conditions"`
	Resources    []ReportResource  `json:"resources"`
	Pods         []ReportPod       `json:"pods"`
}

// ReportCondition is one condition of the node.
type ReportCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// ReportResource is what there is of one resource, and what of it can be used now.
type ReportResource struct {
	Name                  string `json:"name"`
	Capacity              string `json:"capacity"`
	Allocatable           string `json:"allocatable"`
	capacity, allocatable float64
}

// ReportPod is one pod that the agent cares for.
type ReportPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the pod's, or Terminating while it is being deleted, or Orphaned when the API server does not know it.
	Phase      string            `json:"phase"`
	Containers []ReportContainer `json:"containers"`
	// WaitsFor is what is in progress for it, or when a failed operation is retried; empty when nothing is.
	WaitsFor []string `json:"waitsFor,omitempty"`
}

// ReportContainer is one container of a pod.
type ReportContainer struct {
	Name  string    `json:"name"`
	State string    `json:"state"` // waiting, running, ready or ended
	Since time.Time `json:"since,omitzero"`
	// Detail is why it waits, or how it has ended.
	Detail string `json:"detail,omitempty"`
}

// Phases that are none of Kubernetes'.
const (
	phaseTerminating = "Terminating"
	phaseOrphaned    = "Orphaned"
)

// Report is what the agent knows now. It waits for nothing, and is safe for concurrent use.
func (a *Agent) Report() Report {
	r := Report{Node: a.opts.Name, Sandbox: a.opts.SandboxName, Version: a.opts.Version, At: a.opts.Clock.Now(), Registered: a.nodeUID.Load() != nil}
	if renewed := a.leaseRenewed.Load(); renewed != nil {
		r.LeaseRenewed = *renewed
	}
	if problem := a.nodeProblem.Load(); problem != nil {
		r.Problem = *problem
	}
	if st := a.nodeStatus.Load(); st != nil {
		for _, c := range st.Conditions {
			r.Conditions = append(r.Conditions, ReportCondition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
		}
		for name, all := range st.Capacity {
			usable := st.Allocatable[name]
			r.Resources = append(r.Resources, ReportResource{string(name), all.String(), usable.String(), all.AsApproximateFloat64(), usable.AsApproximateFloat64()})
		}
		slices.SortFunc(r.Resources, func(a, b ReportResource) int { return strings.Compare(a.Name, b.Name) })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if shown := w.shown.Load(); shown != nil {
			r.Pods = append(r.Pods, *shown)
		}
	}
	slices.SortFunc(r.Pods, func(a, b ReportPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return r
}

// show publishes what the worker knows of its pod.
func (w *worker) show() {
	p := &ReportPod{Namespace: w.ref.Namespace, Name: w.ref.Name, UID: w.ref.UID, Phase: phaseOrphaned}
	if w.pod != nil && w.presence == present {
		p.Phase = string(cmp.Or(w.pod.Status.Phase, corev1.PodPending))
		if w.pod.DeletionTimestamp != nil {
			p.Phase = phaseTerminating
		}
	}
	for _, name := range w.order() {
		p.Containers = append(p.Containers, reportContainer(name, w.containers[name].observed, w.refusal != nil))
	}
	if w.refusal != nil {
		p.WaitsFor = append(p.WaitsFor, "not supported on this node: "+w.refusal.Message)
	}
	if w.presence == gone && !w.removed && !w.killAt.IsZero() {
		p.WaitsFor = append(p.WaitsFor, "its containers to stop; the API server does not know the pod. They are killed at "+w.killAt.UTC().Format(time.RFC3339))
	}
	now := w.a.opts.Clock.Now()
	for key, op := range w.ops {
		switch {
		case operationOf(key) == "" || operationOf(key) == "tokens":
		case op.running:
			p.WaitsFor = append(p.WaitsFor, fmt.Sprintf("%s, since %s", key, op.since.UTC().Format(time.RFC3339)))
		case op.problem != "" && now.Before(op.retryAt):
			p.WaitsFor = append(p.WaitsFor, fmt.Sprintf("%s, again at %s: %s", key, op.retryAt.UTC().Format(time.RFC3339), op.problem))
		}
	}
	slices.Sort(p.WaitsFor)
	w.shown.Store(p)
}

func reportContainer(name string, seen containerObserved, refused bool) ReportContainer {
	c := ReportContainer{Name: name, State: "waiting", Detail: seen.waiting.message}
	switch {
	case seen.stage == running && seen.ready:
		c.State, c.Since, c.Detail = "ready", seen.startedAt, ""
	case seen.stage == running:
		c.State, c.Since, c.Detail = "running", seen.startedAt, ""
	case seen.stage == exited:
		c.State, c.Since = "ended", seen.exit.FinishedAt
		c.Detail = fmt.Sprintf("code %d", seen.exit.Code)
		if reason := cmp.Or(seen.exit.Reason, seen.exit.Message); reason != "" {
			c.Detail += " (" + reason + ")"
		}
	case refused:
		c.Detail = ""
	}
	return c
}
