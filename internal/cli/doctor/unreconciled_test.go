package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Objects of a part that is off are accepted and ignored: the doctor names the value. Those that a controller has seen have a status.
func TestDoctor_FindsObjectsThatNothingReconciles(t *testing.T) {
	s := newSite(t)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.look.Release.RunnerNamespace, Name: name}
	}
	spec := v1alpha1.RunnerSpec{
		Registration: v1alpha1.Registration{Organization: "acme"},
		Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "runner"}}}},
	}
	seen := &v1alpha1.Runner{ObjectMeta: meta("seen"), Spec: spec}
	mac := &v1alpha1.MacHost{ObjectMeta: meta("mac-1"), Spec: v1alpha1.MacHostSpec{Address: "10.0.0.21"}}
	mac.Spec.SSHKeySecretRef, mac.Spec.ConfigRef = v1alpha1.SecretKey{Name: "mac-ssh", Key: "key"}, &v1alpha1.ConfigMapKey{Name: "macs"}
	for _, object := range []client.Object{seen, &v1alpha1.Runner{ObjectMeta: meta("unseen"), Spec: spec}, mac} {
		require.NoError(t, s.admin.Create(t.Context(), object))
	}
	seen.Status.Message = "idle"
	require.NoError(t, s.admin.Status().Update(t.Context(), seen))

	evidence := Gather(t.Context(), s.look)
	require.Empty(t, evidence.Unchecked)
	require.Empty(t, Examine(evidence).Findings, "a controller may be about to write their status")
	evidence.Now = evidence.Now.Add(settling + 10*time.Second)
	r := Examine(evidence)
	require.Equal(t, []string{"mac-hosts-off", "self-registering-off"}, codes(r), "%+v", r.Findings)
	require.Equal(t, ExitErrors, r.ExitCode())
	require.Contains(t, r.Findings[0].Sentence, "has not written a status to Runner unseen.")
	require.Contains(t, r.Findings[0].Remedy, "selfRegistering.enabled to true")
	require.Contains(t, r.Findings[0].Remedy, "server.otherRunnerLabels")
	require.Contains(t, r.Findings[1].Sentence, "MacHost mac-1")
	require.Contains(t, r.Findings[1].Remedy, "macHosts.enabled to true")

	evidence.Cluster.Lease.Missing = true
	require.Equal(t, []string{"no-controller"}, codes(Examine(evidence)), "without a controller nothing is reconciled, whatever is on")
}
