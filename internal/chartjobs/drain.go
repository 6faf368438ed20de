package chartjobs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var runnerPools = schema.GroupVersionResource{Group: "bullpen.dev", Version: "v1alpha1", Resource: "runnerpools"}

// Drain deletes the pools that a label selector finds in a namespace, and returns when they are gone: the controller lets go
// of a pool when its last busy runner has ended by itself (POOL-2). It takes as long as that takes, unless ctx ends before.
// It says on out what it waits for, whenever that changes, and looks again every so often.
func Drain(ctx context.Context, cluster dynamic.Interface, namespace, selector string, every time.Duration, out io.Writer) error {
	if selector == "" {
		return fmt.Errorf("draining the pools of %s: no selector: name the release's labels, or everybody's pools would go", namespace)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		left, err := drainOnce(ctx, cluster, namespace, selector)
		switch {
		case apierrors.IsNotFound(err): // the kind itself: it was never installed, or somebody has deleted it
			left = nil
		case err != nil && ctx.Err() != nil && said != "":
			return fmt.Errorf("%s: %w", said, ctx.Err())
		case err != nil:
			return fmt.Errorf("draining the pools of %s: %w", namespace, err)
		}
		if len(left) == 0 {
			fmt.Fprintln(out, "no pool is left")
			return nil
		}
		if now := "waiting for " + strings.Join(left, ", "); now != said {
			said = now
			fmt.Fprintln(out, now)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", said, ctx.Err())
		}
	}
}

// drainOnce deletes what is not being deleted, and returns what is left, in words.
func drainOnce(ctx context.Context, cluster dynamic.Interface, namespace, selector string) ([]string, error) {
	pools := cluster.Resource(runnerPools).Namespace(namespace)
	list, err := pools.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var left []string
	for i := range list.Items {
		pool := &list.Items[i]
		if pool.GetDeletionTimestamp() == nil {
			uid := pool.GetUID()
			err := pools.Delete(ctx, pool.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another of that name: next time
				return nil, err
			}
		}
		busy, _, _ := unstructured.NestedInt64(pool.Object, "status", "busy")
		left = append(left, fmt.Sprintf("%s (%d busy)", pool.GetName(), busy))
	}
	slices.Sort(left)
	return left, nil
}
