package onebox

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
)

// withSize returns what to apply for a pool, and a sentence if its size stays as another client has set it.
func (a *applier) withSize(ctx context.Context, pool *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(poolKind)
	err := a.client.Get(ctx, client.ObjectKeyFromObject(pool), live)
	if apierrors.IsNotFound(err) {
		return pool, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading pool %s: %w", pool.GetName(), err)
	}
	return keepSize(pool, live)
}

// keepSize keeps the size of a pool that another client has changed since it was applied, such as `bullpen pool scale` (ADR 0059). The fields
// of a size depend on each other, so all of them stay.
func keepSize(pool, live *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	kept, differ, changed := pool.DeepCopy(), []string{}, false
	for _, field := range poolchange.Fields() {
		if !field.Size {
			continue
		}
		sent, given, _ := unstructured.NestedFieldNoCopy(pool.Object, field.Path...)
		value, there, _ := unstructured.NestedFieldNoCopy(live.Object, field.Path...)
		ours, err := poolchange.ManagedBy(live.GetManagedFields(), fieldManager, field.Path)
		if err != nil {
			return nil, "", err
		}
		if given && there && fmt.Sprint(sent) != fmt.Sprint(value) {
			differ = append(differ, fmt.Sprintf("%s %v (not %v)", strings.Join(field.Path, "."), value, sent))
			changed = changed || !ours
		}
		unstructured.RemoveNestedField(kept.Object, field.Path...)
		if there && ours { // a field of ours that is not applied again is removed
			if err := unstructured.SetNestedField(kept.Object, value, field.Path...); err != nil {
				return nil, "", fmt.Errorf("keeping the size of pool %s: %w", pool.GetName(), err)
			}
		}
	}
	if !changed {
		return pool, "", nil
	}
	if scaling, _, _ := unstructured.NestedMap(kept.Object, "spec", "autoscaling"); len(scaling) == 0 {
		unstructured.RemoveNestedField(kept.Object, "spec", "autoscaling")
	}
	return kept, fmt.Sprintf("pool %s keeps the size that another client has set: %s. Change it with `bullpen pool scale` or `bullpen pool set`",
		pool.GetName(), strings.Join(differ, ", ")), nil
}
