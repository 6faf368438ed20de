package node

import (
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// security is what a container's security context, and its pod's, come to. Without a word of either it is root.
func security(pod *corev1.Pod, c *corev1.Container) sandbox.Security {
	of, own := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	s := sandbox.Security{
		User: runAsUser(pod, c), Group: ptr.Deref(own.RunAsGroup, ptr.Deref(of.RunAsGroup, 0)),
		Groups:       append([]int64{}, of.SupplementalGroups...),
		ReadOnlyRoot: ptr.Deref(own.ReadOnlyRootFilesystem, false), NoNewPrivileges: !ptr.Deref(own.AllowPrivilegeEscalation, true),
	}
	if of.FSGroup != nil {
		s.Groups = append(s.Groups, *of.FSGroup)
	}
	return s
}

func runAsUser(pod *corev1.Pod, c *corev1.Container) int64 {
	of, own := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	return ptr.Deref(own.RunAsUser, ptr.Deref(of.RunAsUser, 0))
}

// ownership is whose a pod's volumes are, by a kubelet's rules. Only root can give files away: for anybody else they stay
// the node agent's, as its containers are.
type ownership struct {
	group *int64 // fsGroup: it may read every file, and write where root may
	user  *int64 // the one that all containers run as: projected tokens are its own, where there is no fsGroup
}

func ownershipOf(pod *corev1.Pod) ownership {
	o := ownership{group: ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}).FSGroup}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			user := runAsUser(pod, &list[i])
			if o.user != nil && *o.user != user {
				return ownership{group: o.group}
			}
			o.user = &user
		}
	}
	return o
}

// tokenMode is a projected token's.
func (o ownership) tokenMode() os.FileMode {
	if o.group == nil && o.user == nil {
		return 0o644
	}
	return 0o600
}

// give hands a file of that mode over.
func (o ownership) give(path string, mode os.FileMode, token bool) error {
	switch {
	case os.Geteuid() != 0:
		return nil
	case o.group != nil:
		if err := os.Chown(path, -1, int(*o.group)); err != nil {
			return err
		}
		return os.Chmod(path, mode|0o040)
	case token && o.user != nil:
		return os.Chown(path, int(*o.user), -1)
	}
	return nil
}
