package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Administrators see a MacHost's own status, also of the cached copy; how to connect to the Mac is in neither.
func TestDescribeHost_IsWhatTheMacHostSays(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	host := &v1alpha1.MacHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "mini-1", DeletionTimestamp: &at},
		Spec:       v1alpha1.MacHostSpec{Address: "10.0.0.7", User: "admin", Pool: "minis", SSHKeySecretRef: v1alpha1.SecretKey{Name: "mac-ssh"}},
		Status: v1alpha1.MacHostStatus{
			NodeName: "mini-1-node", HostKey: "SHA256:x", AppliedTime: &at, Attempts: 2, Unreachable: 1, NextAttempt: &at, LastError: "tart is another one", NodeMissingSince: &at,
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Failed", Message: "a step failed"},
				{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Message: "it answers"},
				{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Message: "it works"},
				{Type: v1alpha1.ConditionStepPrefix + "tart", Status: metav1.ConditionFalse, Message: "another version"},
			},
		},
	}
	utc := at.UTC()
	want := adminapi.Host{
		Namespace: "runners", Name: "mini-1", Node: "mini-1-node", Pool: "minis", State: "Failed", Message: "a step failed", AppliedAt: &utc, Attempts: 2, Unreachable: 1,
		NextAttempt: &utc, LastError: "tart is another one", NodeMissing: &utc, Problems: []adminapi.Problem{{Condition: "tart", Sentence: "another version"}}, Deleting: true,
	}
	require.Equal(t, want, describeHost(host))
	slim, err := trimHost(host)
	require.NoError(t, err)
	require.Equal(t, want, describeHost(slim.(*v1alpha1.MacHost)))
	require.Empty(t, slim.(*v1alpha1.MacHost).Spec.Address)
	require.Empty(t, slim.(*v1alpha1.MacHost).Spec.SSHKeySecretRef)
	require.Empty(t, slim.(*v1alpha1.MacHost).Status.HostKey)

	ready := &v1alpha1.MacHost{Status: v1alpha1.MacHostStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}}}}
	require.True(t, describeHost(ready).Ready)
	require.Nil(t, describeHost(ready).AppliedAt)
	require.Empty(t, describeHost(&v1alpha1.MacHost{}).State, "nothing was said of it yet")
}
