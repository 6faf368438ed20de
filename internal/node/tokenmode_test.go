package node

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// The poller can read its token on a node, whatever else is in the pod: beside Docker's daemon, which is root, a kubelet gives the token to
// root in its volume's default mode, and a poller with another user would never ask for a job.
func TestTokenMode_ThePollerCanReadItsToken(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Name, pool.Namespace = "linux", "runners"
	pool.Spec.Platform, pool.Spec.Labels = v1alpha1.PlatformLinux, []string{"linux"}
	pool.Spec.Resources.CPU, pool.Spec.Resources.Memory = resource.MustParse("1"), resource.MustParse("1Gi")
	pool.Spec.Template.Image = "runner:1"
	options := runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}
	plain, _, err := runnerpod.Build(pool, options, "abcd1234")
	require.NoError(t, err)
	require.True(t, pollerReads(t, plain))

	pool.Spec.Template.RuntimeClassName, pool.Spec.Template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	dind, _, err := runnerpod.Build(pool, options, "abcd1234")
	require.NoError(t, err)
	require.True(t, pollerReads(t, dind), "beside Docker's daemon")

	for _, mode := range []*int32{nil, ptr.To[int32](0o444)} {
		token(t, dind).DefaultMode = mode
		require.True(t, pollerReads(t, dind))
	}
	token(t, dind).DefaultMode = ptr.To[int32](0o400)
	require.False(t, pollerReads(t, dind), "as on a kubelet")
	dind.Spec.SecurityContext.FSGroup = ptr.To[int64](1001)
	require.True(t, pollerReads(t, dind), "by its group")

	token(t, plain).DefaultMode = ptr.To[int32](0o400)
	require.True(t, pollerReads(t, plain), "all containers run as one user, whose the token is")
	plain.Spec.SecurityContext.RunAsUser = nil
	plain.Spec.Containers[1].SecurityContext.RunAsUser = ptr.To[int64](1001)
	require.False(t, pollerReads(t, plain), "one container names no user")
}

// The rules of a kubelet, for every file of a volume.
func TestOwnership_OfFiles(t *testing.T) {
	user, group := ptr.To[int64](12345), ptr.To[int64](3003)
	for name, test := range map[string]struct {
		owner       ownership
		mode        os.FileMode
		token       bool
		user, group int
		want        os.FileMode
	}{
		"nothing named":                     {ownership{}, 0o644, false, 0, 0, 0o644},
		"a token of one user":               {ownership{user: user}, 0o600, true, 12345, 0, 0o600},
		"another file beside it":            {ownership{user: user}, 0o400, false, 0, 0, 0o400},
		"a token of one user and a group":   {ownership{user: user, group: group}, 0o600, true, 12345, 3003, 0o640},
		"another file of that group":        {ownership{user: user, group: group}, 0o400, false, 0, 3003, 0o440},
		"a token of a group":                {ownership{group: group}, 0o600, true, 0, 3003, 0o640},
		"a file that its owner cannot read": {ownership{group: group}, 0o000, false, 0, 3003, 0o440},
	} {
		user, group, mode := test.owner.of(test.mode, test.token)
		require.Equal(t, test.user, user, name)
		require.Equal(t, test.group, group, name)
		require.Equal(t, test.want, mode, name)
	}
}

func token(t *testing.T, pod *corev1.Pod) *corev1.ProjectedVolumeSource {
	t.Helper()
	for _, v := range pod.Spec.Volumes {
		if v.Name == runnerpod.VolumeToken {
			return v.Projected
		}
	}
	t.Fatal("there is no token")
	return nil
}

// pollerReads reports whether the user and the groups of the poller may read the token.
func pollerReads(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	owner := ownershipOf(pod)
	user, group, mode := owner.of(owner.tokenMode(token(t, pod).DefaultMode), true)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name != runnerpod.ContainerPoller {
			continue
		}
		as := security(pod, c)
		bit := os.FileMode(0o004)
		switch {
		case as.User == int64(user):
			bit = 0o400
		case as.Group == int64(group) || slices.Contains(as.Groups, int64(group)):
			bit = 0o040
		}
		return mode&bit != 0
	}
	t.Fatal("there is no poller")
	return false
}
