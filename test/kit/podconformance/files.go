package podconformance

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Modes of files are in the API reference of each volume source. With fsGroup, a kubelet adds read permission for the group to the files of
// volumes that it fills, and read, write and setgid to directories that pods write to (volume_linux.go, changeFilePermission).
var files = []row{
	{
		name: "Files/DefaultModeOfConfigMap", fact: "keys of a ConfigMap have mode 0644 and belong to root",
		run: func(t *T) {
			t.prints("644 0 0", stat("/v/key"), mounted("v", "/v", config(nil)))
		},
	},
	{
		name: "Files/DefaultMode", fact: "`defaultMode` is the mode of a Secret's keys",
		run: func(t *T) {
			t.prints("440 0 0", stat("/v/password"), mounted("v", "/v", secret(ptr.To[int32](0o440))))
		},
	},
	{
		name: "Files/ModeOfItem", fact: "an item's `mode` overrides `defaultMode`, and its `path` may have directories",
		run: func(t *T) {
			source := config(ptr.To[int32](0o444), corev1.KeyToPath{Key: "key", Path: "deep/name", Mode: ptr.To[int32](0o600)}, corev1.KeyToPath{Key: "other", Path: "other"})
			t.prints("600 0 0\n444 0 0\nvalue", stat("/v/deep/name", "/v/other")+`; cat /v/deep/name`, mounted("v", "/v", source))
		},
	},
	{
		name: "Files/DownwardAPI", fact: "labels are lines `key=\"value\"`, sorted, in a file of `defaultMode`",
		run: func(t *T) {
			t.prints("400 0 0\na=\"1\"\nteam=\"red\"", stat("/v/labels")+`; cat /v/labels`, annotated, mounted("v", "/v", corev1.VolumeSource{
				DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr.To[int32](0o400), Items: []corev1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				}},
			}))
		},
	},
	{
		name: "Files/FSGroup", fact: "`fsGroup` owns a volume's files and may read them",
		run: func(t *T) {
			t.prints("440 0 3003\n644 0 3003", stat("/v/password", "/c/key"), secured(corev1.PodSecurityContext{FSGroup: ptr.To[int64](3003)}),
				mounted("v", "/v", secret(ptr.To[int32](0o400))), mounted("c", "/c", config(nil)))
		},
	},
	{
		name: "Files/Projected", fact: "sources of a projected volume share its `defaultMode`",
		run: func(t *T) {
			t.prints("400 0 0\n444 0 0", stat("/v/password", "/v/name"), mounted("v", "/v", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: ptr.To[int32](0o400), Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: named("secret")}},
					{ConfigMap: &corev1.ConfigMapProjection{
						LocalObjectReference: named("config"), Items: []corev1.KeyToPath{{Key: "key", Path: "name", Mode: ptr.To[int32](0o444)}},
					}},
				},
			}}))
		},
	},
	{
		name: "Files/Optional", fact: "an optional ConfigMap that does not exist is an empty directory",
		run: func(t *T) {
			t.prints("", "ls /v", mounted("v", "/v", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("none"), Optional: ptr.To(true)}}))
		},
	},
	{
		// A kubelet mounts what it fills itself read-only, whatever the mount says (kubelet_pods.go, makeMounts).
		name: "Files/ReadOnly", fact: "volumes of ConfigMaps and Secrets are read-only, also for root",
		run: func(t *T) {
			t.prints("config\nsecret", `touch /c/x 2>/dev/null || echo config; touch /v/x 2>/dev/null || echo secret`,
				mounted("v", "/v", secret(nil)), mounted("c", "/c", config(nil)))
		},
	},
	{
		// The kubelet's atomic writer replaces all keys at once by renaming one link (pkg/volume/util/atomic_writer.go).
		name: "Files/LinksToData", fact: "keys are links to `..data`, which changes atomically",
		run: func(t *T) { t.prints("..data/key", `readlink /v/key`, mounted("v", "/v", config(nil))) },
	},
	{
		name: "Files/EmptyDir", fact: "an `emptyDir` has mode 0777",
		run: func(t *T) { t.prints("777 0 0", stat("/shared"), shared) },
	},
	{
		name: "Files/EmptyDirOfGroup", fact: "with `fsGroup` an `emptyDir` has mode 2777, and new files belong to the group",
		run: func(t *T) {
			t.prints("2777 0 3003\n12345 3003", stat("/shared")+`; touch /shared/new; stat -c '%u %g' /shared/new`, shared,
				secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345), FSGroup: ptr.To[int64](3003)}))
		},
	},
	{
		name: "Files/MemoryIsTmpfs", fact: "`medium: Memory` is a tmpfs",
		run: func(t *T) {
			t.prints("tmpfs", `stat -f -c %T /v`, mounted("v", "/v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}))
		},
	},
	{
		name: "Files/MissingIsAwaited", fact: "a pod waits as `ContainerCreating` for a ConfigMap that does not exist yet, and can be deleted",
		run: func(t *T) {
			p := t.run("true", mounted("v", "/v", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("none")}}))
			pod := p.await("waiting", func(pod *corev1.Pod) bool { return waiting(pod, "main").Reason != "" })
			require.Equal(t, "ContainerCreating", waiting(pod, "main").Reason)
			require.Equal(t, corev1.PodPending, pod.Status.Phase)
			p.delete()
			p.awaitGone()
		},
	},
}

// stat prints mode, owner and group of files, following links.
func stat(paths ...string) string {
	script := `stat -L -c '%a %u %g'`
	for _, path := range paths {
		script += " " + path
	}
	return script
}

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func config(mode *int32, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("config"), DefaultMode: mode, Items: items}}
}

func secret(mode *int32) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", DefaultMode: mode}}
}

// annotated gives the pod an annotation, and labels.
func annotated(pod *corev1.Pod) {
	pod.Annotations, pod.Labels = map[string]string{"note": "two words"}, map[string]string{"team": "red", "a": "1"}
}
