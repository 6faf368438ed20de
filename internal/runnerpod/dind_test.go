package runnerpod

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func dockerPool() *v1alpha1.RunnerPool {
	pool := testPool()
	pool.Spec.Template.RuntimeClassName = ptr.To("kata")
	pool.Spec.Template.Dind = &v1alpha1.Dind{}
	return pool
}

func mountOf(t *testing.T, c corev1.Container, volume string) string {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			return m.MountPath
		}
	}
	t.Fatalf("container %s does not mount %s", c.Name, volume)
	return ""
}

func TestBuild_NET7_DindRunsUnderAMicroVMOnly(t *testing.T) {
	for name, c := range map[string]struct {
		class   *string
		classes []string
		refused bool
	}{
		"no class":                  {nil, nil, true},
		"the default runtime":       {ptr.To(""), nil, true},
		"a class of containers":     {ptr.To("gvisor"), nil, true},
		"another one's microVM":     {ptr.To("kata"), []string{"firecracker"}, true},
		"none allowed":              {ptr.To("kata"), []string{}, true},
		"a microVM":                 {ptr.To("kata"), nil, false},
		"a microVM of another name": {ptr.To("firecracker"), []string{"firecracker"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for what, spoil := range map[string]func(*v1alpha1.RunnerTemplate){
				"dind": func(r *v1alpha1.RunnerTemplate) { r.Dind = &v1alpha1.Dind{} },
				"hostPath": func(r *v1alpha1.RunnerTemplate) {
					r.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
				},
			} {
				pool := testPool()
				pool.Spec.Template.RuntimeClassName = c.class
				options := testOptions
				options.MicroVMClasses = c.classes
				_, _, err := Build(pool, options, "abcd1234")
				require.NoError(t, err, "nothing privileged runs anywhere")
				spoil(&pool.Spec.Template)
				_, _, err = Build(pool, options, "abcd1234")
				if !c.refused {
					require.NoError(t, err, what)
					continue
				}
				var invalid *InvalidTemplateError
				require.ErrorAs(t, err, &invalid, what)
				require.ErrorContains(t, err, "runtimeClassName")
			}
		})
	}
	mac := dockerPool()
	mac.Spec.Platform = v1alpha1.PlatformMacOS
	_, _, err := Build(mac, testOptions, "abcd1234")
	require.ErrorContains(t, err, "platform linux")
	hidden := dockerPool()
	hidden.Spec.Template.Volumes = []corev1.Volume{{Name: "a"}}
	hidden.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/var/run/"}}
	_, _, err = Build(hidden, testOptions, "abcd1234")
	require.ErrorContains(t, err, "hide the Docker socket")
}

func TestBuild_NET7_OnlyTheDaemonIsPrivileged(t *testing.T) {
	pod, _, err := Build(dockerPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		privileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
		require.Equal(t, c.Name == ContainerDind, privileged, c.Name)
		for _, m := range c.VolumeMounts {
			require.True(t, m.Name != VolumeToken || c.Name == ContainerPoller, "NET-3: %s mounts the token", c.Name)
		}
	}
}

func TestBuild_DindSharesSocketAndWorkWithTheRunner(t *testing.T) {
	pool := dockerPool()
	pool.Spec.Template.Dind = &v1alpha1.Dind{Image: "mirror/dind:1", Storage: ptr.To(resource.MustParse("5Gi"))}
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	names := []string{}
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{ContainerAgent, ContainerExternals, ContainerDind}, names, "a sidecar is up before what comes after it")

	dind, runner := container(t, pod, ContainerDind), container(t, pod, ContainerRunner)
	require.Equal(t, "mirror/dind:1", dind.Image)
	require.Equal(t, corev1.ContainerRestartPolicyAlways, *dind.RestartPolicy)
	require.NotNil(t, dind.StartupProbe)
	require.Zero(t, *dind.SecurityContext.RunAsUser)
	require.Contains(t, dind.Command, "--group=2375")
	require.Contains(t, pod.Spec.SecurityContext.SupplementalGroups, int64(2375))
	require.Equal(t, "/var/run", mountOf(t, dind, volumeSocket))
	require.Equal(t, "/var/run", mountOf(t, runner, volumeSocket))
	require.Equal(t, MountWork, mountOf(t, dind, VolumeWork), "the daemon resolves the runner's paths")
	require.Contains(t, runner.Env, corev1.EnvVar{Name: "DOCKER_HOST", Value: "unix:///var/run/docker.sock"})

	externals := container(t, pod, ContainerExternals)
	require.Equal(t, "runner:1", externals.Image)
	require.Equal(t, "/home/runner/externals", mountOf(t, dind, volumeExternals))
	require.Equal(t, externals.Command[len(externals.Command)-1], mountOf(t, externals, volumeExternals))

	for _, v := range pod.Spec.Volumes {
		if v.Name == volumeDocker {
			require.Equal(t, "5Gi", v.EmptyDir.SizeLimit.String())
		}
	}
	require.Contains(t, dind.Command, "5301600256", "the daemon's disk is full before its node evicts the runner")

	pool.Spec.Template.Command = []string{"/opt/runner/run"}
	pod, _, err = Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Len(t, pod.Spec.InitContainers, 2, "the directory of that runner's programs is unknown")
}

// The daemon makes a job's containers and sees only its own files. Configurations name the work directory relative to the
// runner's own, so that a volume elsewhere is no use.
func TestBuild_DindHasTheWorkDirectory(t *testing.T) {
	volumeAt := func(c corev1.Container) string {
		var names []string
		for _, m := range c.VolumeMounts {
			if strings.TrimSuffix(m.MountPath, "/") == "/home/runner/_work" {
				names = append(names, m.Name+m.SubPath)
			}
		}
		return strings.Join(names, ",")
	}
	pod, _, err := Build(dockerPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, VolumeWork, volumeAt(container(t, pod, ContainerRunner)))
	require.Equal(t, VolumeWork, volumeAt(container(t, pod, ContainerDind)))

	pool := dockerPool()
	pool.Spec.Template.Volumes = []corev1.Volume{{Name: "fast"}}
	pool.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "fast", MountPath: "/home/runner/_work/", SubPath: "jobs"}}
	pod, _, err = Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "fastjobs", volumeAt(container(t, pod, ContainerRunner)), "the template's own, once")
	require.Equal(t, "fastjobs", volumeAt(container(t, pod, ContainerDind)))

	plain, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Empty(t, volumeAt(container(t, plain, ContainerRunner)), "an upgrade changes nothing of pods without a daemon")
}

// The script is sh's, and what it gets is what follows it.
func TestStartDaemon(t *testing.T) {
	// Programs that say how they are called.
	work, programs := t.TempDir(), t.TempDir()
	for _, name := range []string{"truncate", "mkfs.ext4", "mkdir", "mount", "dockerd-entrypoint.sh"} {
		says := "#!/bin/sh\necho " + name + " \"$@\"\n"
		if name == "truncate" {
			says += ": >\"$3\"\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(programs, name), []byte(says), 0o700)) //nolint:gosec // it is run
	}
	pod, _, err := Build(dockerPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	command := container(t, pod, ContainerDind).Command
	run := func() string {
		args := append([]string{"-c", strings.ReplaceAll(command[2], mountDisk, work)}, command[3:]...)
		daemon := exec.CommandContext(await.Context(t), command[0], args...) //nolint:gosec // as the container would
		daemon.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH")}
		output, err := daemon.CombinedOutput()
		require.NoError(t, err, "%s", output)
		return strings.ReplaceAll(string(output), work, "DISK")
	}
	const started = "mkdir -p /var/lib/docker\nmount -o loop DISK/disk /var/lib/docker\n" +
		"dockerd-entrypoint.sh dockerd --host=unix:///var/run/docker.sock --group=2375\n"
	require.Equal(t, "truncate -s 21407727616 DISK/disk.new\nmkfs.ext4 -q -F -m 0 DISK/disk.new\n"+started, run())
	require.Equal(t, started, run(), "started again, it keeps what it had")
}

// Pods that exist are not replaced because the product has learnt something.
func TestTemplateHash_ChangesForDindAlone(t *testing.T) {
	hash := func(pool *v1alpha1.RunnerPool, options Options) string {
		h, err := TemplateHash(pool, options)
		require.NoError(t, err)
		return h
	}
	require.Equal(t, "15308da5d7561f5c", hash(testPool(), testOptions), "an upgrade of the controller alone must not roll every pool")
	require.Equal(t, "34bc230383b31e69", hash(withDisk(testPool(), "0"), testOptions), "docs/adr/0042: pods as they were before their disk was limited")
	plain := testPool()
	plain.Spec.Template.RuntimeClassName = ptr.To("kata")
	options := testOptions
	options.MicroVMClasses = []string{"kata"}
	require.Equal(t, hash(plain, testOptions), hash(plain, options), "which classes are microVMs shapes no pod")

	pool := dockerPool()
	base := hash(pool, testOptions)
	require.NotEqual(t, hash(plain, testOptions), base)
	pool.Spec.Template.Dind = &v1alpha1.Dind{Image: DefaultDindImage, Storage: ptr.To(resource.MustParse("20480Mi"))}
	require.Equal(t, base, hash(pool, testOptions), "the defaults, written down")
	pool.Spec.Template.Dind.Storage = ptr.To(resource.MustParse("21474836480"))
	require.Equal(t, base, hash(pool, testOptions), "the same in bytes")
	pool.Spec.Template.Dind.Image = "docker:29-dind"
	require.NotEqual(t, base, hash(pool, testOptions))
}

// NET-7: the controller and the admission policy use the same list.
func TestDefaultMicroVMClasses_AreThoseOfTheAdmissionPolicy(t *testing.T) {
	files, err := charts.Rendered()
	require.NoError(t, err)
	found := false
	for _, file := range files {
		_, after, ok := strings.Cut(string(file.Content), "name: microVMClasses")
		if !ok {
			continue
		}
		found = true
		list, _, _ := strings.Cut(after, "]")
		_, list, _ = strings.Cut(list, "[")
		var classes []string
		for class := range strings.SplitSeq(list, ",") {
			classes = append(classes, strings.Trim(class, " '\n"))
		}
		require.Equal(t, DefaultMicroVMClasses(), classes, file.Name)
	}
	require.True(t, found)
}
