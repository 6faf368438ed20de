package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestMount_WhatTheAgentFillsIsReadOnly(t *testing.T) {
	r := resolver{volume: func(name string) string { return "/host/" + name }}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}}}
	for volume, readOnly := range map[string]bool{"empty": false, "config": true} {
		mount, err := r.mount(pod, corev1.VolumeMount{Name: volume, MountPath: "/v"}, lookupIn(nil))
		require.NoError(t, err)
		require.Equal(t, readOnly, mount.ReadOnly, volume)
	}
}

func TestMount_SubPathIsCreatedWithTheVolumesMode(t *testing.T) {
	volume := t.TempDir()
	require.NoError(t, os.Chmod(volume, 0o777)) //nolint:gosec // as an emptyDir is
	r := resolver{volume: func(string) string { return volume }}
	mount, err := r.mount(&corev1.Pod{}, corev1.VolumeMount{MountPath: "/v", SubPathExpr: "of-$(TEAM)/deep"}, lookupIn(map[string]string{"TEAM": "red"}))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(volume, "of-red/deep"), mount.HostPath)
	for _, dir := range []string{"of-red", "of-red/deep"} {
		info, err := os.Stat(filepath.Join(volume, dir))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o777), info.Mode().Perm(), dir)
	}

	file := filepath.Join(volume, "key")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	mount, err = r.mount(&corev1.Pod{}, corev1.VolumeMount{MountPath: "/v", SubPath: "key"}, lookupIn(nil))
	require.NoError(t, err)
	require.Equal(t, file, mount.HostPath, "a subPath may be a file")
}

func TestMount_SubPathThatCannotBe(t *testing.T) {
	volume, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(volume, "link")))
	r := resolver{volume: func(string) string { return volume }}
	for want, m := range map[string]corev1.VolumeMount{
		"the variable NONE is not set":  {SubPathExpr: "of-$(NONE)"},
		"the variable EMPTY is not set": {SubPathExpr: "$(EMPTY)"},
		"leaves the volume":             {SubPathExpr: "../$(A)"},
		"escapes":                       {SubPath: "link/made"},
	} {
		_, err := r.mount(&corev1.Pod{}, m, lookupIn(map[string]string{"A": "a", "EMPTY": ""}))
		require.ErrorContains(t, err, want)
	}
	require.NoDirExists(t, filepath.Join(outside, "made"))
}
