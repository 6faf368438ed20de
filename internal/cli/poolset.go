package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// PoolChange is a request to change fields of a pool.
type PoolChange struct {
	Namespace, Pool string
	Settings        []poolchange.Setting
	ForceConflicts  bool // also change fields that another manager applies
}

// PoolSettings is the result of a PoolChange.
type PoolSettings struct {
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	Changed   bool                 `json:"changed"`
	Fields    []poolchange.Changed `json:"fields"`
	// Warnings are sentences about what may undo the change, or hide it.
	Warnings []string `json:"warnings,omitempty"`
	// Notes are sentences about what becomes of the change.
	Notes []string `json:"notes,omitempty"`
}

// SetPool changes fields of a pool, with the caller's own rights in the cluster. It writes nothing if they have these values already. A concurrent
// change of the same fields is a conflict, and so is a field that another manager applies.
func SetPool(ctx context.Context, config *rest.Config, c PoolChange) (PoolSettings, error) {
	pools, user, err := poolsToChange(ctx, config, c.Namespace)
	if err != nil {
		return PoolSettings{}, err
	}
	var out PoolSettings
	var first *poolchange.Change
	err = retry.RetryOnConflict(retry.DefaultRetry, func() (err error) { // the controller writes the pool's status every few seconds
		out, err = c.set(ctx, pools, user, &first)
		return err
	})
	if apierrors.IsConflict(err) || errors.Is(err, poolchange.ErrChanged) {
		return PoolSettings{}, fmt.Errorf("conflict: pool %s was changed at the same time. Check `bullpen pool get %s` and retry", c.Pool, c.Pool)
	}
	return out, err
}

// set is one attempt. first is the change that the first attempt decided.
func (c PoolChange) set(ctx context.Context, pools dynamic.ResourceInterface, user func() string, first **poolchange.Change) (PoolSettings, error) {
	pool, err := pools.Get(ctx, c.Pool, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !reach.NoSuchKind(err) {
		return PoolSettings{}, poolNotFound(c.Pool, " in namespace "+c.Namespace, namesOf(ctx, pools))
	}
	if err != nil {
		return PoolSettings{}, reach.Cluster("reading pool "+c.Pool, err)
	}
	change, err := poolchange.Decide(pool, c.Settings)
	if err != nil {
		return PoolSettings{}, err
	}
	if *first == nil {
		*first = &change
	}
	if err := change.StillFrom(**first); err != nil {
		return PoolSettings{}, err
	}
	out := PoolSettings{Namespace: c.Namespace, Name: c.Pool, Fields: change.Fields, Warnings: drainWarning(pool)}
	if change.Patch == nil {
		return out, nil
	}
	if err := change.Conflicts(c.Pool); err != nil && !c.ForceConflicts {
		return PoolSettings{}, err
	}
	sign(change.Patch, pool, user())
	patch, err := json.Marshal(change.Patch)
	if err != nil {
		return PoolSettings{}, fmt.Errorf("encoding the change: %w", err)
	}
	_, err = pools.Patch(ctx, c.Pool, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: poolchange.OwnManager})
	switch {
	case apierrors.IsConflict(err):
		return PoolSettings{}, err
	case apierrors.IsInvalid(err):
		return PoolSettings{}, fmt.Errorf("changing pool %s: %s", c.Pool, invalid(err))
	case err != nil:
		return PoolSettings{}, reach.Cluster("changing pool "+c.Pool, err)
	}
	out.Changed, out.Warnings, out.Notes = true, append(change.Warnings(), out.Warnings...), change.Notes()
	return out, nil
}

// drainWarning says that a drained pool has no runners, whatever its size.
func drainWarning(pool *unstructured.Unstructured) []string {
	if intakeOf(pool) != v1alpha1.IntakeDrained {
		return nil
	}
	return []string{fmt.Sprintf("pool %s is drained and keeps no idle runners until `bullpen pool resume %s`", pool.GetName(), pool.GetName())}
}

// invalid names the fields that the API server rejects, and why.
func invalid(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var texts []string
	for _, cause := range status.Status().Details.Causes {
		texts = append(texts, cause.Field+": "+cause.Message)
	}
	return strings.Join(texts, "; ")
}

// Already says that the fields have these values; empty if one was changed.
func (p PoolSettings) Already() string {
	if p.Changed {
		return ""
	}
	texts := make([]string, len(p.Fields))
	for i, field := range p.Fields {
		texts[i] = fmt.Sprintf("%s %v", field.Field, field.Value)
	}
	return "pool " + p.Name + " already has " + strings.Join(texts, ", ")
}

// PoolSettingsTable shows fields before and after a change.
func PoolSettingsTable(p PoolSettings) Table {
	t := Table{Columns: []string{"NAMESPACE", "POOL", "FIELD", "WAS", "VALUE"}}
	for _, field := range p.Fields {
		was := "-"
		if field.Was != nil {
			was = fmt.Sprint(field.Was)
		}
		t.Rows = append(t.Rows, []string{p.Namespace, p.Name, field.Field, was, fmt.Sprint(field.Value)})
	}
	return t
}
