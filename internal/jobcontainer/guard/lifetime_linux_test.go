package guard_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// supervise starts a runner's supervisor that holds the volume until it is killed.
func (p *pod) supervise() *exec.Cmd {
	p.Helper()
	cmd := exec.Command(os.Args[0], p.dir) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), modeEnv+"=supervise")
	stdout, err := cmd.StdoutPipe()
	require.NoError(p, err)
	require.NoError(p, cmd.Start())
	p.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(p, err)
	require.Equal(p, "held\n", line)
	return cmd
}

// inBackground runs a script in the container until the container ends.
func (c *container) inBackground(script string) {
	go func() { _, _ = c.Exec(context.WithoutCancel(c.p.Context()), shell(script), client.Streams{}) }()
}

func TestGuard_JOB2_EndsWithTheRunner(t *testing.T) {
	t.Parallel()
	p := unheldPod(t)
	supervisor := p.supervise()
	job, service := p.add("job"), p.add("service-0")
	_, err := service.Start(t.Context(), shell(ignoring), "")
	require.NoError(t, err)
	job.inBackground(ignoring)
	service.await("tmp/up")
	job.await("tmp/up")
	pids := append(job.hostPIDs(), service.hostPIDs()...)
	require.GreaterOrEqual(t, len(pids), 10)
	start := time.Now()
	require.NoError(t, supervisor.Process.Kill())
	job.requireGone("the job's container ends")
	service.requireGone("the service's container ends")
	require.Less(t, time.Since(start), 10*time.Second)
	for _, pid := range pids {
		require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH, "process %d is gone", pid)
	}
}

func TestGuard_JOB2_AJobThatTakesTheLockGainsNothing(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c, other := p.add("job"), p.add("service-0")
	lock := jobcontainer.Lock
	// The kernel wakes all that wait, and the first to run gets it: many of the job make it likely that the guards do not.
	const greedy = 20
	c.inBackground(fmt.Sprintf("for i in $(seq %d); do flock -x %s sh -c 'while :; do sleep 1; done' & done; wait", greedy, lock))
	awaitLockWaiter(t, filepath.Join(p.dir, "lock"), 2+greedy)
	p.hold.Release()
	c.requireGone("the container of the process that waits for the lock ends")
	other.requireGone("the other container ends")
}

// awaitLockWaiter waits until so many wait for the lock: guards, and the job.
func awaitLockWaiter(t *testing.T, path string, waiters int) {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(path, &stat))
	inode := fmt.Sprintf(":%d 0 EOF", stat.Ino)
	require.Eventually(t, func() bool {
		file, err := os.Open("/proc/locks")
		require.NoError(t, err)
		defer func() { _ = file.Close() }()
		found := 0
		for lines := bufio.NewScanner(file); lines.Scan(); {
			line := lines.Text()
			if len(line) > len(inode) && line[len(line)-len(inode):] == inode {
				found++
			}
		}
		return found == waiters+1
	}, await.Limit, 5*time.Millisecond, "processes that wait for the lock")
}

// A job that puts itself in the supervisor's place cannot keep a container that starts later longer than its own, even if the connection
// itself outlives it: the guard also watches the process that listened.
func TestGuard_JOB2_AForgedSupervisorEndsWithTheRunner(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	path := filepath.Join(p.dir, "runner.sock")
	require.NoError(t, os.Remove(path))
	// The forger listens, hands its listening socket to this process, which stands for a process in a container that started later, and ends.
	listener := listenInAnotherProcess(t, path)
	require.NoError(t, volume.Want(p.dir, "step-0"))
	late := p.begin("step-0")
	late.requireGone("the process that listened has ended, and so has the guard")
	require.Contains(t, []int{0, jobcontainer.ExitRunnerEnded}, late.cmd.ProcessState.ExitCode(), late.log)
	require.NoError(t, listener.Close())

	// One that lives counts for as long as it lives.
	forger := exec.Command(os.Args[0], path) //nolint:gosec // this program
	forger.Env = append(os.Environ(), modeEnv+"=listen")
	stdout, err := forger.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, forger.Start())
	t.Cleanup(func() { _ = forger.Process.Kill(); _ = forger.Wait() })
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	misled := p.add("step-1")
	require.NoError(t, forger.Process.Kill())
	misled.requireGone("the guard ends with the process that listened")
	require.Equal(t, jobcontainer.ExitRunnerEnded, misled.cmd.ProcessState.ExitCode(), "so that its files are counted (JOB-5)")
}

// listenInAnotherProcess returns a socket on which a process listens that has ended.
func listenInAnotherProcess(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, os.Chmod(path, 0o666))
	socket := os.NewFile(uintptr(fd), "listener")
	cmd := exec.CommandContext(await.Context(t), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), modeEnv+"=listen-on-3")
	cmd.ExtraFiles = []*os.File{socket}
	require.NoError(t, cmd.Run())
	return socket
}

func TestGuard_JOB2_IsDeafToSignals(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	for number := syscall.Signal(1); number <= 64; number++ {
		if number != unix.SIGKILL && number != unix.SIGSTOP && number != 32 && number != 33 {
			require.NoError(t, syscall.Kill(c.cmd.Process.Pid, number))
			c.sh("kill -" + fmt.Sprint(int(number)) + " 1")
			c.queue(number)
		}
	}
	require.Equal(t, "on\n", c.sh("echo on").stdout)
	require.True(t, c.alive())
	// And a child has none of that: signals are neither ignored nor blocked.
	var blocked, ignored uint64
	masks := c.sh("sed -n 's/^SigBlk:\\t//p; s/^SigIgn:\\t//p' /proc/self/status").stdout
	_, err := fmt.Sscanf(masks, "%x\n%x\n", &blocked, &ignored)
	require.NoError(t, err, masks)
	require.Zero(t, blocked, masks)
	// What make starts ignores 32 and 33, which are glibc's own: its posix_spawn does that.
	const glibc = 1<<31 | 1<<32
	require.Zero(t, ignored&^glibc, masks)
}

// queue sends the guard a signal with a code of the sender's own, as sigqueue(3) does. Of the signals of faults, Go's runtime goes by the code.
func (c *container) queue(number syscall.Signal) {
	c.p.Helper()
	info := [32]int32{0: int32(number), 2: -1}                                                                                         // siginfo_t: si_signo, and SI_QUEUE as si_code
	_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(c.cmd.Process.Pid), uintptr(number), uintptr(unsafe.Pointer(&info))) //nolint:gosec // the kernel's interface
	require.Zero(c.p, errno)
}

func TestGuard_JOB2_EndsAtOnceIfItIsNotWanted(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	require.NoError(t, volume.Want(p.dir, "job"))
	require.NoError(t, volume.Withdraw(p.dir, "job"))
	withdrawn := p.begin("job")
	withdrawn.requireGone("a container that was withdrawn before it started")
	require.Equal(t, 0, withdrawn.cmd.ProcessState.ExitCode())
	require.NoFileExists(t, p.socket("job"))

	require.NoError(t, volume.Withdraw(p.dir, "never-named"))
	p.begin("never-named").requireGone("a container whose request was given up before its name was known")
}

func TestGuard_WaitsForAnAnswerOnItsWay(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.begin("job")
	require.Never(t, func() bool { return !c.alive() }, 200*time.Millisecond, 20*time.Millisecond)
	require.NoError(t, volume.Want(p.dir, "job"))
	require.NoError(t, c.Wait(await.Context(t)))
}

func TestGuard_JOB2_EndsWithTheRunnerBeforeItIsNamed(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.begin("job")
	require.Never(t, func() bool { return !c.alive() }, 200*time.Millisecond, 20*time.Millisecond)
	p.hold.Release()
	c.requireGone("a container whose response is on its way when the runner ends")
}

// A FIFO in place of the lock would keep a guard, which no signal ends, from ever beginning to watch its runner.
func TestGuard_JOB2_AJobThatReplacesTheLockGainsNothing(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	lock := filepath.Join(p.dir, filepath.Base(jobcontainer.Lock))
	require.NoError(t, os.Remove(lock))
	require.NoError(t, syscall.Mkfifo(lock, 0o666))
	require.NoError(t, volume.Want(p.dir, "step-0"))
	late := p.begin("step-0")
	late.requireGone("its runner's lock is no file")
	require.Equal(t, 0, late.cmd.ProcessState.ExitCode(), late.log)
	require.Contains(t, late.log.String(), "not a regular file")
}

func TestGuard_JOB2_EndsAtOnceAfterTheRunner(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	require.NoError(t, volume.Want(p.dir, "job"))
	p.hold.Release()
	c := p.begin("job")
	c.requireGone("a container that starts after the runner's end")
	require.Equal(t, 0, c.cmd.ProcessState.ExitCode())
	require.Contains(t, c.log.String(), "the runner has ended")
}

func TestGuard_RefusesToBeAnotherProcessThanTheFirst(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	require.NoError(t, volume.Want(p.dir, "job"))
	output, err := exec.CommandContext(await.Context(t), agentBinary(t), "guard", "--name", "job", "--dir", p.dir).CombinedOutput() //nolint:gosec // our program
	require.Error(t, err)
	require.Contains(t, string(output), "not the first process of its container: a pod with job containers must not set shareProcessNamespace")
}

func TestEnd_EndsTheContainer(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("step-0")
	c.inBackground(ignoring)
	c.await("tmp/up")
	status, err := c.End(t.Context(), time.Second)
	require.NoError(t, err)
	require.Equal(t, client.Status{State: "none"}, status)
	c.requireGone("the container has ended")
	require.Equal(t, 0, c.cmd.ProcessState.ExitCode())
}

func TestGuard_ReapsOrphans(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	require.Equal(t, 0, c.sh("for i in $(seq 50); do (setsid sleep 0.05 >/dev/null 2>&1 &) ; done").Code)
	c.requireEmpty()
}

func TestGuard_ChildrenAreKilledBeforeItWhenMemoryIsShort(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	// While it starts a process, its own score is the child's: it is read while there is none.
	guard, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.cmd.Process.Pid))
	require.NoError(t, err)
	own, child := 0, 0
	_, err = fmt.Sscan(string(guard), &own)
	require.NoError(t, err)
	_, err = fmt.Sscan(c.sh("cat /proc/self/oom_score_adj").stdout, &child)
	require.NoError(t, err)
	require.Equal(t, min(1000, own+100), child)
	_, err = c.Start(t.Context(), shell("cat /proc/self/oom_score_adj > /tmp/score"), "")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(child), c.await("tmp/score"))
}

func TestGuard_HasNoSecretInItsProcess(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	secret := client.Process{Argv: []string{"sh", "-c", `echo "$TOKEN"; echo "$TOKEN" >&2; sleep 0.1; nope`}, Env: []string{"TOKEN=s3cr3t-value", "PATH=/bin"}}
	require.Equal(t, "s3cr3t-value\n", c.run(secret).stdout)
	_, err := c.Start(t.Context(), secret, "")
	require.NoError(t, err)
	_, err = c.Start(t.Context(), client.Process{Argv: []string{"nope"}, Env: []string{"TOKEN s3cr3t-value"}}, "")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cr3t")
	for _, name := range []string{"cmdline", "environ"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, name))
		require.NoError(t, err)
		require.NotContains(t, string(content), "s3cr3t")
	}
	require.NotContains(t, c.log.String(), "s3cr3t")
	require.NotContains(t, c.sh("env").stdout, "KUBERNETES", "a step has nothing of the guard's environment")
}
