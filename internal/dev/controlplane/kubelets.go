package controlplane

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// KubeletClient is the user as which the API server asks nodes for logs, and runs commands there.
const KubeletClient = "kube-apiserver-kubelet-client"

// letAskNodes binds Kubernetes' role for kubelet API access to that user.
func (c *ControlPlane) letAskNodes(ctx context.Context) error {
	kube, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	binding := rbacapply.ClusterRoleBinding("bullpen:" + KubeletClient).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName("system:kubelet-api-admin")).
		WithSubjects(rbacapply.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(KubeletClient))
	_, err = kube.RbacV1().ClusterRoleBindings().Apply(ctx, binding, metav1.ApplyOptions{FieldManager: "bullpen-controlplane", Force: true})
	if err != nil {
		return fmt.Errorf("letting the API server ask nodes: %w", err)
	}
	return nil
}
