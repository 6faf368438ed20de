package runnerpod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// restrictable reports whether the pod can conform to the Pod Security level restricted (POD-2). A Docker daemon is privileged, and the pod's
// microVM is what confines it. A pool that runs as root says so, and root without capabilities can do nothing that root is chosen for.
func restrictable(template *v1alpha1.RunnerTemplate) bool {
	return template.Dind == nil && (template.UserAssignment == v1alpha1.UserFromCluster || runAsUser(template) != 0)
}

func runAsUser(template *v1alpha1.RunnerTemplate) int64 {
	return ptr.Deref(template.RunAsUser, DefaultRunAsUser)
}

// podSecurity is the pod's own security context.
func podSecurity(template *v1alpha1.RunnerTemplate) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{}
	if template.UserAssignment != v1alpha1.UserFromCluster {
		s.RunAsUser = ptr.To(runAsUser(template))
	}
	if template.Dind == nil {
		s.SeccompProfile = runtimeProfile()
	}
	if restrictable(template) {
		s.RunAsNonRoot = ptr.To(true)
	}
	return s
}

// runnerSecurity is the context of the container that runs jobs: the template's, and what restricted requires where that says nothing.
// nil leaves everything to the container runtime.
func runnerSecurity(template *v1alpha1.RunnerTemplate) *corev1.SecurityContext {
	given := template.SecurityContext.DeepCopy()
	if !restrictable(template) {
		return given
	}
	if given == nil {
		given = &corev1.SecurityContext{}
	}
	if ptr.Deref(given.Privileged, false) {
		return given // the API server refuses a privileged container with any of the others
	}
	if given.AllowPrivilegeEscalation == nil && !addsAdmin(given.Capabilities) { // likewise
		given.AllowPrivilegeEscalation = ptr.To(false)
	}
	if given.Capabilities == nil {
		given.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	return given
}

func runtimeProfile() *corev1.SeccompProfile {
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

func addsAdmin(c *corev1.Capabilities) bool {
	return c != nil && slices.ContainsFunc(c.Add, func(name corev1.Capability) bool { return upper(name) == "SYS_ADMIN" })
}

// upper is a capability's name as container runtimes read it: in any case.
func upper(name corev1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
}

// administers reports whether the capabilities include SYS_ADMIN. The same rule is in charts/bullpen/templates/admission/privileges.yaml.
func administers(c *corev1.Capabilities) bool {
	return addsAdmin(c) || c != nil && slices.ContainsFunc(c.Add, func(name corev1.Capability) bool { return upper(name) == "ALL" })
}

// harmless are the capabilities that a container may add without leaving it: those of the Pod Security level baseline.
var harmless = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
	"SYS_CHROOT",
}

// Harmless reports whether a container that adds the capability stays within the Pod Security level baseline.
func Harmless(name corev1.Capability) bool {
	return slices.Contains(harmless, strings.TrimPrefix(string(name), "CAP_"))
}

// checkSecurity refuses a context of the runner's container by which a job could reach its node (NET-7), outside a microVM.
func checkSecurity(s *corev1.SecurityContext, wayOut string) error {
	switch {
	case s == nil:
		return nil
	case ptr.Deref(s.Privileged, false):
		return refuse("spec.template.securityContext is privileged, so a job could reach the node: remove privileged, or %s", wayOut) // NET-7
	case s.WindowsOptions != nil && ptr.Deref(s.WindowsOptions.HostProcess, false):
		return refuse("spec.template.securityContext runs a host process, so a job could reach the node: remove windowsOptions.hostProcess") // NET-7
	case s.Capabilities == nil:
		return nil
	}
	for _, name := range s.Capabilities.Add {
		if !Harmless(name) {
			return refuse("spec.template.securityContext adds the capability %s, with which a job could reach the node: remove it, or %s", name, wayOut) // NET-7
		}
	}
	return nil
}
