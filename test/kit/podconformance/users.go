package podconformance

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The rules of users are in "Configure a Security Context for a Pod or Container" and in the kubelet's kuberuntime/security_context.go. A
// user that is not in the image's /etc/passwd has group 0.
var users = []row{
	{
		name: "Users/RunAsUser", fact: "`runAsUser` alone leaves group 0",
		run: func(t *T) {
			t.prints("12345 0", `echo "$(id -u) $(id -g)"`, secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Users/ContainerBeforePod", fact: "a container's user overrides its pod's, and keeps the pod's group",
		run: func(t *T) {
			t.prints("12346 23456", `echo "$(id -u) $(id -g)"`,
				secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345), RunAsGroup: ptr.To[int64](23456)}),
				inMain(func(c *corev1.Container) {
					c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](12346)}
				}))
		},
	},
	{
		name: "Users/Groups", fact: "`supplementalGroups` and `fsGroup` are groups of each process",
		run: func(t *T) {
			groups := strings.Fields(t.run("id -G", secured(corev1.PodSecurityContext{
				RunAsUser: ptr.To[int64](12345), RunAsGroup: ptr.To[int64](23456), SupplementalGroups: []int64{3001, 3002}, FSGroup: ptr.To[int64](3003),
			})).output())
			slices.Sort(groups)
			require.Equal(t, []string{"23456", "3001", "3002", "3003"}, groups)
		},
	},
	{
		name: "Users/NonRootImage", fact: "`runAsNonRoot` without a user rejects an image that runs as root",
		run: func(t *T) {
			t.rejectsUser(secured(corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}))
		},
	},
	{
		name: "Users/NonRootUserZero", fact: "`runAsNonRoot` rejects user 0",
		run: func(t *T) {
			t.rejectsUser(secured(corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](0)}))
		},
	},
	{
		name: "Users/NonRootOfContainer", fact: "a container's `runAsNonRoot: false` overrides its pod's",
		run: func(t *T) {
			t.prints("0", "id -u", secured(corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}),
				inMain(func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(false)} }))
		},
	},
	{
		name: "Users/NonRootUser", fact: "`runAsNonRoot` allows another user",
		run: func(t *T) {
			t.prints("12345", "id -u", secured(corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Users/NoNewPrivileges", fact: "`allowPrivilegeEscalation: false` sets no_new_privs",
		run: func(t *T) {
			t.prints("1", procStatus("NoNewPrivs"), inMain(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)}
			}))
		},
	},
	{
		name: "Users/NoCapabilities", fact: "a user other than root has no effective capabilities",
		run: func(t *T) {
			t.prints("0000000000000000", procStatus("CapEff"), secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Users/RootWithoutCapabilities", fact: "`capabilities.drop: [ALL]` leaves root none",
		run: func(t *T) {
			t.prints("0000000000000000", procStatus("CapEff"), inMain(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
			}))
		},
	},
	{
		name: "Users/ReadOnlyRoot", fact: "`readOnlyRootFilesystem` leaves volumes writable",
		run: func(t *T) {
			t.prints("read-only\nvolume", `touch /x 2>/dev/null || echo read-only; touch /shared/x && echo volume`, shared,
				inMain(func(c *corev1.Container) {
					c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
				}))
		},
	},
}

// procStatus prints a field of the shell's /proc/PID/status.
func procStatus(field string) string {
	return `while read -r name value; do case $name in ` + field + `:) echo "$value";; esac; done < /proc/self/status`
}

// rejectsUser requires that the container waits with reason CreateContainerConfigError, and does not start.
func (t *T) rejectsUser(changes ...change) {
	p := t.run("id -u", changes...)
	pod := p.await("rejected", func(pod *corev1.Pod) bool {
		return ended(pod) || waiting(pod, "main").Reason == "CreateContainerConfigError"
	})
	require.Contains(t, waiting(pod, "main").Message, "root", describe(pod))
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
}
