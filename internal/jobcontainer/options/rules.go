package options

// rule is one option of `docker create` (docker/cli, cli/command/container/opts.go).
type rule struct {
	name, short string
	boolean     bool
	apply       func(used)
}

// rules has every option that Docker has on Linux. Others are unknown.
var rules = []rule{
	{name: "add-host", apply: addHost},
	{name: "annotation", apply: accept},
	{name: "attach", short: "a", apply: accept},
	{name: "blkio-weight", apply: poolDecides},
	{name: "blkio-weight-device", apply: poolDecides},
	{name: "cap-add", apply: refuse},
	{name: "cap-drop", apply: noEffect("the capabilities of containers are fixed on this runner")},
	{name: "cgroup-parent", apply: refuse},
	{name: "cgroupns", apply: refuse},
	{name: "cidfile", apply: noEffect("no file is written")},
	{name: "cpu-period", apply: poolDecides},
	{name: "cpu-quota", apply: poolDecides},
	{name: "cpu-rt-period", apply: poolDecides},
	{name: "cpu-rt-runtime", apply: poolDecides},
	{name: "cpu-shares", short: "c", apply: poolDecides},
	{name: "cpus", apply: poolDecides},
	{name: "cpuset-cpus", apply: poolDecides},
	{name: "cpuset-mems", apply: poolDecides},
	{name: "device", apply: refuse},
	{name: "device-cgroup-rule", apply: refuse},
	{name: "device-read-bps", apply: poolDecides},
	{name: "device-read-iops", apply: poolDecides},
	{name: "device-write-bps", apply: poolDecides},
	{name: "device-write-iops", apply: poolDecides},
	{name: "disable-content-trust", boolean: true, apply: accept},
	{name: "dns", apply: refuse},
	{name: "dns-opt", apply: refuse},
	{name: "dns-option", apply: refuse},
	{name: "dns-search", apply: refuse},
	{name: "domainname", apply: refuse},
	{name: "entrypoint", apply: func(u used) { u.options().Entrypoint = &u.value }},
	{name: "env", short: "e", apply: env},
	{name: "env-file", apply: func(u used) { u.options().EnvFiles = append(u.options().EnvFiles, u.value) }},
	{name: "expose", apply: func(u used) { u.options().Expose = append(u.options().Expose, u.value) }},
	{name: "gpus", apply: refuse},
	{name: "group-add", apply: refuse},
	{name: "health-cmd", apply: healthCommand},
	{name: "health-interval", apply: healthDuration},
	{name: "health-retries", apply: healthRetries},
	{name: "health-start-interval", apply: healthDuration},
	{name: "health-start-period", apply: healthDuration},
	{name: "health-timeout", apply: healthDuration},
	{name: "hostname", short: "h", apply: hostname},
	{name: "init", boolean: true, apply: func(u used) { u.options().Init = true }},
	{name: "interactive", short: "i", boolean: true, apply: accept},
	{name: "ip", apply: refuse},
	{name: "ip6", apply: refuse},
	{name: "ipc", apply: ipc},
	{name: "isolation", apply: refuse},
	{name: "kernel-memory", apply: poolDecides},
	{name: "label", short: "l", apply: accept},
	{name: "label-file", apply: accept},
	{name: "link", apply: refuse},
	{name: "link-local-ip", apply: refuse},
	{name: "log-driver", apply: accept},
	{name: "log-opt", apply: accept},
	{name: "mac-address", apply: refuse},
	{name: "memory", short: "m", apply: poolDecides},
	{name: "memory-reservation", apply: poolDecides},
	{name: "memory-swap", apply: poolDecides},
	{name: "memory-swappiness", apply: poolDecides},
	{name: "mount", apply: mount},
	{name: "name", apply: alias},
	{name: "net", apply: refuse},
	{name: "net-alias", apply: alias},
	{name: "network", apply: refuse},
	{name: "network-alias", apply: alias},
	{name: "no-healthcheck", boolean: true, apply: func(u used) { u.options().Health.Disabled = true }},
	{name: "oom-kill-disable", boolean: true, apply: poolDecides},
	{name: "oom-score-adj", apply: poolDecides},
	{name: "pid", apply: refuse},
	{name: "pids-limit", apply: poolDecides},
	{name: "platform", apply: func(u used) { u.options().Platform = u.value }},
	{name: "privileged", boolean: true, apply: refuse},
	{name: "publish", short: "p", apply: func(u used) { u.options().Ports = append(u.options().Ports, u.value) }},
	{name: "publish-all", short: "P", boolean: true, apply: func(u used) { u.options().PublishAll = true }},
	{name: "pull", apply: accept},
	{name: "quiet", short: "q", boolean: true, apply: accept},
	{name: "read-only", boolean: true, apply: noEffect("the file systems of containers are writable on this runner")},
	{name: "restart", apply: restart},
	{name: "rm", boolean: true, apply: accept},
	{name: "runtime", apply: refuse},
	{name: "security-opt", apply: refuse},
	{name: "shm-size", apply: shmSize},
	{name: "stop-signal", apply: stopSignal},
	{name: "stop-timeout", apply: stopTimeout},
	{name: "storage-opt", apply: poolDecides},
	{name: "sysctl", apply: refuse},
	{name: "tmpfs", apply: tmpfs},
	{name: "tty", short: "t", boolean: true, apply: accept},
	{name: "ulimit", apply: ulimit},
	{name: "use-api-socket", boolean: true, apply: refuse},
	{name: "user", short: "u", apply: user},
	{name: "userns", apply: refuse},
	{name: "uts", apply: refuse},
	{name: "volume", short: "v", apply: volume},
	{name: "volume-driver", apply: refuse},
	{name: "volumes-from", apply: refuse},
	{name: "workdir", short: "w", apply: workdir},
}

// accept is for options that change nothing that a job could see.
func accept(used) {}

func refuse(u used) { u.refuse("") }

func noEffect(why string) func(used) { return func(u used) { u.warn(why) } }

// poolDecides is for limits of resources. A container of a job has none of its own: the pod's bound all of them.
func poolDecides(u used) {
	resources := u.parser.pool.Resources
	if resources != "" {
		resources = " (at least " + resources + ")" // the pod has helpers, whose limits add to it
	}
	u.warn("the containers of a job share the resources of its pod" + resources)
}
