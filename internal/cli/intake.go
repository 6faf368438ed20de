package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// PoolIntake is what became of a pool's intake.
type PoolIntake struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Was       v1alpha1.Intake `json:"was"`
	Intake    v1alpha1.Intake `json:"intake"`
	Note      string          `json:"note,omitempty"` // by whom, when and why
	Idle      int32           `json:"idle"`           // as its controller last said
	Busy      int32           `json:"busy"`
	Changed   bool            `json:"changed"`
}

// IntakeChange is what somebody asks for.
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

// SetIntake has a pool hand out jobs or not, with the caller's own rights in the cluster, whose audit log names them. To ask for what is so
// already writes nothing. Errors are those of the cluster's API.
func SetIntake(ctx context.Context, config *rest.Config, c IntakeChange) (PoolIntake, error) {
	if len(c.Reason) > maxReason || strings.ContainsAny(c.Reason, "\n\r") {
		return PoolIntake{}, fmt.Errorf("the reason must be one line of at most %d bytes", maxReason)
	}
	cluster, err := dynamic.NewForConfig(config)
	if err != nil {
		return PoolIntake{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	pools := cluster.Resource(v1alpha1.GroupVersion.WithResource("runnerpools")).Namespace(c.Namespace)
	pool, err := pools.Get(ctx, c.Pool, metav1.GetOptions{})
	if err != nil {
		return PoolIntake{}, fmt.Errorf("reading pool %s: %w", c.Pool, err)
	}
	out := PoolIntake{
		Namespace: c.Namespace, Name: c.Pool, Was: intakeOf(pool), Intake: c.Intake, Note: pool.GetAnnotations()[v1alpha1.AnnotationIntakeNote],
		Idle: statusCount(pool, "idle"), Busy: statusCount(pool, "busy"),
	}
	if out.Was == c.Intake {
		return out, nil
	}
	var note any // nil takes it off
	out.Note = ""
	if c.Intake != v1alpha1.IntakeOpen {
		out.Note = c.note(whoAmI(ctx, config))
		note = out.Note
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationIntakeNote: note}}, "spec": map[string]any{"intake": c.Intake},
	})
	if err != nil {
		return PoolIntake{}, fmt.Errorf("encoding the change: %w", err)
	}
	if _, err := pools.Patch(ctx, c.Pool, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: intakeManager}); err != nil {
		return PoolIntake{}, fmt.Errorf("changing pool %s: %w", c.Pool, err)
	}
	out.Changed = true
	return out, nil
}

// note is for people; who did it is for the cluster's audit log to say.
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

// whoAmI is empty where the cluster does not say.
func whoAmI(ctx context.Context, config *rest.Config) string {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return ""
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authnv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

func intakeOf(pool *unstructured.Unstructured) v1alpha1.Intake {
	text, _, _ := unstructured.NestedString(pool.Object, "spec", "intake")
	if text == "" { // of a pool that was written down before there was the field
		return v1alpha1.IntakeOpen
	}
	return v1alpha1.Intake(text)
}

func statusCount(pool *unstructured.Unstructured, field string) int32 {
	n, _, _ := unstructured.NestedInt64(pool.Object, "status", field)
	return int32(n) //nolint:gosec // the API server keeps it within an int32
}

// IntakeTable shows what became of a pool.
func IntakeTable(p PoolIntake) Table {
	return Table{
		Columns: []string{"NAMESPACE", "POOL", "INTAKE", "WAS", "IDLE", "BUSY"},
		Rows:    [][]string{{p.Namespace, p.Name, string(p.Intake), string(p.Was), fmt.Sprint(p.Idle), fmt.Sprint(p.Busy)}},
	}
}
