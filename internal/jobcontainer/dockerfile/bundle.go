package dockerfile

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// What a bundle of runc has in its directory.
const (
	bundleConfig = "config.json"
	bundleRoot   = "rootfs"
)

// capabilities are those that container runtimes give containers by default.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// writeBundle describes the container in its directory.
func writeBundle(dir, name string) error {
	content, err := json.Marshal(specification(name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, bundleConfig), content, 0o600)
}

// specification is that of a container as the pod's ephemeral containers are: with the volumes of a job, the pod's network, host name and
// user namespace, and nothing but the guard to run. Its processes are limited by the cgroup and the seccomp filter of BuildKit's container,
// in which they are, and are without SYS_ADMIN.
func specification(name string) *specs.Spec {
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: bundleRoot},
		Process: &specs.Process{
			Args: jobcontainer.Command(name), Cwd: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
		},
		Mounts: mounts(),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.MountNamespace}},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
				"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func mounts() []specs.Mount {
	plain := []string{"nosuid", "noexec", "nodev"}
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: plain},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append([]string{"mode=1777", "size=65536k"}, plain...)},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: plain},
		{Destination: "/sys", Type: "bind", Source: "/sys", Options: append([]string{"rbind", "ro"}, plain...)}, // a user namespace can't mount another
	}
	for _, path := range []string{jobcontainer.ExternalsDir, jobcontainer.GuardDir} {
		all = append(all, specs.Mount{Destination: path, Type: "bind", Source: path, Options: []string{"rbind", "ro"}})
	}
	for _, path := range []string{jobcontainer.Dir, jobcontainer.WorkDir, jobcontainer.GitHubDir, "/etc/hosts", "/etc/resolv.conf"} {
		all = append(all, specs.Mount{Destination: path, Type: "bind", Source: path, Options: []string{"rbind", "rw"}})
	}
	return all
}
