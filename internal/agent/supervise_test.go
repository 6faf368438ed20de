package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const modeEnv = "AGENT_TEST_MODE"

// TestMain doubles as the runner, and as a supervisor that can be killed.
func TestMain(m *testing.M) {
	mode, argument, _ := strings.Cut(os.Getenv(modeEnv), " ")
	switch mode {
	case "":
		os.Exit(m.Run())
	case "exit":
		fmt.Printf("jit=%s args=%q\n", os.Getenv(envJIT), os.Args)
		n, _ := strconv.Atoi(argument)
		os.Exit(n)
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // bounded: the signal ends this process
	case "listen": // a runner: a job starts when the file "assign" appears, and ends when "finish" does
		listen(argument)
	case "worker": // GitHub's runner: it starts its worker for a job
		work(argument, "until [ -e "+filepath.Join(argument, "finish")+" ]; do sleep 0.01; done")
	case "overstay": // the job stops its listener
		work(argument, `sh "$`+envHook+`"; :`) // the last command would take the shell's place
		touch(filepath.Join(argument, "stopped"))
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-time.After(time.Hour) // the signal may reach another thread, and a moment later
	case "stubborn": // ignores TERM
		signal.Ignore(syscall.SIGTERM)
		touch(filepath.Join(argument, "online"))
		<-time.After(time.Hour) // a program without cgo that waited for nothing would end: a deadlock
	case "guest": // what DetachGuest starts
		if err := Guest(context.Background(), GuestOptions{Shares: argument, Environ: []string{"PATH=" + os.Getenv("PATH")}}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "supervise":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		err := Supervise(ctx, SuperviseOptions{
			JITFile: filepath.Join(argument, "jitconfig"), Command: []string{os.Args[0]},
			Environ: append(os.Environ(), modeEnv+"=listen "+argument), Stdout: os.Stdout, Stderr: os.Stderr,
		})
		stop()
		var exit *ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.Code)
		}
	}
	os.Exit(0)
}

// listen exits 9 when it is stopped without a job, 3 when its registration is removed, and with what the file "finish" says, or 5, at the end of a job. Between the files "acquire"
// and "assign" it has acquired a job of which nothing shows yet, and loses it when it is stopped.
func listen(dir string) {
	term := make(chan os.Signal, 4)
	signal.Notify(term, syscall.SIGTERM)
	touch(filepath.Join(dir, "online"), strconv.Itoa(os.Getpid()))
	busy := false
	for tick := time.NewTicker(2 * time.Millisecond); ; <-tick.C {
		select {
		case <-term:
			if busy {
				touch(filepath.Join(dir, "killed-mid-job"))
				os.Exit(1)
			}
			if exists(filepath.Join(dir, "acquire")) {
				touch(filepath.Join(dir, "lost"))
			}
			os.Exit(9)
		default:
		}
		if !busy && exists(filepath.Join(dir, "removed")) {
			os.Exit(3)
		}
		if !busy && exists(filepath.Join(dir, "assign")) {
			busy = true
			if err := exec.Command("sh", os.Getenv(envHook)).Run(); err != nil { // bounded: the test ends this process
				os.Exit(77)
			}
			touch(filepath.Join(dir, "busy"))
		}
		if said, err := os.ReadFile(filepath.Join(dir, "finish")); busy && err == nil {
			code, _ := strconv.Atoi(string(said))
			os.Exit(cmp.Or(code, 5))
		}
	}
}

// work takes the job that appears as the file "assign", and runs its script by a worker.
func work(dir, script string) {
	touch(filepath.Join(dir, "online"))
	for tick := time.NewTicker(2 * time.Millisecond); !exists(filepath.Join(dir, "assign")); {
		<-tick.C
	}
	worker := filepath.Join(dir, "Runner.Worker")
	_ = os.Symlink("/bin/sh", worker)
	if err := exec.Command(worker, "-c", script).Run(); err != nil { // bounded: the test ends this process
		os.Exit(77)
	}
}

func touch(path string, content ...string) {
	temp := path + ".tmp"
	_ = os.WriteFile(temp, []byte(strings.Join(content, "")), 0o600)
	_ = os.Rename(temp, path)
}

// container is a supervisor with its surroundings.
type container struct {
	t       *testing.T
	dir     string
	options SuperviseOptions
	out     bytes.Buffer
	log     bytes.Buffer
	stop    context.CancelFunc
	ended   chan error
}

func newContainer(t *testing.T, mode string) *container {
	t.Helper()
	c := &container{t: t, dir: t.TempDir(), ended: make(chan error, 1)}
	c.options = SuperviseOptions{
		JITFile: filepath.Join(c.dir, "jitconfig"), Command: []string{os.Args[0], "run"},
		Environ: append(os.Environ(), modeEnv+"="+strings.ReplaceAll(mode, "DIR", c.dir)),
		Stdout:  &c.out, Stderr: &c.out, LookEvery: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&c.log, nil)),
	}
	return c
}

func (c *container) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.t.Cleanup(cancel)
	go func() { c.ended <- Supervise(ctx, c.options) }()
}

func (c *container) stage(content string) {
	c.t.Helper()
	require.NoError(c.t, stage(c.options.JITFile, []byte(content), owner{-1, -1}))
}

func (c *container) await(name string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return exists(filepath.Join(c.dir, name)) }, 20*time.Second, time.Millisecond,
		"waiting for %s", name)
}

func (c *container) code() int {
	c.t.Helper()
	select {
	case err := <-c.ended:
		return code(c.t, err)
	case <-time.After(30 * time.Second):
		c.t.Fatal("the supervisor does not end", c.log.String())
		return 0
	}
}

func TestSupervise_RunsOnceAndKeepsTheExitCode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{"exit 0": 0, "exit 1": 1, "exit 42": 42, "kill": 128 + 9} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, mode)
			c.start()
			c.await("runner.idle")
			c.stage(jitText + "\n")
			require.Equal(t, want, c.code())
			require.NoFileExists(t, c.options.JITFile)

			err := Supervise(t.Context(), c.options)
			require.Equal(t, 1, code(t, err))
			require.ErrorContains(t, err, "started only once")
		})
	}
}

func TestSupervise_NET3_ConfigurationIsInTheEnvironmentAlone(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 0")
	c.options.Environ = append(c.options.Environ, envJIT+"=planted")
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	require.Contains(t, c.out.String(), "jit="+jitText)
	arguments := c.out.String()[strings.Index(c.out.String(), "args="):]
	require.NotContains(t, arguments, jitText)
	require.NotContains(t, c.log.String(), jitText)
	entries, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(c.dir, entry.Name()))
		require.NoError(t, err)
		require.NotContains(t, string(content), jitText, entry.Name())
	}
}

func TestSupervise_NET3_RunnerDoesNotSeeTheWayToTheToken(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	c.options.Environ = append(c.options.Environ, "BULLPEN_TOKEN_FILE=/secret/place", "BULLPEN_POD_NAME=pod-1")
	c.options.Hidden = []string{"BULLPEN_TOKEN_FILE"}
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	require.NotContains(t, c.out.String(), "/secret/place")
	require.Contains(t, c.out.String(), "BULLPEN_POD_NAME=pod-1")
	require.Equal(t, 1, strings.Count(c.out.String(), envHook+"="))
}

// A pool learns that its image is out of date by the runner's exit code, which GitHub's runner gives only when it is asked to.
func TestSupervise_HasTheRunnerTellThatItsVersionIsRefused(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "environ")
	c.options.Environ = append(c.options.Environ, envTellsVersion+"=false")
	c.stage(jitText)
	c.start()
	require.Zero(t, c.code())
	require.Contains(t, c.out.String(), "\nACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=true\n")
	require.Equal(t, 1, strings.Count(c.out.String(), envTellsVersion+"="))
}

func TestSupervise_NothingToDo(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 3")
	c.start()
	c.stage("")
	require.Zero(t, c.code())
	require.Empty(t, c.out.String())
	require.NoFileExists(t, c.options.JITFile)
}

func TestSupervise_StopWhileWaitingEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 3")
	c.start()
	c.await("runner.idle")
	c.stop()
	require.Zero(t, c.code())
	require.Empty(t, c.out.String())
	require.NoFileExists(t, filepath.Join(c.dir, "runner.idle"), "the poller must not fetch work for it any more")

	c = newContainer(t, "exit 3")
	c.stage(jitText)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, Supervise(ctx, c.options), "staged and not started: a pod that goes starts nothing")
	require.Empty(t, c.out.String())
}

// EXCL-8: a runner that has its configuration may have acquired a job of which nothing shows yet, and is not signalled. It ends when its
// registration is removed, or with the job.
func TestSupervise_EXCL8_AStopSignalsNoRunnerThatHasItsConfiguration(t *testing.T) {
	t.Parallel()
	start := func() (*container, <-chan string) {
		c := newContainer(t, "listen DIR")
		said := c.listen()
		c.start()
		c.stage(jitText)
		c.await("online")
		return c, said
	}
	c, said := start()
	c.stop()
	awaitLine(t, said, "exits when its registration is removed")
	touch(filepath.Join(c.dir, "removed"))
	require.Equal(t, 3, c.code(), "it ended by itself")

	c, said = start()
	touch(filepath.Join(c.dir, "acquire"))
	c.stop()
	awaitLine(t, said, "exits when its registration is removed")
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())
	require.NoFileExists(t, filepath.Join(c.dir, "lost"))
}

func TestSupervise_POOL9_StopLetsARunningJobFinish(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	said := c.listen()
	c.start()
	c.stage(jitText)
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	c.stop()
	require.Contains(t, awaitLine(t, said, "asked to stop"), "waiting for the job")
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())
	require.NoFileExists(t, filepath.Join(c.dir, "killed-mid-job"))
}

// A workflow that clears away every trace of itself is not stopped either.
func TestAttend_POOL9_JobIsLatched(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	said := c.listen()
	c.start()
	c.stage(jitText)
	touch(filepath.Join(c.dir, "assign"))
	awaitLine(t, said, "a job has started")
	c.await("busy")
	require.NoError(t, os.Remove(filepath.Join(c.dir, "job-started")))
	c.stop()
	require.Contains(t, awaitLine(t, said, "asked to stop"), "waiting for the job")
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())
}

// listen makes the supervisor's log readable line by line.
func (c *container) listen() <-chan string {
	said := make(lines, 1024)
	c.options.Log = slog.New(slog.NewTextHandler(said, nil))
	return said
}

type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// awaitLine returns the first line that holds the text.
func awaitLine(t *testing.T, said <-chan string, text string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case line := <-said:
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			t.Fatalf("the log never says %q", text)
		}
	}
}

func TestSupervise_RunnerThatCannotStart(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for program, want := range map[string]int{"/no/such/runner": 127, "no-such-runner": 127, plain: 126} {
		c := newContainer(t, "exit 0")
		c.options.Command = []string{program}
		c.stage(jitText)
		c.start()
		err := await.Receive(t, c.ended, "the supervisor returns")
		require.Equal(t, want, code(t, err))
		require.ErrorContains(t, err, program)
		require.NotContains(t, err.Error(), jitText)
	}
	c := newContainer(t, "exit 0")
	c.options.Command = nil
	require.ErrorContains(t, Supervise(t.Context(), c.options), "missing runner command")
}

func TestHook_ChainsToTheImagesOwn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's here")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f := filesIn(filepath.Join(dir, "jitconfig"), "")
	own := filepath.Join(dir, "own hook.sh")
	require.NoError(t, os.WriteFile(own, []byte("echo own; exit 12\n"), 0o600))

	touch(f.jobless)
	variable, err := writeHook(f, []string{envHook + "=/first.sh", envHook + "=" + own})
	require.NoError(t, err)
	require.Equal(t, envHook+"="+f.hook, variable)
	out, err := exec.CommandContext(await.Context(t), "sh", f.hook).CombinedOutput()
	require.FileExists(t, f.jobStarted)
	require.False(t, f.hookRunByWorker(), "it was run by this test")
	require.NoFileExists(t, f.jobless)
	require.Equal(t, "own\n", string(out))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 12, exit.ExitCode(), "its failure is the job's, as without us")

	_, err = writeHook(f, nil)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Dir(f.jobStarted)+"/job-started"))
	require.NoError(t, exec.CommandContext(await.Context(t), "sh", f.hook).Run())
	require.FileExists(t, f.jobStarted)

	variable, err = writeHook(f, []string{envHook + "=/opt/hook.js"})
	require.NoError(t, err)
	require.Empty(t, variable, "left as it is")
}

// supervisorProcess starts a supervisor as a process of its own, whose runner is online.
func supervisorProcess(t *testing.T) (*exec.Cmd, string, int) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeEnv+"=supervise "+dir)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, stage(filepath.Join(dir, "jitconfig"), []byte(jitText), owner{-1, -1}))
	online := filepath.Join(dir, "online")
	require.Eventually(t, func() bool { return exists(online) }, 20*time.Second, time.Millisecond)
	text, err := os.ReadFile(online)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return cmd, dir, pid
}

func TestSupervise_SignalsOfAProcess(t *testing.T) {
	t.Parallel()
	for _, stop := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd, dir, _ := supervisorProcess(t)
		require.NoError(t, cmd.Process.Signal(stop))
		touch(filepath.Join(dir, "removed"))
		var exit *exec.ExitError
		require.ErrorAs(t, await.Call(t, cmd.Wait, "the supervisor exits"), &exit)
		require.Equal(t, 3, exit.ExitCode(), "the runner did not hear of it")
	}
	cmd, dir, _ := supervisorProcess(t)
	touch(filepath.Join(dir, "assign"))
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "busy")) }, 20*time.Second, time.Millisecond)
	for range 3 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	}
	touch(filepath.Join(dir, "finish"))
	var exit *exec.ExitError
	require.ErrorAs(t, await.Call(t, cmd.Wait, "the supervisor exits"), &exit)
	require.Equal(t, 5, exit.ExitCode(), "the job finished, however often the supervisor was asked to stop")
}

func TestSupervise_RunnerDiesWithAKilledSupervisor(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // no kernel support; the container's own end takes the runner along
	}
	cmd, _, pid := supervisorProcess(t)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, 20*time.Second, time.Millisecond)
}

func TestWorkerRuns_SeesGitHubsWorkerByName(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	worker := filepath.Join(dir, "Runner.Worker")
	require.NoError(t, os.Symlink(self, worker))
	cmd := exec.Command(worker)
	cmd.Env = append(os.Environ(), modeEnv+"=stubborn "+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "online")) }, 20*time.Second, time.Millisecond)
	require.True(t, workerRuns(cmd.Process.Pid))

	// The group of another process, which lives: a number that nothing here has may be that of a worker of another test.
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, other.Start())
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	require.False(t, workerRuns(other.Process.Pid))
}
