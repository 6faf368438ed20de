package plan

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// pool is the runner of these tests.
var pool = Runner{Platform: "linux/amd64", Work: "/home/runner/_work", Externals: "/home/runner/externals", Pool: options.Pool{Resources: "8 CPU, 16Gi"}}

// config is an image's.
type config = jobcontainer.ImageConfig

// planned plans a job whose images have these configurations, the job container's first.
func planned(job Job, runner Runner, configs ...config) (Plan, error) {
	for i := range job.Services {
		if job.Services[i].Image == "" {
			job.Services[i].Image = "image-" + job.Names[i]
		}
	}
	draft, err := ForJob(job, runner)
	if err != nil {
		return Plan{}, err
	}
	return draft.Complete(granted(draft, configs...))
}

// granted answers a request.
func granted(draft Draft, configs ...config) []jobcontainer.Granted {
	var all []jobcontainer.Granted
	for i, wanted := range draft.Wanted() {
		g := jobcontainer.Granted{Role: wanted.Role, Position: wanted.Position, Name: string(wanted.Role) + "-" + string(rune('a'+i)), Image: wanted.Image + "@sha256:0"}
		g.Config = config{OS: "linux", Architecture: "amd64", Cmd: []string{"serve"}}
		if i < len(configs) {
			g.Config = configs[i]
			if g.Config.OS == "" {
				g.Config.OS, g.Config.Architecture = "linux", "amd64"
			}
			if len(g.Config.Entrypoint)+len(g.Config.Cmd) == 0 {
				g.Config.Cmd = []string{"serve"}
			}
		}
		all = append(all, g)
	}
	return all
}

// service is a job with one service, called db.
func service(asked hook.Container) Job {
	return Job{Services: []hook.Container{asked}, Names: []string{"db"}}
}

// services are two, a and b.
func services(a, b hook.Container) Job {
	return Job{Services: []hook.Container{a, b}, Names: []string{"a", "b"}}
}

// container is a job with a job container alone.
func container(asked hook.Container) Job {
	if asked.Image == "" {
		asked.Image = "debian:12"
	}
	return Job{Container: &asked}
}

func refused(t *testing.T, err error, problems ...string) {
	t.Helper()
	var e *Error
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, problems, e.Problems)
}

// The tests below are what GitHub promises of containers, one for each promise, with what the job's log says where it is not kept.

func TestRow_ServiceByName(t *testing.T) {
	plan, err := planned(Job{Container: &hook.Container{Image: "x"}, Services: make([]hook.Container, 2), Names: []string{"postgres", "cache"}}, pool)
	require.NoError(t, err)
	require.Equal(t, []HostName{{"127.0.0.1", "postgres"}, {"127.0.0.1", "cache"}}, plan.Hosts)
	require.Equal(t, "Service names can't be resolved in this job, because no container of it runs as root; use localhost.", NamesUnresolvableText())
}

func TestRow_PortIsMapped(t *testing.T) {
	plan, err := planned(service(hook.Container{PortMappings: []string{"15432:5432"}}), pool)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"5432": "15432"}, plan.Containers[0].Ports)
	require.Equal(t, []Forward{{Protocol: "tcp", HostPort: 15432, Port: 5432}}, plan.Forwards)
}

func TestRow_PortIsAny(t *testing.T) {
	plan, err := planned(service(hook.Container{PortMappings: []string{"5432"}}), pool)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"5432": "5432"}, plan.Containers[0].Ports)
	require.Empty(t, plan.Forwards)
}

func TestRow_HostPortIsTaken(t *testing.T) {
	_, err := planned(Job{Services: make2("80:8080", "80:8081"), Names: []string{"proxy", "web"}}, pool)
	refused(t, err, "Port 80 of service 'web' can't be opened: address already in use by service 'proxy'.")
	_, err = planned(Job{Services: make2("80", "80:8081"), Names: []string{"proxy", "web"}}, pool)
	refused(t, err, "Port 80 of service 'web' can't be opened: address already in use by service 'proxy'.")
	job := Job{Container: &hook.Container{Image: "x", PortMappings: []string{"80:8080"}}, Services: make2("80", "81"), Names: []string{"proxy", "web"}}
	_, err = planned(job, pool)
	refused(t, err, "Port 80 of container 'job' can't be opened: address already in use by service 'proxy'.")
	job.Services = make2("80:8080", "81")
	_, err = planned(job, pool)
	refused(t, err, "Port 80 of service 'proxy' can't be opened: address already in use by container 'job'.")

	runner := pool
	runner.Taken = []Port{{80, "tcp"}, {5432, "udp"}}
	_, err = planned(service(hook.Container{PortMappings: []string{"80:8080"}}), runner)
	refused(t, err, "Port 80 of service 'db' can't be opened: address already in use.")
	_, err = planned(service(hook.Container{}), runner, config{ExposedPorts: []string{"80/tcp"}})
	refused(t, err, "Port 80 of service 'db' can't be opened: address already in use.")
	_, err = planned(service(hook.Container{PortMappings: []string{"5432"}}), runner)
	require.NoError(t, err, "another protocol")
}

func make2(a, b string) []hook.Container {
	return []hook.Container{{PortMappings: []string{a}}, {PortMappings: []string{b}}}
}

func TestRow_TwoServicesOnOnePort(t *testing.T) {
	const text = "Services 'a' and 'b' both listen on port 5432. On this runner all containers of a job share one network address; give one of them another port."
	exposes := config{ExposedPorts: []string{"5432/tcp"}}
	// Declared: before an image is asked for.
	_, err := ForJob(services(hook.Container{Image: "x", PortMappings: []string{"5432"}}, hook.Container{Image: "y", PortMappings: []string{"5433:5432"}}), pool)
	refused(t, err, text)
	// By the images: before a container starts.
	_, err = planned(services(hook.Container{}, hook.Container{}), pool, exposes, exposes)
	refused(t, err, text)
	_, err = planned(services(hook.Container{PortMappings: []string{"15432:5432"}}, hook.Container{}), pool, exposes, exposes)
	refused(t, err, text)
	// A service that is configured to use another port says so.
	plan, err := planned(services(hook.Container{}, hook.Container{PortMappings: []string{"5433"}, EnvironmentVariables: map[string]string{"PGPORT": "5433"}}), pool, exposes, exposes)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"5433": "5433"}, plan.Containers[1].Ports)
	_, err = planned(services(hook.Container{CreateOptions: "--expose 5433"}, hook.Container{}), pool, exposes, exposes)
	require.NoError(t, err)
	// TCP and UDP are different ports, and a job container runs nothing by itself.
	_, err = planned(services(hook.Container{PortMappings: []string{"53/udp"}}, hook.Container{PortMappings: []string{"53/tcp"}}), pool)
	require.NoError(t, err)
	_, err = planned(Job{Container: &hook.Container{Image: "x"}, Services: make([]hook.Container, 1), Names: []string{"db"}}, pool, exposes, exposes)
	require.NoError(t, err)
}

func TestRow_Health(t *testing.T) {
	image := config{Healthcheck: &jobcontainer.Healthcheck{Test: []string{"CMD", "pg_isready"}}}
	plan, err := planned(service(hook.Container{}), pool, image)
	require.NoError(t, err)
	require.Equal(t, &health.Check{Command: []string{"pg_isready"}, Interval: health.DefaultInterval, Timeout: health.DefaultTimeout, StartInterval: health.DefaultStartInterval, Retries: 3}, plan.Containers[0].Health)

	plan, err = planned(container(hook.Container{}), pool, image)
	require.NoError(t, err)
	require.Nil(t, plan.Containers[0].Health, "a job container is not waited for")

	plan, err = planned(service(hook.Container{CreateOptions: "--no-healthcheck"}), pool, image)
	require.NoError(t, err)
	require.Nil(t, plan.Containers[0].Health)

	plan, err = planned(service(hook.Container{CreateOptions: `--health-cmd "redis-cli ping" --health-retries 5`}), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"/bin/sh", "-c", "redis-cli ping"}, plan.Containers[0].Health.Command)
	require.Equal(t, 5, plan.Containers[0].Health.Retries)

	plan, err = planned(service(hook.Container{CreateOptions: "--health-interval 1s"}), pool)
	require.NoError(t, err)
	require.Nil(t, plan.Containers[0].Health)
	require.Equal(t, []string{"Options --health-* of container 'db' have no effect: image 'image-db' has no HEALTHCHECK. Add --health-cmd."}, plan.Warnings)
	require.Equal(t, "Failed to initialize container postgres:17", health.FailedText("postgres:17"))
	require.Equal(t, "One or more containers failed to start.", health.AllFailedText())
}

func TestRow_OptionsThatAreKept(t *testing.T) {
	runner := pool
	runner.Environ = []string{"TOKEN=t", "TOKENS=no"}
	runner.ReadFile = func(file string) ([]byte, error) {
		require.Equal(t, "w/a.env", file)
		return []byte("# comment\nFROM_FILE=1\nA=file\n\nTOKEN\n"), nil
	}
	asked := hook.Container{CreateOptions: `--env-file w/a.env -e A=option -e B=1 -e NOT_SET --user 1001:121 -w /opt --entrypoint /run --stop-signal SIGINT --stop-timeout 3 --ulimit nofile=10:20 --init`,
		EnvironmentVariables: map[string]string{"B": "workflow"}}
	plan, err := planned(service(asked), runner, config{Env: []string{"PATH=/bin", "A=image"}, User: "postgres", WorkingDir: "/", Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}, StopSignal: "SIGQUIT"})
	require.NoError(t, err)
	c := plan.Containers[0]
	require.Equal(t, []string{"PATH=/bin", "A=option", "FROM_FILE=1", "TOKEN=t", "B=workflow", "GITHUB_ACTIONS=true", "CI=true"}, c.Env)
	require.Equal(t, "1001:121", c.User)
	require.Equal(t, "/opt", c.WorkDir)
	require.Equal(t, []string{"/run"}, c.Argv)
	require.Equal(t, "SIGINT", c.StopSignal)
	require.Equal(t, 3.0, c.StopTimeout.Seconds())
	require.Equal(t, &options.Limit{Soft: 10, Hard: 20}, c.NoFile)
	require.Empty(t, plan.Warnings)
}

func TestRow_EnvFileThatCanNotBeRead(t *testing.T) {
	_, err := planned(service(hook.Container{CreateOptions: "--env-file a"}), pool)
	refused(t, err, "Option '--env-file a' of container 'db' can't be used: the file can't be read on this runner.")
	runner := pool
	runner.ReadFile = func(string) ([]byte, error) { return nil, errors.New("secret") }
	_, err = planned(service(hook.Container{CreateOptions: "--env-file a"}), runner)
	refused(t, err, "Option '--env-file a' of container 'db' can't be used: the file can't be read. It must be a file below the workspace.")
	runner.ReadFile = func(string) ([]byte, error) { return []byte("A=1\nno name=x\n"), nil }
	_, err = planned(service(hook.Container{CreateOptions: "--env-file a"}), runner)
	refused(t, err, "Option '--env-file a' of container 'db' is invalid: line 2 must be NAME=value or NAME.")
}

func TestRow_HostNames(t *testing.T) {
	plan, err := planned(service(hook.Container{CreateOptions: "--hostname web --add-host api:10.1.2.3 --add-host db:10.1.2.4"}), pool)
	require.NoError(t, err)
	require.Equal(t, []HostName{{"127.0.0.1", "db"}, {"127.0.0.1", "web"}, {"10.1.2.3", "api"}}, plan.Hosts)
	require.Equal(t, []string{"Host name 'db' has two addresses. On this runner all containers of a job share their host names; 127.0.0.1 is used and 10.1.2.4 is not."}, plan.Warnings)
	require.Contains(t, plan.Containers[0].Env, "HOSTNAME=web", "as --hostname says, although the pod's name is the kernel's")

	plan, err = planned(service(hook.Container{CreateOptions: "--hostname web --env HOSTNAME=other"}), pool)
	require.NoError(t, err)
	require.Contains(t, plan.Containers[0].Env, "HOSTNAME=other")
	require.NotContains(t, plan.Containers[0].Env, "HOSTNAME=web")
}

func TestRow_HarmlessOptions(t *testing.T) {
	plan, err := planned(service(hook.Container{CreateOptions: "--name db --label a=b --rm --restart no --network-alias db --pull always"}), pool)
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	require.Equal(t, []HostName{{"127.0.0.1", "db"}}, plan.Hosts)
}

func TestRow_ResourcesAreThePools(t *testing.T) {
	plan, err := planned(service(hook.Container{CreateOptions: "--memory 4g --cpus 2 --memory-swap 8g --shm-size 32m"}), pool)
	require.NoError(t, err)
	require.Len(t, plan.Warnings, 4)
	require.Equal(t, "Option '--memory 4g' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).", plan.Warnings[0])
	_, err = planned(service(hook.Container{CreateOptions: "--shm-size 1g"}), pool)
	refused(t, err, "Option '--shm-size 1g' of container 'db' is not available on this runner: its /dev/shm has 64 MiB. Remove it, or use a pool that permits docker.")
}

func TestRow_OptionsThatNeedPrivilege(t *testing.T) {
	for _, option := range strings.Split("--privileged|--cap-add ALL|--device /dev/kvm|--gpus all|--security-opt a=b|--pid host|--userns host|--sysctl a=b|--cgroupns host|--runtime x|--network host|--dns 1.1.1.1", "|") {
		_, err := planned(container(hook.Container{CreateOptions: option}), pool)
		refused(t, err, "Option '"+option+"' of container 'job' is not available on this runner. Remove it, or use a pool that permits docker.")
	}
}

func TestRow_UnknownOptions(t *testing.T) {
	_, err := planned(container(hook.Container{CreateOptions: "--foo"}), pool)
	refused(t, err, "Option '--foo' is not known to this runner.")
}

func TestRow_VolumesOfOptions(t *testing.T) {
	plan, err := planned(service(hook.Container{CreateOptions: "-v data:/x --mount type=volume,source=data,target=/y --tmpfs /t"}), pool)
	require.NoError(t, err)
	require.Equal(t, []Volume{{Text: "data:/x", Source: "/__w/_volumes/data", Target: "/x"}, {Text: "type=volume,source=data,target=/y", Source: "/__w/_volumes/data", Target: "/y"},
		{Text: "/t", Source: "/__w/_volumes/_service-a-2", Target: "/t", Keep: true, Optional: true}}, plan.Containers[0].Volumes)
	require.Equal(t, []string{"Option '--tmpfs /t' makes an ordinary directory: no file system can be mounted on this runner."}, plan.Warnings)
}

// A runtime mounts a directory at each VOLUME of an image, which is as good as a volume that begins empty and is of this container alone.
func TestRow_VolumesAtThoseOfTheImage(t *testing.T) {
	keeps := func(p Plan, err error) (targets []string) {
		require.NoError(t, err)
		for _, c := range p.Containers {
			for _, v := range c.Volumes {
				if v.Keep {
					targets = append(targets, c.Name+":"+v.Target)
				}
			}
		}
		return targets
	}
	at := func(source, target string) hook.Container {
		return hook.Container{UserMountVolumes: []hook.Mount{{Source: source, Target: target}}}
	}
	image := config{Volumes: []string{"/data"}}
	require.Equal(t, []string{"db:/data"}, keeps(planned(service(hook.Container{CreateOptions: "-v data:/data --tmpfs /tmp/x"}), pool, image))[:1])
	require.Equal(t, []string{"db:/data"}, keeps(planned(service(at("", "/data/")), pool, image)))
	require.Empty(t, keeps(planned(service(at("data", "/data/db")), pool, image)))
	require.Empty(t, keeps(planned(service(at("/__w/app", "/data")), pool, image)), "what the workspace has must be there")
	require.Equal(t, []string{"a:/data", "b:/data"}, keeps(planned(services(at("one", "/data"), at("two", "/data")), pool, image, image)))
	require.Empty(t, keeps(planned(services(at("data", "/data"), at("data", "/other")), pool, image, image)), "one volume of two containers")
	require.Empty(t, keeps(planned(services(at("data", "/data"), at("/__w", "/other")), pool, image, image)), "the other sees all volumes")
}

func TestRow_VolumesWithNamesAndWithout(t *testing.T) {
	plan, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{{UserProvidedValue: "data:/var/lib/x", Source: "data", Target: "/var/lib/x"}, {Target: "/cache", ReadOnly: true}}}), pool)
	require.NoError(t, err)
	require.Equal(t, []Volume{{Text: "data:/var/lib/x", Source: "/__w/_volumes/data", Target: "/var/lib/x"}, {Text: "/cache", Source: "/__w/_volumes/_service-a-1", Target: "/cache"}}, plan.Containers[0].Volumes)
	require.Equal(t, []string{"Volume '/cache' of container 'db' is writable: read-only volumes are not available on this runner."}, plan.Warnings)
	require.Equal(t, "Volume 'data:/var/lib/x' can't be mounted: the target is not empty.", VolumeNotEmptyText("data:/var/lib/x"))

	for mount, problem := range map[hook.Mount]string{
		{Source: "./a", Target: "/b"}:  "Volume './a:/b' of container 'db' is invalid: './a' is neither an absolute path nor a name of letters, digits, '_', '.' and '-'.",
		{Source: "..", Target: "/b"}:   "Volume '..:/b' of container 'db' is invalid: '..' is neither an absolute path nor a name of letters, digits, '_', '.' and '-'.",
		{Source: "data", Target: "b"}:  "Volume 'data:b' of container 'db' is invalid: the target must be an absolute path of a directory.",
		{Source: "data", Target: "/."}: "Volume 'data:/.' of container 'db' is invalid: the target must be an absolute path of a directory.",
	} {
		_, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{mount}}), pool)
		refused(t, err, problem)
	}
	for _, target := range []string{"/__w", "/__e/", "/github", "/bullpen/job/x", "/bullpen"} {
		_, err = planned(service(hook.Container{UserMountVolumes: []hook.Mount{{UserProvidedValue: "V", Source: "data", Target: target}}}), pool)
		refused(t, err, "Volume 'V' of container 'db' is invalid: the runner uses '"+path.Clean(target)+"'.")
	}
	_, err = planned(service(hook.Container{UserMountVolumes: []hook.Mount{{Source: "d1", Target: "/b"}}, CreateOptions: "-v d2:/b/"}), pool)
	refused(t, err, "Volume 'd2:/b/' of container 'db' is invalid: there are two volumes for '/b'.")
}

func TestRow_VolumesOfTheHost(t *testing.T) {
	for source, want := range map[string]string{"/home/runner/_work/app/app/conf": "/__w/app/app/conf", "/__w/app/app/conf/": "/__w/app/app/conf", "/home/runner/_work": "/__w"} {
		plan, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{{Source: source, Target: "/etc/x"}}}), pool)
		require.NoError(t, err)
		require.Equal(t, want, plan.Containers[0].Volumes[0].Source)
	}
	at := pool
	at.Exists = func(path string) bool { return path == "/data" || path == "/home/runner/.ssh" }
	for _, source := range []string{"/data", "/", "/home/runner/_work/../.ssh", "/__w/../etc", "/home/runner/externals/node20", "/dev/fuse", "/run/x", "/srv/agent.sock"} {
		_, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{{UserProvidedValue: "V", Source: source, Target: "/data"}}}), at)
		refused(t, err, "Host path '"+source+"' of volume 'V' is not available to job containers on this runner. Use a path below the workspace.")
	}
	for source, want := range map[string]string{"/tmp/shared/": "/tmp/shared", "/home/runner/_workshop": "/home/runner/_workshop", "/tmp/../../srv/./x": "/srv/x", "/devices": "/devices"} {
		plan, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{{UserProvidedValue: "V", Source: source, Target: "/x"}}}), at)
		require.NoError(t, err)
		require.Equal(t, []Volume{{Text: "V", Source: "/__w/_volumes/_host" + want, Target: "/x"}}, plan.Containers[0].Volumes)
		require.Len(t, plan.Warnings, 1)
		require.Contains(t, plan.Warnings[0], "Host path '"+source+"' of volume 'V' does not exist on this runner: an empty directory is used")
	}
	// The same path needs no link.
	plan, err := planned(service(hook.Container{UserMountVolumes: []hook.Mount{{Source: "/home/runner/_work/app", Target: "/__w/app"}}}), pool)
	require.NoError(t, err)
	require.Empty(t, plan.Containers[0].Volumes)
}

func TestRow_DockerSocket(t *testing.T) {
	socket := hook.Mount{Source: "/var/run/docker.sock", Target: "/var/run/docker.sock"}
	plan, err := planned(container(hook.Container{SystemMountVolumes: []hook.Mount{socket}}), pool)
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	require.Empty(t, plan.Containers[0].Links)
	for _, asked := range []hook.Container{{UserMountVolumes: []hook.Mount{socket}}, {CreateOptions: "-v /run/docker.sock:/x"}, {CreateOptions: "-v sock:/var/run/docker.sock"}} {
		_, err = planned(container(asked), pool)
		refused(t, err, "The docker socket is not available to job containers on this runner.")
	}
}

func TestRow_UserOfTheImage(t *testing.T) {
	plan, err := planned(service(hook.Container{}), pool, config{User: "postgres"})
	require.NoError(t, err)
	require.Equal(t, "postgres", plan.Containers[0].User)

	runner := pool
	runner.Restricted, runner.User = true, 1001
	for _, user := range []string{"", "0", "root", "0:0", "root:root", "00"} {
		_, err = planned(service(hook.Container{Image: "x"}), runner, config{User: user})
		refused(t, err, "Image 'x' runs as root, which this pool does not permit.")
	}
	_, err = planned(service(hook.Container{Image: "x"}), runner, config{User: "999:999"})
	refused(t, err, "Container 'db' of image 'x' runs as user 999, and this pool permits only user 1001. If the image works as that user, add `options: --user 1001`.")
	plan, err = planned(service(hook.Container{Image: "x"}), runner, config{User: "runner"})
	require.NoError(t, err, "it may be 1001")
	require.Equal(t, "runner", plan.Containers[0].User)
	plan, err = planned(service(hook.Container{CreateOptions: "-u 1001"}), runner, config{User: "root"})
	require.NoError(t, err)
	require.Equal(t, "1001", plan.Containers[0].User)
}

func TestRow_EntrypointOfAJobContainerIsNotRun(t *testing.T) {
	plan, err := planned(container(hook.Container{CreateOptions: "--entrypoint /x"}), pool, config{Entrypoint: []string{"/entry"}})
	require.NoError(t, err)
	require.Nil(t, plan.Containers[0].Argv)
}

func TestRow_NoShell(t *testing.T) {
	require.Equal(t, "Shell 'sh' is not in image 'x'.", NoShellText("sh", "x"))
}

func TestRow_AnotherPlatform(t *testing.T) {
	runner := pool
	runner.Platform = "linux/arm64"
	_, err := planned(service(hook.Container{Image: "x"}), runner, config{OS: "linux", Architecture: "amd64"})
	refused(t, err, "Image 'x' has no linux/arm64 variant (found: linux/amd64).")
	_, err = planned(service(hook.Container{Image: "x", CreateOptions: "--platform linux/amd64"}), runner)
	refused(t, err, "Option '--platform linux/amd64' of container 'db' is not available on this runner: its node is linux/arm64. Use a pool with such nodes.")
	for _, platform := range []string{"linux/arm64", "linux/arm64/v8", "arm64", "linux"} {
		_, err = ForJob(service(hook.Container{Image: "x", CreateOptions: "--platform " + platform}), runner)
		require.NoError(t, err, platform)
	}
}

func TestRow_CredentialsOfJobAndServices(t *testing.T) {
	one, two := &hook.Registry{Username: "u", Password: "p", ServerURL: "ghcr.io"}, &hook.Registry{Username: "v", Password: "q", ServerURL: "ghcr.io"}
	draft, err := ForJob(services(hook.Container{Image: "ghcr.io/acme/a:1", Registry: one}, hook.Container{Image: "ghcr.io/acme/b", Registry: two}), pool)
	require.NoError(t, err)
	require.Equal(t, &jobcontainer.Credentials{Username: "v", Password: "q", Server: "ghcr.io"}, draft.Wanted()[1].Credentials)
	_, err = ForJob(services(hook.Container{Image: "ghcr.io/acme/a:1", Registry: one}, hook.Container{Image: "ghcr.io/acme/a:2@sha256:0", Registry: two}), pool)
	refused(t, err, "Two different credentials for registry 'ghcr.io' and repository 'acme/a' can't be used in one job. Use the same for both.")
	_, err = ForJob(services(hook.Container{Image: "debian", Registry: one}, hook.Container{Image: "docker.io/library/debian:12", Registry: two}), pool)
	refused(t, err, "Two different credentials for registry 'docker.io' and repository 'library/debian' can't be used in one job. Use the same for both.")
}

func TestRow_DockerfileActions(t *testing.T) {
	for dockerfile, action := range map[string]string{
		"/home/runner/_work/_actions/a/b/v1/Dockerfile": "a/b", "/home/runner/_work/_actions/a/b/v1/sub/dir/Dockerfile": "a/b/sub/dir",
		"/home/runner/_work/app/app/my/action/Dockerfile": "./my/action", "/home/runner/_work/app/app/Dockerfile": "./", "/elsewhere/Dockerfile": "/elsewhere",
	} {
		_, err := ForStep(hook.Container{Dockerfile: dockerfile}, pool)
		refused(t, err, "Action '"+action+"' is built from a Dockerfile; this runner has no builder. Use an image.")
	}
}

func TestRow_ServiceDies(t *testing.T) {
	require.Equal(t, "Service 'db' exited with code 1. It is not started again.", EndedText("db", 1))
}

func TestRow_KilledForMemory(t *testing.T) {
	require.Equal(t, "Container 'job' was killed: the job used more memory than the pool allows (16Gi).", KilledForMemoryText("job", "16Gi"))
	require.Equal(t, "Container 'job' was killed: the job used more memory than the pool allows.", KilledForMemoryText("job", ""))
}

func TestRow_ServicesWithoutAJobContainer(t *testing.T) {
	plan, err := planned(service(hook.Container{PortMappings: []string{"5432"}}), pool)
	require.NoError(t, err)
	require.Len(t, plan.Containers, 1)
	require.Equal(t, jobcontainer.RoleService, plan.Containers[0].Role)
}

func TestRow_Windows(t *testing.T) {
	require.Equal(t, "Job containers need a Linux pool.", NeedsLinuxText())
	_, err := planned(service(hook.Container{Image: "x"}), pool, config{OS: "windows", Architecture: "amd64"})
	refused(t, err, "Image 'x' has no linux/amd64 variant (found: windows/amd64).")
}
