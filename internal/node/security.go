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
		NonRoot: ptr.Deref(own.RunAsNonRoot, ptr.Deref(of.RunAsNonRoot, false)),
	}
	if of.FSGroup != nil {
		s.Groups = append(s.Groups, *of.FSGroup)
	}
	return s
}

func runAsUser(pod *corev1.Pod, c *corev1.Container) int64 { return ptr.Deref(namedUser(pod, c), 0) }

// namedUser is the user that the container or its pod names; nil where neither does, and it runs as its image says.
func namedUser(pod *corev1.Pod, c *corev1.Container) *int64 {
	of, own := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	if own.RunAsUser != nil {
		return own.RunAsUser
	}
	return of.RunAsUser
}

// ownership is the owner and group of a pod's volumes, by a kubelet's rules. Only root can change a file's owner: without root the files
// stay the node agent's, as its containers are.
type ownership struct {
	group *int64 // fsGroup: it may read every file, and write where root may
	user  *int64 // the one that all containers are named to run as: projected tokens are its own
}

func ownershipOf(pod *corev1.Pod) ownership {
	o := ownership{group: ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}).FSGroup}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			user := namedUser(pod, &list[i])
			if user == nil || o.user != nil && *o.user != *user {
				return ownership{group: o.group}
			}
			o.user = user
		}
	}
	return o
}

// tokenMode is the mode of a projected token in a volume with that default mode. A kubelet uses the default mode only where no owner is set
// for the token: then it is root's, and with 0400 no other user's container can read it.
func (o ownership) tokenMode(defaultMode *int32) os.FileMode {
	if o.group == nil && o.user == nil {
		return mode(defaultMode)
	}
	return 0o600
}

// of is whose a file of that mode becomes on a node agent that is root.
func (o ownership) of(mode os.FileMode, token bool) (user, group int, as os.FileMode) {
	if token && o.user != nil {
		user = int(*o.user)
	}
	if o.group != nil {
		return user, int(*o.group), mode | 0o440
	}
	return user, 0, mode
}

// give hands a file of that mode over.
func (o ownership) give(path string, mode os.FileMode, token bool) error {
	if os.Geteuid() != 0 {
		return nil
	}
	user, group, as := o.of(mode, token)
	if err := os.Chown(path, user, group); err != nil {
		return err
	}
	return os.Chmod(path, as)
}
