package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// PoolIntake is the result of a change of a pool's intake.
type PoolIntake struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Was       v1alpha1.Intake `json:"was"`
	Intake    v1alpha1.Intake `json:"intake"`
	Note      string          `json:"note,omitempty"` // by which user, when and why
	Idle      int32           `json:"idle"`           // as last reported by the controller
	Busy      int32           `json:"busy"`
	Changed   bool            `json:"changed"`
}

// IntakeChange is a request to change a pool's intake.
type IntakeChange struct {
	Namespace, Pool string
	Intake          v1alpha1.Intake
	Reason          string // may be empty
	At              time.Time
}

// intakeManager owns the fields that SetIntake writes.
const intakeManager = "bullpen-pool"

// maxReason bounds a reason, in bytes: it is shown in tables.
const maxReason = 200

// SetIntake changes whether a pool accepts jobs, with the caller's own rights in the cluster. It writes nothing if the pool is in that state
// already.
func SetIntake(ctx context.Context, config *rest.Config, c IntakeChange) (PoolIntake, error) {
	if len(c.Reason) > maxReason || strings.ContainsAny(c.Reason, "\n\r") {
		return PoolIntake{}, fmt.Errorf("--reason must be one line of at most %d bytes", maxReason)
	}
	pools, user, err := poolsToChange(ctx, config, c.Namespace)
	if err != nil {
		return PoolIntake{}, err
	}
	var out PoolIntake
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) { // the controller writes the pool's status every few seconds
		out, err = c.set(ctx, pools, user)
		return err
	})
	if apierrors.IsConflict(err) {
		return PoolIntake{}, fmt.Errorf("conflict: pool %s was changed at the same time. Check `bullpen pools` and retry", c.Pool)
	}
	return out, err
}

// poolsToChange is the client of a namespace's pools, and the name of its user, for which the cluster is asked once, when it is needed.
func poolsToChange(ctx context.Context, config *rest.Config, namespace string) (pools dynamic.ResourceInterface, user func() string, err error) {
	cluster, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	pools = cluster.Resource(v1alpha1.GroupVersion.WithResource("runnerpools")).Namespace(namespace)
	return pools, sync.OnceValue(func() string { return userName(ctx, client) }), nil
}

// set is one attempt of SetIntake; a conflict is returned as the cluster reports it.
func (c IntakeChange) set(ctx context.Context, pools dynamic.ResourceInterface, user func() string) (PoolIntake, error) {
	pool, err := pools.Get(ctx, c.Pool, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !reach.NoSuchKind(err) {
		return PoolIntake{}, poolNotFound(c.Pool, " in namespace "+c.Namespace, namesOf(ctx, pools))
	}
	if err != nil {
		return PoolIntake{}, reach.Cluster("reading pool "+c.Pool, err)
	}
	out := PoolIntake{
		Namespace: c.Namespace, Name: c.Pool, Was: intakeOf(pool), Intake: c.Intake, Note: pool.GetAnnotations()[v1alpha1.AnnotationIntakeNote],
		Idle: statusCount(pool, "idle"), Busy: statusCount(pool, "busy"),
	}
	if out.Was == c.Intake {
		return out, nil
	}
	note, who := any(nil), user() // nil takes it off
	out.Note = ""
	if c.Intake != v1alpha1.IntakeOpen {
		out.Note = c.note(who)
		note = out.Note
	}
	change := map[string]any{
		"metadata": map[string]any{"resourceVersion": pool.GetResourceVersion(), "annotations": map[string]any{v1alpha1.AnnotationIntakeNote: note}},
		"spec":     map[string]any{"intake": c.Intake},
	}
	sign(change, pool, who)
	patch, err := json.Marshal(change)
	if err != nil {
		return PoolIntake{}, fmt.Errorf("encoding the change: %w", err)
	}
	_, err = pools.Patch(ctx, c.Pool, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: intakeManager})
	switch {
	case apierrors.IsConflict(err):
		return PoolIntake{}, err
	case err != nil:
		return PoolIntake{}, reach.Cluster("changing pool "+c.Pool, err)
	}
	out.Changed = true
	return out, nil
}

// Already says that a pool is in the state that was asked for; empty if it was changed.
func (p PoolIntake) Already() string {
	if p.Changed {
		return ""
	}
	text := "pool " + p.Name + " is already " + map[v1alpha1.Intake]string{
		v1alpha1.IntakeOpen: "accepting jobs", v1alpha1.IntakePaused: "paused", v1alpha1.IntakeDrained: "drained",
	}[p.Intake]
	if p.Note != "" && p.Intake != v1alpha1.IntakeOpen {
		text += " (" + printable(p.Note) + ")"
	}
	return text
}

// namesOf lists names for a suggestion. Without the right to list there is none.
func namesOf(ctx context.Context, pools dynamic.ResourceInterface) []string {
	list, err := pools.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// note is for people; AnnotationChangedBy is what the cluster verifies.
func (c IntakeChange) note(who string) string {
	note := "since " + c.At.UTC().Format("2006-01-02 15:04 MST")
	if who != "" {
		note = "by " + who + " " + note
	}
	if c.Reason != "" {
		note += ": " + c.Reason
	}
	return note
}

func intakeOf(pool *unstructured.Unstructured) v1alpha1.Intake {
	text, _, _ := unstructured.NestedString(pool.Object, "spec", "intake")
	if text == "" { // a pool that was applied before the field existed
		return v1alpha1.IntakeOpen
	}
	return v1alpha1.Intake(text)
}

func statusCount(pool *unstructured.Unstructured, field string) int32 {
	n, _, _ := unstructured.NestedInt64(pool.Object, "status", field)
	return int32(n) //nolint:gosec // the API server keeps it within an int32
}

// IntakeTable shows a change of a pool's intake.
func IntakeTable(p PoolIntake) Table {
	return Table{
		Columns: []string{"NAMESPACE", "POOL", "INTAKE", "WAS", "IDLE", "BUSY"},
		Rows:    [][]string{{p.Namespace, p.Name, string(p.Intake), string(p.Was), fmt.Sprint(p.Idle), fmt.Sprint(p.Busy)}},
		Paint:   paintOnly("INTAKE", map[string]Colour{string(v1alpha1.IntakeOpen): Green, string(v1alpha1.IntakePaused): Yellow, string(v1alpha1.IntakeDrained): Yellow}),
	}
}
