package options

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
)

var pool = Pool{Resources: "8 CPU, 16Gi"}

func TestParse_Accepts(t *testing.T) {
	entrypoint, none, seconds := "/bin/sh", "", 30
	for text, want := range map[string]Options{
		"": {},
		`--health-cmd "pg_isready -U postgres" --health-interval 10s --health-timeout=5s --health-retries 5`: {HealthIsChanged: true,
			Health: health.Override{Command: "pg_isready -U postgres", Interval: 10 * time.Second, Timeout: 5 * time.Second, Retries: 5}},
		"--health-start-period 1m30s --health-start-interval 500ms": {HealthIsChanged: true, Health: health.Override{StartPeriod: 90 * time.Second, StartInterval: 500 * time.Millisecond}},
		"--no-healthcheck":                             {Health: health.Override{Disabled: true}},
		"--no-healthcheck=false":                       {},
		"-e A=1 --env B -eC=x=y --env=D=":              {Env: []Variable{{Name: "A", Value: "1"}, {Name: "B", FromRunner: true}, {Name: "C", Value: "x=y"}, {Name: "D"}}},
		"--env-file /w/a.env":                          {EnvFiles: []string{"/w/a.env"}},
		"-u 1001:121":                                  {User: "1001:121"},
		"--user node":                                  {User: "node"},
		"-w /src/ --workdir=/src/x":                    {WorkDir: "/src/x"},
		"--entrypoint /bin/sh":                         {Entrypoint: &entrypoint},
		`--entrypoint ""`:                              {Entrypoint: &none},
		"--stop-signal SIGINT --stop-timeout 30":       {StopSignal: "SIGINT", StopTimeout: &seconds},
		"--ulimit nofile=1024:4096":                    {NoFile: &Limit{Soft: 1024, Hard: 4096}},
		"--ulimit nofile=-1":                           {NoFile: &Limit{Soft: -1, Hard: -1}},
		"--init":                                       {Init: true},
		"--platform linux/arm64":                       {Platform: "linux/arm64"},
		"--hostname web -h web2":                       {Hostname: "web2"},
		"--add-host db:10.0.0.1 --add-host=six:[::1]":  {AddHosts: []Host{{Name: "db", IP: "10.0.0.1"}, {Name: "six", IP: "::1"}}},
		"--add-host host.docker.internal:host-gateway": {AddHosts: []Host{{Name: "host.docker.internal", IP: "127.0.0.1"}}},
		"-p 8080:80 -p5432 --expose 9000 -P":           {Ports: []string{"8080:80", "5432"}, Expose: []string{"9000"}, PublishAll: true},
		"-v data:/var/lib/x -v /y --volume /a:/b:ro": {Volumes: []Volume{{Text: "data:/var/lib/x", Source: "data", Target: "/var/lib/x"},
			{Text: "/y", Target: "/y"}, {Text: "/a:/b:ro", Source: "/a", Target: "/b", ReadOnly: true}}},
		"--mount type=volume,src=data,dst=/x,readonly": {Volumes: []Volume{{Text: "type=volume,src=data,dst=/x,readonly", Source: "data", Target: "/x", ReadOnly: true}}},
		"--mount type=bind,source=/a,target=/b":        {Volumes: []Volume{{Text: "type=bind,source=/a,target=/b", Source: "/a", Target: "/b"}}},
	} {
		got, err := Parse("job", text, pool)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// Options that change nothing that a job could see are accepted without a word.
func TestParse_Harmless(t *testing.T) {
	for _, text := range []string{"--label a=b -l c", "--rm", "--restart no", "--restart=", "--pull always", "-it", "--tty --interactive", "--log-driver none", "--quiet", "--privileged=false"} {
		got, err := Parse("job", text, pool)
		require.NoError(t, err, text)
		require.Equal(t, Options{}, got, text)
	}
	got, err := Parse("redis", "--name cache --network-alias redis", pool)
	require.NoError(t, err)
	require.Equal(t, Options{Names: []string{"cache", "redis"}}, got)
}

func TestParse_NoEffect(t *testing.T) {
	for text, warning := range map[string]string{
		"--memory 4g":         "Option '--memory 4g' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).",
		"-m=4g":               "Option '--memory 4g' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).",
		"--cpus 2":            "Option '--cpus 2' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).",
		"--memory-swap -1":    "Option '--memory-swap -1' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).",
		"--shm-size 64m":      "Option '--shm-size 64m' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).",
		"--restart always":    "Option '--restart always' has no effect: a container of a job is not started again.",
		"--ulimit memlock=-1": "Option '--ulimit memlock=-1' has no effect: of the limits of processes, only nofile can be set on this runner.",
		"--read-only":         "Option '--read-only' has no effect: the file systems of containers are writable on this runner.",
	} {
		got, err := Parse("job", text, pool)
		require.NoError(t, err, text)
		require.Equal(t, Options{Warnings: []string{warning}}, got, text)
	}
	got, err := Parse("job", "--cpus 2", Pool{})
	require.NoError(t, err)
	require.Equal(t, []string{"Option '--cpus 2' has no effect: the containers of a job share the resources of its pod."}, got.Warnings)

	got, err = Parse("db", "--tmpfs /var/lib/mysql:rw,size=1g --mount type=tmpfs,dst=/t", pool)
	require.NoError(t, err)
	require.Equal(t, Options{Tmpfs: []string{"/var/lib/mysql", "/t"}, Warnings: []string{
		"Option '--tmpfs /var/lib/mysql:rw,size=1g' makes an ordinary directory: no file system can be mounted on this runner.",
		"Option '--mount type=tmpfs,dst=/t' makes an ordinary directory: no file system can be mounted on this runner."}}, got)
}

func TestParse_Refuses(t *testing.T) {
	for text, shown := range map[string]string{
		"--privileged": "--privileged", "--cap-add NET_ADMIN": "--cap-add NET_ADMIN", "--device /dev/kvm": "--device /dev/kvm", "--gpus all": "--gpus all",
		"--security-opt seccomp=unconfined": "--security-opt seccomp=unconfined", "--pid host": "--pid host", "--ipc=container:db": "--ipc container:db", "--userns host": "--userns host",
		"--sysctl a=b": "--sysctl a=b", "--cgroup-parent x": "--cgroup-parent x", "--cgroupns host": "--cgroupns host", "--runtime runsc": "--runtime runsc",
		"--network host": "--network host", "--net=host": "--net host", "--dns 1.1.1.1": "--dns 1.1.1.1", "--volumes-from x": "--volumes-from x",
	} {
		_, err := Parse("job", text, pool)
		require.EqualError(t, err, "Option '"+shown+"' of container 'job' is not available on this runner. Remove it, or use a pool that permits docker.", text)
	}
	_, err := Parse("chrome", "--shm-size=1g", pool)
	require.EqualError(t, err, "Option '--shm-size 1g' of container 'chrome' is not available on this runner: its /dev/shm has 64 MiB. Remove it, or use a pool that permits docker.")
	got, err := Parse("chrome", "--shm-size=1gb", Pool{ShmBytes: 1 << 30})
	require.NoError(t, err)
	require.Len(t, got.Warnings, 1)
}

func TestParse_IPCIsThePods(t *testing.T) {
	for option, warnings := range map[string][]string{
		"--ipc shareable": nil,
		"--ipc=host":      {"Option '--ipc host' has no effect: the containers of a job share IPC, and /dev/shm has 2048 MiB."},
		"--ipc private":   {"Option '--ipc private' has no effect: the containers of a job share IPC."},
		"--ipc none":      {"Option '--ipc none' has no effect: the containers of a job share IPC."},
	} {
		got, err := Parse("job", option, Pool{ShmBytes: 2 << 30})
		require.NoError(t, err)
		require.Equal(t, Options{Warnings: warnings}, got)
	}
}

func TestParse_Unknown(t *testing.T) {
	for text, shown := range map[string]string{"--foo": "--foo", "--foo=bar": "--foo", "-Z": "-Z", "-iZ": "-Z", "--help": "--help", "--detach": "--detach"} {
		_, err := Parse("job", text, pool)
		require.EqualError(t, err, "Option '"+shown+"' is not known to this runner.", text)
	}
}

func TestParse_Invalid(t *testing.T) {
	for text, problem := range map[string]string{
		"--health-interval 10":           "Option '--health-interval 10' of container 'db' is invalid: must be a duration with a unit, such as 10s or 1m30s.",
		"--health-timeout=-1s":           "Option '--health-timeout -1s' of container 'db' is invalid: must be 0 or greater.",
		"--health-interval 1us":          "Option '--health-interval 1us' of container 'db' is invalid: must be 1ms or greater.",
		"--health-retries x":             "Option '--health-retries x' of container 'db' is invalid: must be a number, 0 or greater.",
		"--privileged=maybe":             "Option '--privileged' of container 'db' is invalid: must be true or false.",
		"--user":                         "Option '--user' of container 'db' needs a value.",
		"-u":                             "Option '--user' of container 'db' needs a value.",
		"-u :5":                          "Option '--user :5' of container 'db' is invalid: must be USER or USER:GROUP, names or numbers.",
		"-w src":                         "Option '--workdir src' of container 'db' is invalid: must be an absolute path.",
		"-e =1":                          "Option '--env =1' of container 'db' is invalid: must be NAME=value or NAME.",
		"--stop-signal NOPE":             "Option '--stop-signal NOPE' of container 'db' is invalid: must be the name or number of a signal, such as SIGINT.",
		"--ulimit nofile=x":              "Option '--ulimit nofile=x' of container 'db' is invalid: must be TYPE=SOFT or TYPE=SOFT:HARD.",
		"--ulimit nofile=9:3":            "Option '--ulimit nofile=9:3' of container 'db' is invalid: the soft limit must not be above the hard limit.",
		"--shm-size big":                 "Option '--shm-size big' of container 'db' is invalid: must be a size such as 512m or 1g.",
		"--add-host db":                  "Option '--add-host db' of container 'db' is invalid: must be NAME:IP.",
		`--add-host "a b:1.1.1.1"`:       "Option '--add-host a b:1.1.1.1' of container 'db' is invalid: must be NAME:IP.",
		"--hostname localhost":           "Option '--hostname localhost' of container 'db' is invalid: must be a host name.",
		"-v a:b":                         "Option '--volume a:b' of container 'db' is invalid: the target must be an absolute path.",
		"-v a:/":                         "Option '--volume a:/' of container 'db' is invalid: the target must not be the root directory.",
		"-v a:/b:xx":                     "Option '--volume a:/b:xx' of container 'db' is invalid: mode 'xx' is not known.",
		"--mount type=bind,src=a,d=/b":   "Option '--mount type=bind,src=a,d=/b' of container 'db' is invalid: 'd' is not known.",
		"--stop-timeout x":               "Option '--stop-timeout x' of container 'db' is invalid: must be a number of seconds.",
		`--name "a b"`:                   "Option '--name a b' of container 'db' is invalid: must be a host name.",
		"--tmpfs x":                      "Option '--tmpfs x' of container 'db' is invalid: the target must be an absolute path.",
		"-v :/x":                         "Option '--volume :/x' of container 'db' is invalid: the source is empty.",
		"-v a:/b:ro:x":                   "Option '--volume a:/b:ro:x' of container 'db' is invalid: must be SOURCE:TARGET or SOURCE:TARGET:MODE.",
		"--mount type=bind,src=a,dst=/b": "Option '--mount type=bind,src=a,dst=/b' of container 'db' is invalid: the source must be an absolute path.",
		"--mount src=/a,dst=/b":          "Option '--mount src=/a,dst=/b' of container 'db' is invalid: the source must be the name of a volume.",
		"--mount src=a":                  "Option '--mount src=a' of container 'db' is invalid: the target must be an absolute path.",
		"--mount src=a,dst=/b,ro=maybe":  "Option '--mount src=a,dst=/b,ro=maybe' of container 'db' is invalid: readonly must be true or false.",
		"--mount type=npipe,dst=/b":      "Option '--mount type=npipe,dst=/b' of container 'db' is not available on this runner. Remove it, or use a pool that permits docker.",
		"--=x":                           "Option '--=x' is not known to this runner.",
		"nginx":                          "Options of container 'db' have 'nginx', which is no option. Put double quotes around values with spaces.",
		`--health-cmd "x`:                "Options of container 'db' are invalid: a double quote is not closed.",
		"--no-healthcheck --health-cmd x --health-retries 1": "Option '--no-healthcheck' of container 'db' can't be used with '--health-cmd'. Remove one of them.",
	} {
		_, err := Parse("db", text, pool)
		require.EqualError(t, err, problem, text)
	}
}

func TestParse_NamesAllProblemsAtOnce(t *testing.T) {
	_, err := Parse("job", "--privileged --user node --gpus all --what", pool)
	var problems *Error
	require.True(t, errors.As(err, &problems))
	require.Equal(t, []string{
		"Option '--privileged' of container 'job' is not available on this runner. Remove it, or use a pool that permits docker.",
		"Option '--gpus all' of container 'job' is not available on this runner. Remove it, or use a pool that permits docker.",
		"Option '--what' is not known to this runner.",
	}, problems.Problems)
}

func TestIsSignal(t *testing.T) {
	for _, text := range []string{"9", "SIGTERM", "term", "QUIT", "RTMIN", "SIGRTMIN+3", "SIGRTMAX-1"} {
		require.True(t, IsSignal(text), text)
	}
	for _, text := range []string{"", "0", "65", "-1", "SIGNOPE", "RTMIN+x", "SIG"} {
		require.False(t, IsSignal(text), text)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1024": 1024, "64m": 64 << 20, "64MB": 64 << 20, "1GiB": 1 << 30, "1.5k": 1536, "2 g": 2 << 30, "1t": 1 << 40, "5b": 5} {
		got, ok := parseBytes(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "m", "-1", "x", "1x", "1mm", "1e300", "nan", "inf", "9999999t"} {
		_, ok := parseBytes(text)
		require.False(t, ok, text)
	}
}

func TestParseEnvFile(t *testing.T) {
	got, line := ParseEnvFile([]byte("\ufeff# comment\nA=1\r\n\n  B = x=\"y\" \nC\nD="))
	require.Equal(t, 4, line, "a name has no space")
	require.Nil(t, got)
	got, line = ParseEnvFile([]byte("\ufeff# comment\nA=1\r\n\n  B= x=\"y\" \nC\nD="))
	require.Zero(t, line)
	require.Equal(t, []Variable{{Name: "A", Value: "1"}, {Name: "B", Value: ` x="y" `}, {Name: "C", FromRunner: true}, {Name: "D"}}, got)
	_, line = ParseEnvFile([]byte("=x"))
	require.Equal(t, 1, line)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`--health-cmd "a b" -e A=1 -p 80:80`, "--mount type=tmpfs,dst=/x", "--ulimit nofile=1:2 -itx", "--shm-size 1e400", "--", "-- x", "---"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse("job", text, pool)
		var problems *Error
		if err != nil {
			require.True(t, errors.As(err, &problems))
			require.NotEmpty(t, problems.Problems)
			return
		}
		for _, host := range got.AddHosts {
			require.True(t, IsHostName(host.Name))
		}
		for _, name := range got.Names {
			require.True(t, IsHostName(name))
		}
		for _, volume := range got.Volumes {
			require.Equal(t, byte('/'), volume.Target[0])
		}
	})
}
