//go:build unix

package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/sandboxtest"
)

const patience = 20 * time.Second

// The test binary is also the shim, and a node agent that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shim" {
		if err := process.RunShim(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "listen" {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", os.Args[2])
		for err == nil {
			_, err = listener.Accept()
		}
		os.Exit(1)
	}
	if len(os.Args) >= 3 && os.Args[1] == "enter" {
		command := os.Args[3:]
		if len(command) > 0 {
			command = command[1:] // "--"
		}
		fmt.Fprintln(os.Stderr, process.RunEnter(os.Args[2], command))
		os.Exit(128)
	}
	if len(os.Args) == 4 && os.Args[1] == "agent" {
		agentThatIsKilled(os.Args[2], os.Args[3])
	}
	os.Exit(m.Run())
}

func open(t *testing.T, stateDir string) *process.Sandbox {
	sb, err := process.New(options(stateDir))
	require.NoError(t, err)
	return sb
}

func options(stateDir string) process.Options {
	return process.Options{StateDir: stateDir, ShimCommand: []string{os.Args[0], "shim"}}
}

// stateDir has a path that a shell takes as it is, which t.TempDir of a subtest has not.
func stateDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "bullpen-node-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := process.Cleanup(context.Background(), dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return dir
}

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID(uuid.NewString())}}
}

// machine remembers the process ids that it has seen: a container's directory is deleted with its record, and its processes must end too.
type machine struct {
	dir  string
	seen *sync.Map
}

func newMachine(t *testing.T) machine { return machine{stateDir(t), &sync.Map{}} }

func (m machine) Open(t *testing.T) sandbox.Sandbox { return open(t, m.dir) }

func (m machine) Make(_ *testing.T, _ *corev1.Pod, name string, b sandboxtest.Behaviour) sandbox.Container {
	script := fmt.Sprintf("exit %d", b.ExitCode)
	if b.Runs {
		script = `echo $$ > "$HOME/pid"; exec sleep 1000`
	}
	if b.Writes != "" {
		script = "echo " + b.Writes + "; " + script
	}
	if b.IgnoreTerminate {
		script = `trap '' TERM; ` + script
	}
	return sandbox.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
}

func (m machine) containerDir(uid, name string) string {
	return filepath.Join(m.dir, "pods", uid, "containers", name)
}

func (m machine) pid(uid, name string) int {
	if pid := readPID(filepath.Join(m.containerDir(uid, name), "home", "pid")); pid != 0 {
		m.seen.Store(uid+"/"+name, pid)
	}
	pid, _ := m.seen.Load(uid + "/" + name)
	known, _ := pid.(int)
	return known
}

func readPID(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	var pid int
	_, _ = fmt.Sscan(string(text), &pid)
	return pid
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	if pid <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

func (m machine) Settled(uid, name string) bool { return running(m.pid(uid, name)) }

// Lose kills the shim: it is the parent of the container's main process.
func (m machine) Lose(t *testing.T, uid, name string) {
	shim := parent(t, m.pid(uid, name))
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
}

func parent(t *testing.T, pid int) int {
	out, err := exec.CommandContext(await.Context(t), "ps", "-o", "ppid=", "-p", fmt.Sprint(pid)).Output()
	require.NoError(t, err)
	var ppid int
	_, err = fmt.Sscan(string(out), &ppid)
	require.NoError(t, err)
	require.Greater(t, ppid, 1)
	return ppid
}

func (m machine) Intrude(t *testing.T, ref sandbox.PodRef) func() bool {
	record := filepath.Join(m.dir, "pods", ref.UID, "pod.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(record), 0o700))
	data, err := json.Marshal(map[string]string{"uid": ref.UID, "namespace": ref.Namespace, "name": ref.Name, "owner": "somebody else"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, data, 0o600))
	return func() bool {
		_, err := os.Stat(record)
		return err == nil
	}
}

func (m machine) True() []string { return []string{"true"} }

func (m machine) Script(text string, code int) []string {
	return []string{"sh", "-c", `printf %s "$0" >&2; cat; exit "$1"`, text, fmt.Sprint(code)}
}

func (m machine) TerminalSize() []string {
	return []string{"sh", "-c", "while read -r line; do stty size; done"}
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Machine { return newMachine(t) })
}

// run runs one container to its end and returns its exit and its output.
func run(t *testing.T, sb *process.Sandbox, c sandbox.Container) (sandbox.Exit, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pod := newPod()
	c.Name = "main"
	require.NoError(t, sb.Prepare(ctx, pod))
	require.NoError(t, sb.Start(ctx, pod, c))
	exit, err := sb.Wait(ctx, string(pod.UID), "main")
	require.NoError(t, err)
	log, err := os.ReadFile(sb.LogFile(string(pod.UID), "main"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return exit, string(log)
}

func sh(script string, args ...string) sandbox.Container {
	return sandbox.Container{Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
}

func TestContainerSeesNothingOfTheAgentsEnvironment(t *testing.T) {
	t.Setenv("AGENTS_OWN_SECRET", "s3cret")
	dir := stateDir(t)
	c := sh("env; pwd; echo to-stderr >&2")
	c.Env = []sandbox.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}, {Name: "BULLPEN_SANDBOX", Value: "forged"}}
	exit, log := run(t, open(t, dir), c)
	require.Zero(t, exit.Code, log)
	require.NotContains(t, log, "s3cret")
	require.Contains(t, log, "\nA=2\n")
	require.Contains(t, log, "to-stderr")
	require.NotContains(t, log, "forged")
	require.Regexp(t, `HOME=`+dir+`/pods/[^/]+/containers/main/home\n`, log)
	require.Regexp(t, `TMPDIR=`+dir+`/pods/`, log)
	require.Regexp(t, `(?m)^`+dir+`/pods/[^/]+/containers/main/home$`, log, "the default working folder")
}

// A power failure may cut a pod's record short. What else is in its directory, such as the environment of its containers, goes all the same.
func TestRemove_NODE2_APodWhoseRecordCannotBeRead(t *testing.T) {
	for name, damage := range map[string]func(record string) error{
		"empty":   func(record string) error { return os.Truncate(record, 0) },
		"missing": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m := newMachine(t)
			sb := m.Open(t)
			pod, other := newPod(), newPod()
			for _, p := range []*corev1.Pod{pod, other} {
				require.NoError(t, sb.Prepare(ctx, p))
				require.NoError(t, sb.Start(ctx, p, m.Make(t, p, "main", sandboxtest.Behaviour{Runs: true})))
				require.Eventually(t, func() bool { return m.Settled(string(p.UID), "main") }, patience, 5*time.Millisecond)
			}
			uid := string(pod.UID)
			pid, shim := m.pid(uid, "main"), parent(t, m.pid(uid, "main"))
			require.NoError(t, damage(filepath.Join(m.dir, "pods", uid, "pod.json")))
			for _, none := range []string{"", ".", "..", "../pods/" + uid} {
				require.NoError(t, sb.Remove(ctx, none))
			}
			require.True(t, running(pid))
			require.NoError(t, sb.Remove(ctx, uid))
			require.False(t, running(pid))
			require.False(t, running(shim))
			require.NoDirExists(t, filepath.Join(m.dir, "pods", uid))
			require.NoDirExists(t, filepath.Join(m.dir, "removing", uid))
			require.NoError(t, sb.Remove(ctx, uid))
			require.True(t, m.Settled(string(other.UID), "main"), "another pod runs on")
			require.NoError(t, sb.Remove(ctx, string(other.UID)))
		})
	}
}

func TestPathsOfMountsBecomeHostFolders(t *testing.T) {
	dir := stateDir(t)
	volume := filepath.Join(dir, "volume")
	require.NoError(t, os.Mkdir(volume, 0o700))
	c := sh(`pwd; echo "$FILE $1"; echo hello > /shared/out; echo "/shared-not"`, "/shared/arg")
	c.Mounts = []sandbox.Mount{{MountPath: "/shared", HostPath: volume}}
	c.Env = []sandbox.EnvVar{{Name: "FILE", Value: "/shared/file"}}
	c.WorkingDir = "/shared/work"
	exit, log := run(t, open(t, dir), c)
	require.Zero(t, exit.Code, log)
	require.Equal(t, fmt.Sprintf("%[1]s/work\n%[1]s/file %[1]s/arg\n/shared-not\n", volume), log)
	out, err := os.ReadFile(filepath.Join(volume, "out"))
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(out))
}

func TestCommandThatCannotBeExecutedIsAnExit(t *testing.T) {
	sb := open(t, stateDir(t))
	for _, command := range []string{"no-such-program", "/no/such/program", "/etc/hostname"} {
		exit, _ := run(t, sb, sandbox.Container{Command: []string{command}})
		require.Equal(t, int32(128), exit.Code)
		require.Equal(t, "StartError", exit.Reason)
		require.Contains(t, exit.Message, command)
	}
}

func TestBullpenItselfIsInThePath(t *testing.T) {
	exit, log := run(t, open(t, stateDir(t)), sh("command -v bullpen"))
	require.Zero(t, exit.Code)
	require.Regexp(t, `/bin/bullpen\n$`, log)
}

func TestBadSpecificationsAreRefusedWithASentence(t *testing.T) {
	sb := open(t, stateDir(t))
	pod := newPod()
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	var invalid *sandbox.InvalidError
	require.ErrorAs(t, sb.Admit(pod), &invalid)
	require.Equal(t, "CreateContainerConfigError", invalid.Reason)
	require.Contains(t, invalid.Message, `container "c" has no command`)

	pod.Spec.Containers = []corev1.Container{{Name: "c", Command: []string{"true"}, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "//"}}}}
	require.ErrorAs(t, sb.Admit(pod), &invalid)

	require.NoError(t, sb.Prepare(t.Context(), pod))
	err := sb.Start(t.Context(), pod, sandbox.Container{Name: "c", Command: []string{"true"}, WorkingDir: "/no/such/folder"})
	require.ErrorAs(t, err, &invalid)
	state, err := sb.Inspect(t.Context(), string(pod.UID))
	require.NoError(t, err)
	require.Empty(t, state.Containers, "nothing stays on record, so that it may be tried again")

	_, err = process.New(process.Options{StateDir: "/tmp/with space"})
	require.ErrorContains(t, err, "absolute path of letters")
}

func TestWhatAContainerLeavesRunningEndsWithIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("setsid is a program of Linux's")
	}
	dir := stateDir(t)
	sb := open(t, dir)
	file := filepath.Join(dir, "left-over")
	exit, log := run(t, sb, sh(`setsid sh -c 'echo $$ > "$0"; exec sleep 1000' "$1" & while [ ! -s "$1" ]; do sleep 0.01; done; exit 5`, file))
	require.Equal(t, int32(5), exit.Code, log)
	require.NotZero(t, readPID(file))
	require.False(t, running(readPID(file)), "a daemon in a session of its own")
}

// agentThatIsKilled starts a container and says so; then it waits for its end.
func agentThatIsKilled(stateDir, uid string) {
	ctx := context.Background()
	sb, err := process.New(options(stateDir))
	if err != nil {
		panic(err)
	}
	pod := newPod()
	pod.UID = types.UID(uid)
	if err := sb.Prepare(ctx, pod); err != nil {
		panic(err)
	}
	c := sh(`echo $$ > "$HOME/pid"; while [ ! -e "$HOME/stop" ]; do sleep 0.01; done; exit 42`)
	c.Name = "main"
	if err := sb.Start(ctx, pod, c); err != nil {
		panic(err)
	}
	fmt.Println("started")
	_, _ = sb.Wait(ctx, uid, "main")
}

func TestAgent_NODE3_KillNineStopsNothingAndTheExitCodeIsKnown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := newMachine(t)
	uid := uuid.NewString()
	agent := exec.CommandContext(ctx, os.Args[0], "agent", m.dir, uid)
	// A signal that kills an agent may go to its whole process group.
	agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := agent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, agent.Start())
	var word string
	_, err = fmt.Fscan(stdout, &word)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-agent.Process.Pid, syscall.SIGKILL))
	require.Error(t, agent.Wait())

	next := open(t, m.dir)
	require.Eventually(t, func() bool { return m.Settled(uid, "main") }, patience, 5*time.Millisecond)
	state, err := next.Inspect(ctx, uid)
	require.NoError(t, err)
	require.Nil(t, state.Containers[0].Exit)
	require.NoError(t, os.WriteFile(filepath.Join(m.containerDir(uid, "main"), "home", "stop"), nil, 0o600))
	exit, err := next.Wait(ctx, uid, "main")
	require.NoError(t, err)
	require.Equal(t, int32(42), exit.Code)
	require.False(t, exit.Unknown)
}

func TestCleanupEndsEverythingAndNothingElse(t *testing.T) {
	m, other := newMachine(t), newMachine(t)
	var pids []int
	for _, mm := range []machine{m, other} {
		sb := open(t, mm.dir)
		pod := newPod()
		c := mm.Make(t, pod, "main", sandboxtest.Behaviour{Runs: true, IgnoreTerminate: true})
		require.NoError(t, sb.Prepare(t.Context(), pod))
		require.NoError(t, sb.Start(t.Context(), pod, c))
		require.Eventually(t, func() bool { return mm.Settled(string(pod.UID), "main") }, patience, 5*time.Millisecond)
		pids = append(pids, mm.pid(string(pod.UID), "main"))
	}
	unlock, err := process.Lock(m.dir)
	require.NoError(t, err)
	_, err = process.Cleanup(t.Context(), m.dir)
	require.ErrorIs(t, err, process.ErrInUse)
	require.True(t, running(pids[0]))
	unlock()

	n, err := process.Cleanup(t.Context(), m.dir)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.False(t, running(pids[0]))
	require.True(t, running(pids[1]), "the pods of another state folder")
	n, err = process.Cleanup(t.Context(), filepath.Join(m.dir, "never-was"))
	require.NoError(t, err)
	require.Zero(t, n)
}
