package podconformance

import (
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A projected token belongs to the user that all containers name (FsUserFrom in pkg/volume/util/util.go): then, and with fsGroup, its mode is
// 0600 before the group's read permission is added. Otherwise it belongs to root and has the volume's defaultMode
// (pkg/volume/projected/projected.go, collectData).
var tokens = []row{
	{
		name: "Tokens/OneUser", fact: "all containers name one user: the token is that user's, mode 0600, whatever `defaultMode` says",
		run: func(t *T) {
			t.tokenIs("600 12345 0", ptr.To[int32](0o444), secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Tokens/OneUserAndGroup", fact: "with `fsGroup` besides, the group may read it: mode 0640",
		run: func(t *T) {
			t.tokenIs("640 12345 3003", nil, secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345), FSGroup: ptr.To[int64](3003)}))
		},
	},
	{
		name: "Tokens/Group", fact: "with `fsGroup` alone it is root's, mode 0640",
		run: func(t *T) {
			t.tokenIs("640 0 3003", nil, secured(corev1.PodSecurityContext{FSGroup: ptr.To[int64](3003)}))
		},
	},
	{
		name: "Tokens/NoUser", fact: "no container names a user: the token is root's, mode 0644",
		run: func(t *T) { t.tokenIs("644 0 0", nil) },
	},
	{
		name: "Tokens/TwoUsers", fact: "containers name different users: the token is root's, with `defaultMode`",
		run: func(t *T) {
			t.tokenIs("400 0 0", ptr.To[int32](0o400), second(ptr.To[int64](0)), secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Tokens/OneNamesNoUser", fact: "one container names no user: the same",
		run: func(t *T) {
			t.tokenIs("444 0 0", ptr.To[int32](0o444), second(nil), inMain(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](12345)}
			}))
		},
	},
	{
		name: "Tokens/InitContainerCounts", fact: "an init container of another user counts",
		run: func(t *T) {
			other := sh("before", "true")
			other.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](12346)}
			t.tokenIs("644 0 0", nil, initContainers(other), secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Tokens/OnlyTokens", fact: "other sources of the volume stay root's",
		run: func(t *T) {
			source := token(nil)
			source.Projected.Sources = append(source.Projected.Sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("config")}})
			t.prints("600 12345 0\n644 0 0", stat("/v/token", "/v/key"), mounted("v", "/v", source), secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		// The ServiceAccount admission plug-in adds the volume; ca.crt comes from the ConfigMap kube-root-ca.crt.
		name: "Tokens/Automounted", fact: "the ServiceAccount's volume has `ca.crt`, `namespace` and `token`",
		run: func(t *T) {
			p := t.run(`cd /var/run/secrets/kubernetes.io/serviceaccount; echo *; cat namespace; echo; touch x 2>/dev/null || echo read-only`,
				func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = ptr.To(true) })
			require.Equal(t, fmt.Sprintf("ca.crt namespace token\n%s\nread-only\n", t.namespace), p.output())
		},
	},
}

func token(mode *int32) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "test", ExpirationSeconds: ptr.To(int64(3600))}},
	}}}
}

// tokenIs requires mode, owner and group of a token in a volume of that default mode.
func (t *T) tokenIs(want string, defaultMode *int32, changes ...change) {
	t.prints(want, stat("/v/token"), append(changes, mounted("v", "/v", token(defaultMode)))...)
}

// second adds a container of another user.
func second(user *int64) change {
	return func(pod *corev1.Pod) {
		c := sh("second", "true")
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: user}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
}
