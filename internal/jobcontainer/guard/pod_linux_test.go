package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// The test binary is also what enters a container, a runner's supervisor, and a client of a guard.
const modeEnv = "BULLPEN_GUARD_TEST"

// programs is where the agent is compiled to, once.
var (
	programs     string
	compileAgent = sync.OnceValue(func() error { return gobuild.Build(agentPath(), "github.com/bullpen-ci/bullpen/cmd/bullpen-agent") })
)

func agentPath() string { return filepath.Join(programs, "bullpen-agent") }

// agentBinary is the compiled agent.
func agentBinary(t testing.TB) string {
	t.Helper()
	require.NoError(t, compileAgent())
	return agentPath()
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		fmt.Fprintln(os.Stderr, runMode(mode, os.Args[1:]))
		os.Exit(70)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "guard")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // containers have other users
		panic(err)
	}
	programs = dir
	return m.Run()
}

// runMode returns only if it fails.
func runMode(mode string, args []string) error {
	switch mode {
	case "enter":
		return enter(args[0], args[1], args[2], args[3:])
	case "supervise": // holds the volume until it is killed
		hold, err := volume.Take(args[0])
		if err != nil {
			return err
		}
		defer hold.Release() // keeps its files from being closed as garbage
		fmt.Println("held")
		return forever()
	case "listen": // puts itself in the supervisor's place
		listener, err := net.Listen("unix", args[0])
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }() // as above
		fmt.Println("listens")
		return forever()
	case "listen-on-3":
		if err := unix.Listen(3, 16); err != nil {
			return err
		}
		os.Exit(0)
	case "exec": // a client; its output is the process's
		exit, err := client.New(args[0]).Exec(context.Background(), client.Process{Argv: args[1:]}, client.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			return err
		}
		os.Exit(exit.Code)
	}
	return errors.New("unknown mode " + mode)
}

// forever waits for a signal that ends this process.
func forever() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	<-signals // bounded: the test that started this process kills it
	return errors.New("the end of forever")
}

// enter makes a container's mounts below root in this process's own namespace, and becomes its first process.
func enter(root, volume, agent string, argv []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"/usr", "/usr", "", unix.MS_BIND | unix.MS_REC},
		{"/dev", "/dev", "", unix.MS_BIND | unix.MS_REC},
		{volume, jobcontainer.Dir, "", unix.MS_BIND},
		{agent, jobcontainer.GuardDir, "", unix.MS_BIND},
		{"", jobcontainer.GuardDir, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{"proc", "/proc", "proc", 0},
	} {
		if err := unix.Mount(m.source, filepath.Join(root, m.target), m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := errors.Join(unix.Chroot(root), unix.Chdir("/"), unix.Unsetenv(modeEnv)); err != nil {
		return err
	}
	if user := os.Getenv(userEnv); user != "" {
		var uid, gid int
		if _, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil {
			return err
		}
		if err := errors.Join(syscall.Setgroups([]int{fsGroup}), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
			return err
		}
	}
	// What this test was started with is not passed on: in a container that a runtime starts, no signal is blocked.
	runtime.LockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, []string{"KUBERNETES_SERVICE_HOST=10.0.0.1"})
}

// requireRoot skips the test where there can be no namespaces. Whatever else is missing fails it.
func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root: containers are namespaces of this machine; run the tests with sudo")
	}
}

// pod is a volume that a runner holds, and its containers.
type pod struct {
	testing.TB
	dir  string // of the volume
	hold *volume.Hold
}

// newPod is a pod whose runner is this process.
func newPod(t testing.TB) *pod {
	t.Helper()
	p := unheldPod(t)
	hold, err := volume.Take(p.dir)
	require.NoError(t, err)
	p.hold = hold
	t.Cleanup(hold.Release)
	return p
}

func unheldPod(t testing.TB) *pod {
	t.Helper()
	requireRoot(t)
	p := &pod{TB: t, dir: tempDir(t)}
	require.NoError(t, os.Chown(p.dir, 0, fsGroup))
	require.NoError(t, os.Chmod(p.dir, os.ModeSetgid|0o777)) //nolint:gosec // as the kubelet makes it with fsGroup
	return p
}

// fsGroup of the pod.
const fsGroup = 1001

// tempDir is short: the path of a socket has at most 107 bytes.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "g")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *pod) socket(name string) string {
	return filepath.Join(p.dir, name, filepath.Base(jobcontainer.Socket(name)))
}

// container is one with a guard.
type container struct {
	*client.Client
	p    *pod
	name string
	root string
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
}

// lockedBuffer is a buffer for a command's output.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// add starts a container and waits for its guard.
func (p *pod) add(name string) *container {
	p.Helper()
	require.NoError(p, volume.Want(p.dir, name))
	c := p.begin(name)
	ctx, cancel := context.WithTimeout(p.Context(), await.Limit)
	defer cancel()
	require.NoError(p, c.Wait(ctx), c.log)
	return c
}

// asUser is the user of a container's first process; root without it.
func asUser(user string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, userEnv+"="+user) }
}

// withRoot changes the container's file system before it starts.
func withRoot(change func(root string)) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { change(cmd.Args[1]) }
}

const userEnv = "BULLPEN_GUARD_TEST_USER"

// begin starts a container as a container runtime does.
func (p *pod) begin(name string, options ...func(*exec.Cmd)) *container {
	p.Helper()
	c := &container{Client: client.New(p.socket(name)), p: p, name: name, root: tempDir(p), log: &lockedBuffer{}, done: make(chan struct{})}
	c.makeRoot()
	c.cmd = exec.Command(os.Args[0], append([]string{c.root, p.dir, filepath.Dir(agentBinary(p))}, jobcontainer.Command(name)...)...) //nolint:gosec // this program
	c.cmd.Env = append(os.Environ(), modeEnv+"=enter")
	for _, option := range options {
		option(c.cmd)
	}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setpgid: true}
	require.NoError(p, c.cmd.Start())
	go func() { defer close(c.done); _ = c.cmd.Wait() }()
	p.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		await.Receive(p, c.done, "the container is gone")
	})
	return c
}

// makeRoot makes the file system of an image: this machine's programs, and users of its own.
func (c *container) makeRoot() {
	t := c.p
	require.NoError(t, os.Chmod(c.root, 0o755)) //nolint:gosec // of a container
	for _, dir := range []string{"usr", "proc", "dev", "etc", "tmp", "home/builder", jobcontainer.Dir, jobcontainer.GuardDir} {
		require.NoError(t, os.MkdirAll(filepath.Join(c.root, dir), 0o755)) //nolint:gosec // of a container
	}
	require.NoError(t, os.Mkdir(filepath.Join(c.root, "root"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(c.root, "tmp"), os.ModeSticky|0o777)) //nolint:gosec // of a container
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		require.NoError(t, os.Symlink("usr/"+name, filepath.Join(c.root, name)))
	}
	for name, content := range map[string]string{
		"passwd":     "root:x:0:0:root:/root:/bin/sh\nbuilder:x:1500:1600:A builder:/home/builder:/bin/sh\n",
		"group":      "root:x:0:\nbuilders:x:1600:\naudio:x:63:builder,other\nvideo:x:44:builder\n",
		"hosts":      "127.0.0.1\tlocalhost\n",
		"os-release": "NAME=\"Test Linux\"\nID=test\nID_LIKE=\"debian ubuntu\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(c.root, "etc", name), []byte(content), 0o644)) //nolint:gosec // of a container
	}
}

// result is how a process ended, and what it wrote.
type result struct {
	client.Exit
	stdout, stderr string
}

// run runs a process in the foreground.
func (c *container) run(process client.Process) result {
	c.p.Helper()
	ctx, cancel := context.WithTimeout(c.p.Context(), await.Limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	exit, err := c.Exec(ctx, process, client.Streams{Stdout: &stdout, Stderr: &stderr})
	require.NoError(c.p, err, c.log)
	return result{exit, stdout.String(), stderr.String()}
}

// sh runs a shell script in the foreground.
func (c *container) sh(script string) result {
	c.p.Helper()
	return c.run(shell(script))
}

func shell(script string) client.Process { return client.Process{Argv: []string{"sh", "-c", script}} }

// at is a file of the container as this process sees it.
func (c *container) at(path string) string { return filepath.Join(c.root, path) }

// await waits until a file of the container has a content, and returns it.
func (c *container) await(path string) string {
	c.p.Helper()
	content := ""
	require.Eventually(c.p, func() bool {
		raw, err := os.ReadFile(c.at(path))
		content = strings.TrimSpace(string(raw))
		return err == nil && content != ""
	}, await.Limit, 5*time.Millisecond, "%s in the container", path)
	return content
}

// hostPIDs are the container's processes as this machine numbers them; the guard is the first.
func (c *container) hostPIDs() []int {
	pids := []int{c.cmd.Process.Pid}
	for i := 0; i < len(pids); i++ {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, task := range tasks {
			content, _ := os.ReadFile(task)
			for _, field := range strings.Fields(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// processes counts the container's processes besides the guard, zombies included.
func (c *container) processes() int { return len(c.hostPIDs()) - 1 }

// requireEmpty waits until nothing runs in the container but the guard.
func (c *container) requireEmpty() {
	c.p.Helper()
	require.Eventually(c.p, func() bool { return c.processes() == 0 }, await.Limit, 10*time.Millisecond, "nothing runs in the container any more")
}

// requireGone waits until the container has ended.
func (c *container) requireGone(why string) {
	c.p.Helper()
	await.Receive(c.p, c.done, why)
}

// alive says whether the container has not ended.
func (c *container) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// peak is the most memory that the guard has had, in bytes.
func (c *container) peak() int {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	require.NoError(c.p, err)
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			require.NoError(c.p, err)
			return n << 10
		}
	}
	require.Fail(c.p, "no peak of memory")
	return 0
}
