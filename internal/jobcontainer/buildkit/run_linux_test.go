package buildkit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 30 * time.Second

// TestMain is the agent when a test starts it as that, and the daemon of which the agent becomes the program.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "buildkit" && os.Args[2] == "--exec":
		fmt.Fprintln(os.Stderr, Exec(os.Args[4:]))
		os.Exit(1)
	case len(os.Args) > 1 && os.Args[1] == "--addr":
		serveAsDaemon(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "dockerfile":
		serveConnections(os.Args[1:])
	default:
		os.Exit(m.Run())
	}
}

// serveAsDaemon takes its socket over as sd_listen_fds(3) says, and writes its PID and arguments to every connection. It exits when it reads
// "exit", and at once if the file "broken" is in its root.
func serveAsDaemon(args []string) {
	root := args[2]
	if _, err := os.Stat(filepath.Join(root, "..", "broken")); err == nil {
		os.Exit(3)
	}
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		os.Exit(4)
	}
	serveConnections(args)
}

func serveConnections(args []string) {
	listener, err := net.FileListener(os.NewFile(listenDescriptor, "socket"))
	if err != nil {
		os.Exit(5)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(6)
		}
		fmt.Fprintf(conn, "%d %s\n", os.Getpid(), strings.Join(args, " "))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		if line == "exit\n" {
			os.Exit(7)
		}
	}
}

// running is a Run with its volume.
type running struct {
	testing.TB
	o    Options
	hold *volume.Hold
	done chan error
	stop context.CancelFunc
}

func start(t *testing.T, o Options) *running {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	o.JobDir, o.Socket, o.StateDir, o.Root = dir, filepath.Join(dir, "buildkitd.sock"), filepath.Join(dir, "state"), filepath.Join(dir, "root")
	require.NoError(t, os.Mkdir(o.Root, 0o700))
	require.NoError(t, os.Chmod(o.Root, os.ModeSetgid|0o770)) // as a kubelet leaves it with fsGroup
	o.UIDMap = filepath.Join(dir, "uid_map")
	require.NoError(t, os.WriteFile(o.UIDMap, []byte("0 2947153920 65536\n"), 0o600))
	if o.Program == "" {
		o.Program = self
	}
	if o.ActionsSocket != "" {
		o.ActionsSocket = filepath.Join(dir, o.ActionsSocket)
	}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Self, o.Storage, o.Backoff = self, 30_000_000_000, time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	r := &running{TB: t, o: o, done: make(chan error, 1), stop: stop}
	t.Cleanup(func() {
		stop()
		r.release()
		await.Return(t, func() {
			for range r.done { // until it is closed
			}
		}, "its daemon ends, too: go test waits for all that has its output")
	})
	go func() {
		defer close(r.done)
		r.done <- Run(ctx, o)
	}()
	return r
}

func (r *running) take() {
	hold, err := volume.Take(r.o.JobDir)
	require.NoError(r, err)
	r.hold = hold
}

func (r *running) release() {
	if r.hold != nil {
		r.hold.Release()
		r.hold = nil
	}
}

// use connects, says something, and returns what the daemon wrote.
func (r *running) use(say string) (pid int, args string) { return r.useAt(r.o.Socket, say) }

func (r *running) useAt(socket, say string) (pid int, args string) {
	conn := r.dialAt(socket)
	defer func() { _ = conn.Close() }()
	_, err := io.WriteString(conn, say+"\n")
	require.NoError(r, err)
	text, err := io.ReadAll(conn)
	require.NoError(r, err)
	first, args, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	pid, err = strconv.Atoi(first)
	require.NoError(r, err, string(text))
	return pid, args
}

func (r *running) dial() net.Conn { return r.dialAt(r.o.Socket) }

func (r *running) dialAt(socket string) net.Conn {
	var conn net.Conn
	require.Eventually(r, func() bool {
		var err error
		conn, err = (&net.Dialer{}).DialContext(r.Context(), "unix", socket)
		return err == nil
	}, patience, 5*time.Millisecond)
	require.NoError(r, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func TestRun_StartsTheDaemonAtItsFirstUseAndAgainAfterItsExit(t *testing.T) {
	r := start(t, Options{Shortest: 1})
	r.take()
	first, args := r.use("hello")
	root := filepath.Join(r.o.Root, "buildkit")
	require.Contains(t, args, "fd:// --root "+root)
	info, err := os.Stat(root)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
	require.Contains(t, args, "--oci-worker-binary "+filepath.Join(r.o.StateDir, RuncName))
	require.Contains(t, args, "--oci-worker-gc-keepstorage 10000,0,20000", "in megabytes; a third is for what one build needs")
	target, err := os.Readlink(filepath.Join(r.o.StateDir, RuncName))
	require.NoError(t, err)
	require.Equal(t, r.o.Self, target)
	same, _ := r.use("exit")
	require.Equal(t, first, same, "one daemon for all builds")
	again, _ := r.use("hello")
	require.NotEqual(t, first, again)
}

// What makes containers of actions is another program, with a socket of its own: one does not start, or end, with the other.
func TestRun_StartsTheBuilderOfActionsByItself(t *testing.T) {
	r := start(t, Options{ActionsSocket: "actions.sock", Program: "/nonexistent", Shortest: 1})
	r.take()
	first, args := r.useAt(r.o.ActionsSocket, "hello")
	require.Equal(t, strings.Join([]string{"dockerfile", "--root", filepath.Join(r.o.Root, "actions"), "--buildkit", r.o.Socket, "--runc", filepath.Join(r.o.StateDir, RuncName)}, " "), args)
	r.useAt(r.o.ActionsSocket, "exit")
	again, _ := r.useAt(r.o.ActionsSocket, "hello")
	require.NotEqual(t, first, again)
	r.release()
	require.NoError(t, await.Result(r.done, "it ends with the runner"))
	require.NoFileExists(t, r.o.ActionsSocket)
}

func TestRun_AnIdleRunnerHasNoDaemon(t *testing.T) {
	r := start(t, Options{Program: "/nonexistent"})
	r.take()
	require.Eventually(t, func() bool { _, err := os.Stat(r.o.Socket); return err == nil }, patience, 5*time.Millisecond)
	r.release()
	require.NoError(t, await.Result(r.done, "it ends with the runner, which used nothing"))
}

func TestRun_JOB2_EndsWithTheRunnerAndNotBySignal(t *testing.T) {
	r := start(t, Options{})
	r.take()
	pid, _ := r.use("hello")
	r.stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	same, _ := r.use("hello")
	require.Equal(t, pid, same, "a pod is being deleted while its job builds")
	r.release()
	require.NoError(t, await.Result(r.done, "it ends with the runner"))
	require.NoFileExists(t, r.o.Socket)
}

// The runner may have ended before this container has started.
func TestRun_JOB2_EndsAfterARunnerThatItHasNotSeen(t *testing.T) {
	dir := t.TempDir()
	hold, err := volume.Take(dir)
	require.NoError(t, err)
	hold.Release()
	users := filepath.Join(dir, "uid_map")
	require.NoError(t, os.WriteFile(users, []byte("0 2947153920 65536\n"), 0o600))
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), Options{
			JobDir: dir, Socket: filepath.Join(dir, "s"), Root: dir, StateDir: filepath.Join(dir, "state"), Storage: 1, UIDMap: users, Settle: time.Millisecond,
		})
	}()
	require.NoError(t, await.Result(done, "it ends"))
}

func TestRun_EndsBeforeThereIsARunner(t *testing.T) {
	r := start(t, Options{})
	r.stop()
	require.NoError(t, await.Result(r.done, "TERM"))
}

// A client would wait for ever for a daemon that does not start.
func TestRun_EndsConnectionsToADaemonThatDoesNotStart(t *testing.T) {
	for name, program := range map[string]string{"no program": "/nonexistent", "it exits": ""} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Options{Program: program})
			broken := filepath.Join(r.o.Root, "broken")
			require.NoError(t, os.WriteFile(broken, nil, 0o600))
			r.take()
			for range 2 {
				conn := r.dial()
				_, err := io.ReadAll(conn)
				require.False(t, os.IsTimeout(err), "the connection ends: %v", err)
				require.NoError(t, conn.Close())
			}
			if program != "" {
				return
			}
			require.NoError(t, os.Remove(broken))
			require.Eventually(t, func() bool {
				conn := r.dial()
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "hello\n")
				text, _ := io.ReadAll(conn)
				return len(text) > 0
			}, patience, 5*time.Millisecond, "and starts when it can")
		})
	}
}

func TestRun_NET7_RefusesToBeRootOfTheNode(t *testing.T) {
	dir := t.TempDir()
	users := func(text string) string {
		file := filepath.Join(dir, "uid_map")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	o := Options{JobDir: dir, Socket: filepath.Join(dir, "s"), Root: dir, StateDir: filepath.Join(dir, "state"), Storage: 1}
	for _, text := range []string{"         0          0 4294967295\n", "", "0 0 65536"} {
		o.UIDMap = users(text)
		require.ErrorIs(t, Run(t.Context(), o), ErrHostUsers, "%q", text)
	}
	o.UIDMap = users("         0 2947153920      65536\n")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, Run(ctx, o))
}

func TestRuncArguments(t *testing.T) {
	for args, want := range map[string]string{
		"--log /l --log-format json run --bundle /b --keep id": "--log /l --log-format json run --no-new-keyring --no-pivot --bundle /b --keep id",
		"--debug --root run create id":                         "--debug --root run create --no-new-keyring --no-pivot id",
		"--log run exec --process p run":                       "--log run exec --process p run",
		"delete run":                                           "delete run",
		"--version":                                            "--version",
		"":                                                     "",
	} {
		require.Equal(t, want, strings.Join(runcArguments(strings.Fields(args)), " "), args)
	}
}
