package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// labelNamespace marks the namespaces of tests, and default, of which each is the runners' namespace of its test: policies
// that are shipped for the one hold in all of them.
const labelNamespace = "kit.bullpen.dev/runners"

// installAdmission creates the product's admission policies, and returns when the API server enforces them. They hold
// in every test, so that nothing is tested that an installation would refuse (EXCL-7).
func installAdmission(ctx context.Context, config *rest.Config, kube kubernetes.Interface) error {
	objects, err := shipped(nil, macHosts("none"), "templates/admission/")
	if err != nil {
		return err
	}
	// The chart's hold in one namespace, and the one on authors in two.
	for _, object := range objects {
		switch {
		case object.GetName() == "bullpen-authors":
			unstructured.RemoveNestedField(object.Object, "spec", "matchConstraints", "namespaceSelector")
		case object.GetKind() == "ValidatingAdmissionPolicy":
			err := unstructured.SetNestedStringMap(object.Object, map[string]string{labelNamespace: "true"}, "spec", "matchConstraints", "namespaceSelector", "matchLabels")
			if err != nil {
				return fmt.Errorf("preparing %s: %w", object.GetName(), err)
			}
		}
	}
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// The API server learns of policies in the order in which they were created, and of bindings likewise. The one that
	// can be asked for is made the last of both: when it holds, all do.
	asked := func(object *unstructured.Unstructured) int {
		if object.GetName() == "bullpen-busy-runner-deletion" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return asked(a) - asked(b) })
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, object := range objects {
			if object.GetKind() != kind {
				continue
			}
			if err := admin.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %s %s: %w", kind, object.GetName(), err)
			}
		}
	}
	return awaitAdmission(ctx, kube)
}

// awaitAdmission asks for the deletion of a busy runner until it is refused.
func awaitAdmission(ctx context.Context, kube kubernetes.Interface) error {
	const namespace = metav1.NamespaceDefault
	pods := kube.CoreV1().Pods(namespace)
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "admission-probe", Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelOwner: "nobody"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			SchedulingGates:              []corev1.PodSchedulingGate{{Name: "bullpen.dev/never"}},
			Containers:                   []corev1.Container{{Name: runnerpod.ContainerRunner, Image: "none"}},
		},
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	try := func(what string, ask func() error, until func(error) bool) error {
		for {
			err := ask()
			if until(err) {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for the admission policies, %s: %w", what, errors.Join(ctx.Err(), err))
			case <-tick.C:
			}
		}
	}
	mark := func() error { // the namespace and its ServiceAccount appear a moment after the API server
		patch := []byte(`{"metadata":{"labels":{"` + labelNamespace + `":"true"}}}`)
		_, err := kube.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if err := try("marking the namespace "+namespace, mark, func(err error) bool { return err == nil }); err != nil {
		return err
	}
	create := func() error {
		_, err := pods.Create(ctx, probe, metav1.CreateOptions{})
		return err
	}
	if err := try("creating a pod", create, func(err error) bool { return err == nil }); err != nil {
		return err
	}
	remove := func() error {
		return pods.Delete(ctx, probe.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err := try("deleting a busy runner", remove, apierrors.IsForbidden); err != nil {
		return err
	}
	if err := allowDeletion(ctx, kube, namespace, probe.Name); err != nil {
		return err
	}
	return pods.Delete(ctx, probe.Name, metav1.DeleteOptions{})
}

// allowDeletion breaks the glass, so that what a test leaves can go.
func allowDeletion(ctx context.Context, kube kubernetes.Interface, namespace, pod string) error {
	patch := []byte(`{"metadata":{"annotations":{"` + runnerpod.AnnotationAllowDeletion + `":"the test has ended"}}}`)
	_, err := kube.CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("allowing the deletion of %s: %w", pod, err)
	}
	return nil
}

// freeRunners allows the deletion of every runner in a namespace.
func (e *Env) freeRunners(ctx context.Context, namespace string) error {
	pods, err := e.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: runnerpod.LabelRunner + "=true"})
	if err != nil {
		return fmt.Errorf("listing the runners of %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if err := allowDeletion(ctx, e.Kube, namespace, pods.Items[i].Name); err != nil {
			return err
		}
	}
	return nil
}
