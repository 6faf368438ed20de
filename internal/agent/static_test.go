package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func init() { // more of the modes that TestMain knows: a runner like GitHub's, its registration, and its worker
	mode, dir, _ := strings.Cut(os.Getenv(modeEnv), " ")
	switch {
	case mode == "static" && slices.Contains(os.Args, "configure"):
		os.Exit(pretendToConfigure(dir))
	case mode == "static":
		os.Exit(pretendToListen(dir))
	case mode == "static-worker":
		os.Exit(pretendToWork(filepath.Split(dir)))
	}
}

// pretendToConfigure writes what it was given, and exits with what the file configure-code says.
func pretendToConfigure(dir string) int {
	try := 1
	for exists(filepath.Join(dir, "configured."+strconv.Itoa(try))) {
		try++
	}
	touch(filepath.Join(dir, "configured."+strconv.Itoa(try)), strings.Join(os.Args[1:], " "), "\n", strings.Join(os.Environ(), "\n"))
	code, _ := os.ReadFile(filepath.Join(dir, "configure-code"))
	n, _ := strconv.Atoi(string(code))
	return n
}

// roundTrip is how long pretendToListen asks for its next job.
const roundTrip = 100 * time.Millisecond

// pretendToListen takes the jobs assign.1, assign.2, … one after the other, each by a worker, until the file removed says that its
// registration is gone. TERM cancels the job that runs, as it does
// with GitHub's runner.
func pretendToListen(dir string) int {
	term := make(chan os.Signal, 4)
	signal.Notify(term, syscall.SIGTERM)
	touch(filepath.Join(dir, "online"), strings.Join(os.Environ(), "\n"))
	tick := time.NewTicker(time.Millisecond)
	for n := 1; ; {
		select {
		case <-term:
			touch(filepath.Join(dir, "signalled"))
			return 0
		case <-tick.C:
		}
		if exists(filepath.Join(dir, "removed")) {
			return 0
		}
		if !exists(filepath.Join(dir, fmt.Sprint("assign.", n))) {
			continue
		}
		touch(filepath.Join(dir, fmt.Sprint("took.", n)))
		worker := exec.Command(filepath.Join(dir, "Runner.Worker"))
		worker.Env = append(os.Environ(), fmt.Sprint(modeEnv, "=static-worker ", filepath.Join(dir, strconv.Itoa(n))))
		if err := worker.Start(); err != nil {
			return 70
		}
		ended := make(chan error, 1)
		go func() { ended <- worker.Wait() }()
		select { // bounded: the test ends this process
		case <-ended:
			n++
			takeAnswered(dir, n)
			select {
			case <-time.After(roundTrip):
			case <-term:
				return 0
			}
		case <-term:
			if !exists(filepath.Join(dir, fmt.Sprint("reported.", n))) { // a worker that has exited is not cancelled, whichever is noticed first
				touch(filepath.Join(dir, fmt.Sprint("cancelled.", n)))
				_ = worker.Process.Kill()
			}
			takeAnswered(dir, n+1)
			return 0
		}
	}
}

// takeAnswered takes a job that was in the listener's socket, if one was: it is read of before an order to stop is seen.
func takeAnswered(dir string, n int) {
	if exists(filepath.Join(dir, "answered")) && exists(filepath.Join(dir, fmt.Sprint("assign.", n))) {
		touch(filepath.Join(dir, fmt.Sprint("took.", n)))
	}
}

func pretendToWork(dir, n string) int {
	until := func(name string) {
		for tick := time.NewTicker(time.Millisecond); !exists(filepath.Join(dir, name+n)); {
			<-tick.C
		}
	}
	if exec.Command("sh", os.Getenv(envHook)).Run() != nil { // bounded: the test ends this process
		return 70
	}
	touch(filepath.Join(dir, "working."+n))
	until("finish.")
	if exec.Command("sh", os.Getenv(envHookDone)).Run() != nil { // bounded: the test ends this process
		return 70
	}
	until("report.")
	touch(filepath.Join(dir, "reported."+n))
	return 0
}

// staticContainer is a supervisor of a static runner; its Secret has everything.
type staticContainer struct {
	*container
	secret, status string
	said           <-chan string
}

func newStaticContainer(t *testing.T) *staticContainer {
	t.Helper()
	s := &staticContainer{container: newContainer(t, "static DIR"), secret: t.TempDir(), status: t.TempDir()}
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(s.dir, "Runner.Worker")))
	s.options.JITFile, s.options.RegistrationDir, s.options.StatusDir = "", s.secret, s.status
	s.options.Retry = time.Millisecond
	s.said = s.listen()
	for name, value := range map[string]string{
		RegistrationToken: "T0KEN", RegistrationURL: "https://github.example/acme", RegistrationName: "set-0-abcde",
		RegistrationLabels: "gpu,big", RegistrationGroup: "builders", RegistrationWorkFolder: "_jobs",
	} {
		s.put(name, value)
	}
	return s
}

func (s *staticContainer) put(name, value string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.secret, name), []byte(value+"\n"), 0o600))
}

func (s *staticContainer) touch(format string, n int) {
	touch(filepath.Join(s.dir, fmt.Sprintf(format, n)))
}

func (s *staticContainer) ready(want bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return (Ready("", s.status) == nil) == want }, 20*time.Second, time.Millisecond, "ready: %t", want)
}

// end stops the supervisor, and removes the registration, as the controller does then.
func (s *staticContainer) end() {
	s.t.Helper()
	s.stop()
	touch(filepath.Join(s.dir, "removed"))
	require.Zero(s.t, s.code())
	require.NoFileExists(s.t, filepath.Join(s.dir, "signalled"), "EXCL-8")
}

func (s *staticContainer) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	require.NoError(s.t, err)
	return string(text)
}

func TestStatic_RUN5_NET3_RegistersByTheEnvironmentAlone(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.options.Environ = append(s.options.Environ, "ACTIONS_RUNNER_INPUT_LABELS=planted", "ACTIONS_RUNNER_INPUT_PAT=planted", "RUNNER_TOKEN=T0KEN")
	s.options.Hidden = []string{"RUNNER_TOKEN"}
	s.start()
	s.await("online")
	got := s.read("configured.1")
	arguments, environment, _ := strings.Cut(got, "\n")
	require.True(t, strings.HasSuffix(arguments, "configure --unattended"), arguments)
	require.NotContains(t, arguments, "T0KEN")
	for _, want := range []string{
		"TOKEN=T0KEN", "URL=https://github.example/acme", "NAME=set-0-abcde", "LABELS=gpu,big", "RUNNERGROUP=builders",
		"WORK=_jobs", "REPLACE=true", "UNATTENDED=true", "DISABLEUPDATE=true",
	} {
		require.Equal(t, 1, strings.Count(environment, inputPrefix+want), want)
	}
	require.NotContains(t, environment, "planted")
	require.NotContains(t, s.read("online"), "T0KEN", "the runner, and the jobs in it, get no token")
	s.end()
	for _, dir := range []string{s.dir, s.status} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			if strings.HasPrefix(entry.Name(), "configured.") || entry.Name() == "Runner.Worker" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			require.NotContains(t, string(text), "T0KEN", entry.Name())
		}
	}
}

func TestStatic_TokenIsWaitedForAndReadWhenItIsUsed(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.put(RegistrationToken, "")
	s.start()
	awaitLine(t, s.said, "waiting for a registration token")
	s.ready(true)
	require.NoFileExists(t, filepath.Join(s.dir, "configured.1"))
	touch(filepath.Join(s.dir, "configure-code"), "1") // the first token has ended
	s.put(RegistrationToken, "F1RST")
	awaitLine(t, s.said, "retrying")
	require.NoError(t, os.Remove(filepath.Join(s.dir, "configure-code")))
	s.put(RegistrationToken, "SEC0ND")
	s.await("online")
	last := 1
	for exists(filepath.Join(s.dir, fmt.Sprint("configured.", last+1))) {
		last++
	}
	require.Contains(t, s.read("configured.1"), "TOKEN=F1RST")
	require.Greater(t, last, 1)
	require.NotContains(t, s.read(fmt.Sprint("configured.", last)), "URL=\n")
	s.end()
}

func TestStatic_StopBeforeItIsRegistered(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	require.NoError(t, os.Remove(filepath.Join(s.secret, RegistrationToken)))
	s.start()
	awaitLine(t, s.said, "waiting for a registration token")
	s.stop()
	require.Zero(t, s.code())
	require.NoFileExists(t, filepath.Join(s.dir, "configured.1"))
}

// EXCL-4: each job takes the sign away, and its end brings it back.
func TestStatic_EXCL4_ReadinessGoesWithEachJob(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	if !seesWorkers {
		s.options.Settle = time.Millisecond
	}
	s.start()
	s.await("online")
	s.ready(true)
	for n := 1; n <= 3; n++ {
		s.touch("assign.%d", n)
		s.await(fmt.Sprint("working.", n))
		s.ready(false)
		s.touch("finish.%d", n)
		if seesWorkers {
			require.Eventually(t, func() bool { return exists(filepath.Join(s.status, "job-completed")) }, 20*time.Second, time.Millisecond)
			require.Error(t, Ready("", s.status), "its end is not reported yet")
		}
		s.touch("report.%d", n)
		s.await(fmt.Sprint("reported.", n))
		s.ready(true)
	}
	s.end()
	require.NoFileExists(t, filepath.Join(s.dir, "cancelled.3"))
}

// EXCL-8: a stop is no signal to a static runner without a job: it may have acquired one of which nothing shows yet.
func TestStatic_EXCL8_AStopSignalsNoRunner(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.start()
	s.await("online")
	s.stop()
	awaitLine(t, s.said, "exits when its registration is removed")
	s.ready(true)
	touch(filepath.Join(s.dir, "removed"))
	require.Zero(t, s.code())
	require.NoFileExists(t, filepath.Join(s.dir, "signalled"))

	s = newStaticContainer(t)
	s.start()
	s.await("online")
	s.stop()
	awaitLine(t, s.said, "exits when its registration is removed")
	s.touch("assign.%d", 1) // GitHub had given it the job
	s.await("working.1")
	s.ready(false)
	s.touch("finish.%d", 1)
	s.touch("report.%d", 1)
	touch(filepath.Join(s.dir, "removed"))
	require.Zero(t, s.code())
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "cancelled.1"))
}

// RUN-7: a StatefulSet's pod restarts its container in any case; nothing is run twice, and nothing looks as if it could be.
func TestSupervise_RUN7_SecondStartWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	ephemeral := newContainer(t, "exit 4")
	status := t.TempDir()
	ephemeral.options.Given, ephemeral.options.StatusDir = true, status
	touch(ephemeral.options.JITFile, jitText)
	require.NoError(t, os.Chmod(ephemeral.options.JITFile, 0o400))
	require.NoError(t, os.Chmod(ephemeral.dir, 0o500)) // a mounted Secret
	ephemeral.start()
	require.Equal(t, 4, ephemeral.code())
	require.Contains(t, ephemeral.out.String(), "jit="+jitText)
	require.FileExists(t, ephemeral.options.JITFile, "it is the Secret's")

	static := newStaticContainer(t)
	static.options.Command = []string{"/bin/true", "run"}
	static.start()
	require.Zero(t, static.code())

	for name, c := range map[string]*container{"ephemeral": ephemeral, "static": static.container} {
		before := c.out.Len()
		said := make(lines, 1024)
		c.options.Log = slog.New(slog.NewTextHandler(said, nil))
		require.Equal(t, name == "static", Ready("", c.options.StatusDir) == nil, "%s: no job has run, and where a container waits for it nothing says so any more", name)
		c.start()
		awaitLine(t, said, "is not started twice")
		require.Error(t, Ready("", c.options.StatusDir), "%s: it can take none any more", name)
		require.Equal(t, before, c.out.Len(), name)
		c.stop()
		require.Zero(t, c.code(), name)
	}
}

func TestSupervise_GivenNeedsADirectoryForItsSigns(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 0")
	c.options.Given = true
	require.ErrorContains(t, Supervise(context.Background(), c.options), "missing status directory")
}

func TestConfigureCommand(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"/home/runner/bin/Runner.Listener run":         "/home/runner/bin/Runner.Listener configure --unattended",
		"/home/runner/bin/Runner.Listener":             "/home/runner/bin/Runner.Listener configure --unattended",
		"/home/runner/run.sh":                          "/home/runner/config.sh --unattended",
		"bullpen dev runner --work /work run":          "bullpen dev runner --work /work configure --unattended",
		"/usr/bin/env LANG=C /opt/Runner.Listener run": "/usr/bin/env LANG=C /opt/Runner.Listener configure --unattended",
	} {
		require.Equal(t, strings.Fields(want), configureCommand(strings.Fields(command)))
	}
}

func TestHookDone_ChainsToTheImagesOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := filesIn(filepath.Join(dir, "jitconfig"), "")
	own := filepath.Join(dir, "own hook.sh")
	require.NoError(t, os.WriteFile(own, []byte("test ! -e "+f.jobCompleted+" && echo own; exit 12\n"), 0o600))
	variable, err := writeHookDone(f, []string{envHookDone + "=" + own})
	require.NoError(t, err)
	require.Equal(t, envHookDone+"="+f.hookDone, variable)
	out, err := exec.CommandContext(await.Context(t), "sh", f.hookDone).CombinedOutput()
	require.Equal(t, "own\n", string(out))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 12, exit.ExitCode())
	require.FileExists(t, f.jobCompleted)
}
