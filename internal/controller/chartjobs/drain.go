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

func kind(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "bullpen.dev", Version: "v1alpha1", Resource: plural}
}

var runnerPools = kind("runnerpools")

// selfRegistering are the kinds of runners that register themselves, those first that make the others.
var selfRegistering = []schema.GroupVersionResource{kind("runnerdeployments"), kind("runnersets"), kind("runnerreplicasets"), kind("runners")}

// DrainOptions say what Drain deletes.
type DrainOptions struct {
	Namespace string
	// Selector finds the release's pools by their labels.
	Selector string
	// SelfRegistering deletes all self-registering runners too, including those that users created: only the release's controller removes
	// their finalizers.
	SelfRegistering bool
	// Every is the polling interval.
	Every time.Duration
}

// Drain deletes the pools that a label selector finds in a namespace, and returns when they are gone. The controller releases a pool after
// its last busy runner has finished (POOL-2), and a self-registering runner after GitHub has deleted its registration (RUN-2). Only ctx
// limits the duration. Drain prints to out what it waits for, whenever that changes.
func Drain(ctx context.Context, cluster dynamic.Interface, options DrainOptions, out io.Writer) error {
	if options.Selector == "" {
		return fmt.Errorf("draining the pools of %s: no selector: set the release's labels, or all pools would be deleted", options.Namespace)
	}
	tick := time.NewTicker(options.Every)
	defer tick.Stop()
	said := ""
	for {
		left, err := drainOnce(ctx, cluster, options)
		switch {
		case err != nil && ctx.Err() != nil && said != "":
			return fmt.Errorf("%s: %w", said, ctx.Err())
		case err != nil:
			return fmt.Errorf("draining the pools of %s: %w", options.Namespace, err)
		}
		if len(left) == 0 {
			fmt.Fprintln(out, "no pools left")
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
func drainOnce(ctx context.Context, cluster dynamic.Interface, options DrainOptions) ([]string, error) {
	left, err := drainKind(ctx, cluster.Resource(runnerPools).Namespace(options.Namespace), options.Selector, "")
	if err != nil || !options.SelfRegistering {
		return left, err
	}
	for _, kind := range selfRegistering {
		more, err := drainKind(ctx, cluster.Resource(kind).Namespace(options.Namespace), "", strings.TrimSuffix(kind.Resource, "s")+" ")
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	return left, nil
}

// drainKind is drainOnce for one kind. A kind that is not served has no objects: its CRD was never installed, or was deleted.
func drainKind(ctx context.Context, objects dynamic.ResourceInterface, selector, prefix string) ([]string, error) {
	var list *unstructured.UnstructuredList
	err := granted(ctx, grantTakes, grantEvery, func() (err error) {
		list, err = objects.List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []string
	for i := range list.Items {
		object := &list.Items[i]
		if object.GetDeletionTimestamp() == nil {
			uid := object.GetUID()
			err := granted(ctx, grantTakes, grantEvery, func() error {
				return objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another of that name: next time
				return nil, err
			}
		}
		busy, counted, _ := unstructured.NestedInt64(object.Object, "status", "busy")
		text := prefix + object.GetName()
		if counted || prefix == "" {
			text += fmt.Sprintf(" (%d busy)", busy)
		}
		left = append(left, text)
	}
	slices.Sort(left)
	return left, nil
}
