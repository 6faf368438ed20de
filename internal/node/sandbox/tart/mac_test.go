//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/kit/sandboxtest"
)

const (
	patience  = 60 * time.Second
	testImage = "registry.example.com/macos/base:15"
)

// programs is the binary of testdata/mac.
var programs string

func TestMain(m *testing.M) {
	if len(os.Args) == 7 && os.Args[1] == "agent-killed-at" {
		agentKilledAt(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	}
	dir, err := os.MkdirTemp("", "bullpen-mac-")
	if err == nil {
		programs = filepath.Join(dir, "mac")
		err = gobuild.Build(programs, "./testdata/mac")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// mac is a fake Mac: the node agent's state directory and Tart's home.
type mac struct {
	t    *testing.T
	dir  string
	seen *sync.Map // pids of guests' commands, by pod
}

func newMac(t *testing.T) mac {
	t.Helper()
	dir, err := os.MkdirTemp("", "bullpen-tart-")
	require.NoError(t, err)
	m := mac{t, dir, &sync.Map{}}
	require.NoError(t, os.MkdirAll(m.home(), 0o700))
	m.script(tart.Script{})
	t.Cleanup(func() {
		if _, err := Cleanup(context.Background(), m.options()); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return m
}

func (m mac) home() string  { return filepath.Join(m.dir, "tart") }
func (m mac) state() string { return filepath.Join(m.dir, "state") }

func (m mac) script(s tart.Script) {
	m.t.Helper()
	err := tart.Write(m.home(), s)
	for range 100 { // a command that is under way may write into what is being replaced
		if err == nil {
			break
		}
		err = tart.Write(m.home(), s)
	}
	require.NoError(m.t, err)
}

// options are of an agent that is in a hurry.
func (m mac) options() Options {
	opts := fastOptions(m.dir, programs)
	if os.Getenv("TART_TEST_LOG") != "" {
		opts.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return opts
}

func fastOptions(dir, programs string) Options {
	return Options{
		StateDir: filepath.Join(dir, "state"), ShimCommand: []string{programs, "shim"}, Binary: programs,
		Tart: []string{programs, "tart"}, TartHome: filepath.Join(dir, "tart"), Launchctl: []string{programs, "launchctl"}, Kickstart: []string{programs, "launchctl"},
		Processes: []string{programs, "ps"},
		// A start that Tart refuses must be seen before it counts as one that has stayed up, however long a process takes to exit here.
		StayUp: time.Hour, SlotPatience: 50 * time.Millisecond, SessionPatience: 2 * time.Second, GuestRetry: 50 * time.Millisecond,
		LookEvery: 10 * time.Millisecond, RefreshEvery: time.Hour, StopGrace: time.Second,
	}
}

// open is a new life of the node agent.
func (m mac) open(change ...func(*Options)) *Sandbox {
	m.t.Helper()
	opts := m.options()
	for _, f := range change {
		f(&opts)
	}
	s, err := New(opts)
	require.NoError(m.t, err)
	m.t.Cleanup(s.Close)
	return s
}

func (m mac) Open(*testing.T) sandbox.Sandbox { return m.open() }

func (m mac) ContainerName() string { return runnerpod.ContainerRunner }

// newPod is a runner pod whose guest runs a shell script.
func (m mac) newPod(script string) (*corev1.Pod, sandbox.Container) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID(uuid.NewString())}}
	return pod, m.fill(pod, script)
}

func (m mac) fill(pod *corev1.Pod, script string) sandbox.Container {
	m.t.Helper()
	c, err := fill(m.dir, pod, script)
	require.NoError(m.t, err)
	return c
}

// fill makes a runner pod of a pod that has a UID, and what it finds on the host.
func fill(dir string, pod *corev1.Pod, script string) (sandbox.Container, error) {
	shape := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	pod.Spec = corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: runnerpod.VolumeShared, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: runnerpod.VolumeWork, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{{
			Name: runnerpod.ContainerRunner, Image: testImage, Command: []string{"sh", "-c", script},
			Resources: corev1.ResourceRequirements{Limits: shape},
			VolumeMounts: []corev1.VolumeMount{
				{Name: runnerpod.VolumeShared, MountPath: runnerpod.MountShared}, {Name: runnerpod.VolumeWork, MountPath: runnerpod.MountWork},
			},
		}},
	}
	c := pod.Spec.Containers[0]
	shared := filepath.Join(dir, "volumes", string(pod.UID), "shared")
	err := os.MkdirAll(shared, 0o700)
	if err == nil {
		err = os.Symlink(programs, filepath.Join(shared, guestshare.FileAgent))
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return sandbox.Container{
		Name: c.Name, Image: c.Image, Command: c.Command, Resources: c.Resources, WorkingDir: runnerpod.MountWork,
		Env: []sandbox.EnvVar{{Name: runnerpod.EnvSharedDir, Value: runnerpod.MountShared}, {Name: "GREETING", Value: "hello"}},
		Mounts: []sandbox.Mount{
			{MountPath: runnerpod.MountShared, HostPath: shared}, {MountPath: runnerpod.MountWork, HostPath: filepath.Join(dir, "volumes", string(pod.UID), "work")},
		},
	}, err
}

func (m mac) Make(_ *testing.T, pod *corev1.Pod, _ string, b sandboxtest.Behaviour) sandbox.Container {
	script := fmt.Sprintf("exit %d", b.ExitCode)
	if b.Runs {
		script = runs
	}
	if b.Writes != "" {
		script = "echo " + b.Writes + "; " + script
	}
	if b.IgnoreTerminate {
		script = `trap '' TERM; ` + script
	}
	return m.fill(pod, script)
}

// runs tells its process id, and stays.
const runs = `echo $$ > "$BULLPEN_STATUS_DIR/pid"; exec sleep 1000`

func (m mac) status(uid string) string { return filepath.Join(m.state(), "vms", uid, "status") }

func (m mac) pid(uid string) int {
	var pid int
	if text, err := os.ReadFile(filepath.Join(m.status(uid), "pid")); err == nil {
		_, _ = fmt.Sscan(string(text), &pid)
		m.seen.Store(uid, pid)
	}
	if known, ok := m.seen.Load(uid); ok {
		return known.(int)
	}
	return 0
}

func (m mac) Settled(uid, _ string) bool { return running(m.pid(uid)) }

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	if pid <= 1 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

// holder is the process of `tart run`, 0 if there is none.
func (m mac) holder(vm string) int {
	client, err := tartcli.New(tartcli.Options{Command: []string{programs, "tart"}, Home: m.home()})
	require.NoError(m.t, err)
	pid, _ := client.Holder(vm)
	return pid
}

func (m mac) owner() string {
	owner, err := os.ReadFile(filepath.Join(m.state(), "owner"))
	require.NoError(m.t, err)
	return strings.TrimSpace(string(owner))
}

func (m mac) vm(uid string) string { return runnerName(m.owner(), uid) }

// Lose kills the shim: it is the parent of `tart run`.
func (m mac) Lose(t *testing.T, uid, _ string) {
	out, err := exec.CommandContext(await.Context(t), "ps", "-o", "ppid=", "-p", fmt.Sprint(m.holder(m.vm(uid)))).Output()
	require.NoError(t, err)
	var shim int
	_, err = fmt.Sscan(string(out), &shim)
	require.NoError(t, err)
	require.Greater(t, shim, 1)
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
}

// tart calls the fake.
func (m mac) tart(args ...string) {
	m.t.Helper()
	cmd := exec.CommandContext(await.Context(m.t), programs, append([]string{"tart"}, args...)...)
	cmd.Env = append(os.Environ(), "TART_HOME="+m.home())
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, string(out))
}

// vms are the machines that there are.
func (m mac) vms() []string {
	entries, _ := os.ReadDir(filepath.Join(m.home(), "vms"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// runners are those that are no golden base.
func (m mac) runners() []string {
	var names []string
	for _, name := range m.vms() {
		if !strings.Contains(name, goldenInfix) {
			names = append(names, name)
		}
	}
	return names
}

func (m mac) Intrude(_ *testing.T, ref sandbox.PodRef) func() bool {
	name := m.vm(ref.UID)
	m.tart("clone", testImage, name)
	return func() bool {
		_, err := os.Stat(filepath.Join(m.home(), "vms", name, "config.json"))
		return err == nil
	}
}

func (m mac) True() []string { return []string{"true"} }

func (m mac) Script(text string, code int) []string {
	return []string{"sh", "-c", `printf %s "$0" >&2; cat; exit "$1"`, text, fmt.Sprint(code)}
}

func (m mac) TerminalSize() []string {
	return []string{"sh", "-c", "while read -r line; do stty size; done"}
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Machine { return newMac(t) })
}

// start brings a pod's machine up.
func (m mac) start(s *Sandbox, script string) *corev1.Pod {
	m.t.Helper()
	pod, c := m.newPod(script)
	require.NoError(m.t, s.Prepare(m.t.Context(), pod))
	require.NoError(m.t, s.Start(m.t.Context(), pod, c))
	return pod
}

func (m mac) wait(s *Sandbox, pod *corev1.Pod) sandbox.Exit {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	exit, err := s.Wait(ctx, string(pod.UID), runnerpod.ContainerRunner)
	require.NoError(m.t, err)
	return exit
}
