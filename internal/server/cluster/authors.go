package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// authorsLife is how long an enforced policy is cached. One that is not enforced is not.
	authorsLife = 30 * time.Second
	// authorsDelay is more than an API server takes to enforce a policy that was created.
	authorsDelay = 15 * time.Second
)

// AuthorsOptions configure Authors.
type AuthorsOptions struct {
	Config *rest.Config
	// Policy is the name of the admission policy, and of its binding, that lets users state their own name only.
	Policy string
	Now    func() time.Time
}

// Authors says whether the cluster verifies the names of users in audiences of tokens and in the annotation of pools: whether the chart's
// admission policy on authors exists and denies (ADR 0054). It is safe for concurrent use.
type Authors struct {
	opt    AuthorsOptions
	client kubernetes.Interface

	mu    sync.Mutex
	known remembered[time.Time] // since when it is enforced
}

// NewAuthors makes no request yet.
func NewAuthors(opt AuthorsOptions) (*Authors, error) {
	if opt.Config == nil || opt.Policy == "" {
		return nil, errors.New("verifying authors needs a client configuration and the name of the admission policy")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	client, err := kubernetes.NewForConfig(opt.Config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &Authors{opt: opt, client: client}, nil
}

// Enforced says whether the policy was enforced at that time, and still is. An error means that the cluster did not answer.
func (a *Authors) Enforced(ctx context.Context, at time.Time) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known.until.After(a.opt.Now()) {
		since, err := a.since(ctx)
		if err != nil || since.IsZero() {
			return false, err
		}
		a.known = remembered[time.Time]{since, a.opt.Now().Add(authorsLife)}
	}
	return !at.Before(a.known.value), nil
}

// since reads policy and binding; zero: it is not enforced.
func (a *Authors) since(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	policy, err := a.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, a.opt.Policy, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, absentOr(err, "reading the admission policy "+a.opt.Policy)
	}
	binding, err := a.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, a.opt.Policy, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, absentOr(err, "reading the binding of the admission policy "+a.opt.Policy)
	}
	return enforcedSince(policy, binding), nil
}

// absentOr is nil if the server cannot rely on the object because it does not exist, or the server may not read it.
func absentOr(err error, doing string) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// enforcedSince is when the later of both was created, and some seconds; zero: together they do not deny everywhere.
func enforcedSince(policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) time.Time {
	failure := policy.Spec.FailurePolicy
	if policy.DeletionTimestamp != nil || binding.DeletionTimestamp != nil || failure != nil && *failure != admissionv1.Fail ||
		binding.Spec.PolicyName != policy.Name || binding.Spec.MatchResources != nil || binding.Spec.ParamRef != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return time.Time{}
	}
	since := policy.CreationTimestamp.Time
	if binding.CreationTimestamp.After(since) {
		since = binding.CreationTimestamp.Time
	}
	return since.Add(authorsDelay)
}
