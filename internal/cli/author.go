package cli

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// userName is the name by which the cluster knows the user of this client; empty if the cluster does not say.
func userName(ctx context.Context, client kubernetes.Interface) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// sign adds the user who sends it to a merge patch that changes a pool's spec, for the audit log (ADR 0054). The chart's admission policy
// accepts the user's own name only, for the generation that the patch makes: the patch must have the pool's resourceVersion. If the user
// is unknown, a former name is removed.
func sign(patch map[string]any, pool metav1.Object, user string) {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[v1alpha1.AnnotationChangedBy] = nil
	if user != "" {
		annotations[v1alpha1.AnnotationChangedBy] = v1alpha1.ChangedBy(pool.GetUID(), pool.GetGeneration()+1, user)
	}
}
