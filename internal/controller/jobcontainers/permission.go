package jobcontainers

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// permission is what a pod's job may have in containers.
type permission struct {
	images  imagename.Policy
	profile v1alpha1.SecurityProfile
	tenant  string // of image.Query: limits of concurrent lookups are per tenant
}

// permitted is what the pod's pool, or its Runner, permits now; or why nothing, in a sentence for the job's log.
func (r *Reconciler) permitted(ctx context.Context, pod *corev1.Pod) (permission, string, error) {
	var containers *v1alpha1.JobContainers
	var err error
	var p permission
	owner, field := v1alpha1.KindRunnerPool+" "+pod.Labels[runnerpod.LabelPool], "spec.template.jobContainers"
	if pod.Labels[runnerpod.LabelSelfRegistering] == "true" {
		owner, field = v1alpha1.KindRunner+" "+pod.Name, "spec.jobContainers"
		p.tenant = accountOf(pod)
		containers, err = r.ofRunner(ctx, pod)
	} else {
		p.tenant = cmp.Or(strings.ToLower(pod.Labels[runnerpod.LabelOwner]), pod.Labels[runnerpod.LabelPool])
		containers, err = r.ofPool(ctx, pod)
	}
	if err != nil {
		return permission{}, "", fmt.Errorf("reading %s: %w", owner, err)
	}
	if containers == nil {
		return permission{}, owner + " no longer allows jobs to have containers.", nil
	}
	p.profile = containers.SecurityProfile
	if p.images, err = imagename.ParsePolicy(containers.AllowedImages, containers.Registries); err != nil {
		return permission{}, fmt.Sprintf("%s of %s is invalid: %s.", field, owner, err), nil
	}
	return p, "", nil
}

// ofPool is nil if the pool permits no containers, or does not exist any more.
func (r *Reconciler) ofPool(ctx context.Context, pod *corev1.Pod) (*v1alpha1.JobContainers, error) {
	var pool v1alpha1.RunnerPool
	err := r.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[runnerpod.LabelPool]}, &pool)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nothing is permitted
	}
	return pool.Spec.Template.JobContainers, err //nolint:wrapcheck // the caller names the pool
}

// ofRunner is nil if the pod's own Runner permits no containers, or does not exist any more. Without self-registering runners there is no cache of
// Runners, nor the right to make one.
func (r *Reconciler) ofRunner(ctx context.Context, pod *corev1.Pod) (*v1alpha1.JobContainers, error) {
	if !r.options.SelfRegistering {
		return nil, nil //nolint:nilnil // nothing is permitted
	}
	var runner v1alpha1.Runner
	err := r.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, &runner)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(pod, &runner) {
		return nil, nil //nolint:nilnil // nothing is permitted
	}
	return runner.Spec.JobContainers, err //nolint:wrapcheck // the caller names the Runner
}

// accountOf is the account that a self-registering runner serves, as the labels of other runners name it. An enterprise has a slash before its
// name, which no login has.
func accountOf(pod *corev1.Pod) string {
	facts, err := runnerpod.RegistrationOf(pod)
	switch {
	case err != nil: // written by hand
		return v1alpha1.KindRunner + "/" + pod.Name
	case facts.Enterprise != "":
		return "enterprise/" + facts.Enterprise
	}
	owner, _, _ := strings.Cut(facts.Repository, "/")
	return strings.ToLower(runnerpod.OwnerLabelValue(cmp.Or(facts.Organization, owner))) // GitHub ignores case, and it was typed
}
