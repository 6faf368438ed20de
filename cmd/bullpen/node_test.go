package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestNodeFlags(t *testing.T) {
	labels, err := parseLabels([]string{"a=b", "c/d=e=f"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b", "c/d": "e=f"}, labels)
	taints, err := parseTaints([]string{"k=v:NoSchedule", "k:NoExecute"})
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "k", Effect: "NoExecute"}}, taints)
	list, err := nodeFlags{cpu: "7500m", pods: 3}.capacity(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, int64(7500), list.Cpu().MilliValue())
	require.Equal(t, int64(3), list.Pods().Value())
	require.Positive(t, list.Memory().Value())
}

func TestNodeFlags_BadOnesSayWhatToWrite(t *testing.T) {
	_, err := parseLabels([]string{"a"})
	require.ErrorContains(t, err, "must be KEY=VALUE")
	for _, taint := range []string{"k", ":NoSchedule", "k=v:Never"} {
		_, err := parseTaints([]string{taint})
		require.ErrorContains(t, err, "must be KEY[=VALUE]:EFFECT", taint)
	}
	for want, f := range map[string]nodeFlags{
		"--cpu":               {pods: 1, cpu: "many"},
		"--memory":            {pods: 1, memory: "-1Gi"},
		"--ephemeral-storage": {pods: 1, disk: "0"},
		"--pods":              {},
	} {
		_, err := f.capacity(t.TempDir())
		require.ErrorContains(t, err, want)
	}
	_, err = nodeFlags{sandbox: "vm"}.openSandbox(t.TempDir(), nil)
	require.ErrorContains(t, err, "--sandbox must be process, synthetic or tart, got \"vm\"")
	for want, f := range map[string]tartFlags{
		"--tart":      {program: " ", launchctl: "true", slots: 1},
		"--launchctl": {program: "true", launchctl: " ", slots: 1},
		"--vm-slots":  {program: "true", launchctl: "true", slots: 3},
	} {
		_, err := f.open(t.TempDir(), nil)
		require.ErrorContains(t, err, want)
	}
}
