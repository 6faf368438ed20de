package jobcontainers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// runnerUser is the user of the runner's image, and the pod's fsGroup.
const runnerUser = 1001

var compiled struct {
	once sync.Once
	dir  string
	err  error
}

// stopBackend is called after all tests.
var stopBackend = func() {}

// runTests runs the tests, and removes the programs that they have compiled.
func runTests(m *testing.M) int {
	defer func() { _ = os.RemoveAll(compiled.dir) }()
	defer func() { stopBackend() }()
	return m.Run()
}

const architecture = runtime.GOARCH

// program is one of the compiled: bullpen-agent and row.
func program(t *testing.T, name string) string {
	t.Helper()
	compiled.once.Do(func() {
		if compiled.dir, compiled.err = os.MkdirTemp("", "jobcontainers"); compiled.err != nil {
			return
		}
		const module = "github.com/bullpen-ci/bullpen/"
		compiled.err = errors.Join(gobuild.Build(filepath.Join(compiled.dir, "bullpen-agent"), module+"cmd/bullpen-agent"),
			gobuild.Build(filepath.Join(compiled.dir, "row"), module+"test/jobcontainers/row"))
	})
	require.NoError(t, compiled.err)
	return filepath.Join(compiled.dir, name)
}

// processes is the back end that makes namespaces of this machine. Its images have the machine's own programs.
type processes struct{}

// processPod is a pod of it: one network namespace, the volumes as directories, one hosts file.
type processPod struct {
	dir     string // of everything
	images  map[string]Image
	program string // row
	broker  *broker
	hold    *volume.Hold // the supervisor's

	mu         sync.Mutex
	containers []*processContainer
	starts     sync.WaitGroup
}

type processContainer struct {
	name    string
	command *exec.Cmd
	log     *buffer
	done    chan struct{} // closed when its first process has ended
}

// Start starts a pod. Its containers end when the lock is released, and are killed at last.
func (processes) Start(t *testing.T, images ...Image) Pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces take root")
	}
	dir, err := os.MkdirTemp("", "pod") // short: a socket's path has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	p := &processPod{dir: dir, images: map[string]Image{}, program: program(t, "row")}
	for _, image := range images {
		p.images[image.Name] = image
	}
	for _, volume := range []string{"job", "guard", "work", "github", "externals", "courier", "runner"} {
		require.NoError(t, os.Mkdir(p.at(volume), 0o755))
		require.NoError(t, os.Chown(p.at(volume), 0, runnerUser))
		require.NoError(t, os.Chmod(p.at(volume), 0o777|os.ModeSetgid)) // as a kubelet makes an emptyDir with an fsGroup
	}
	// A link instead of a copy: a process that is started in parallel inherits the open file, and a program that is open for writing cannot be executed.
	require.NoError(t, os.Link(program(t, "bullpen-agent"), filepath.Join(p.at("guard"), filepath.Base(jobcontainer.Binary))))
	require.NoError(t, os.WriteFile(p.at("hosts"), []byte(hostsFile), 0o644))
	_, err = netns.Ensure(p.at("net"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, netns.Remove(p.at("net"))) })
	require.NoError(t, netns.WithHandle(p.at("net"), func(handle *netlink.Handle) error {
		loopback, err := handle.LinkByName("lo")
		if err != nil {
			return err
		}
		return handle.LinkSetUp(loopback)
	}))
	p.hold, err = volume.Take(p.at("job"))
	require.NoError(t, err)
	p.prepareRunner(t)
	p.broker = startBroker(t, p)
	t.Cleanup(func() { p.stop(t) })
	return p
}

// hostsFile is as a kubelet writes it at each container's start.
const hostsFile = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.0.0.7\trunner-7\n"

func (p *processPod) at(names ...string) string {
	return filepath.Join(append([]string{p.dir}, names...)...)
}

// prepareRunner makes what GitHub's runner has made before it starts the hook.
func (p *processPod) prepareRunner(t *testing.T) {
	t.Helper()
	for _, name := range []string{"work/_temp/_runner_hook_responses", "work/_temp/_github_home", "work/_temp/_github_workflow", "work/_temp/_runner_file_commands",
		"work/_actions", "work/_tool", "work/app/app", "runner/_diag"} {
		require.NoError(t, os.MkdirAll(p.at(name), 0o755))
		for dir := p.at(name); len(dir) > len(p.dir)+1; dir = filepath.Dir(dir) {
			if filepath.Dir(dir) != p.dir {
				require.NoError(t, os.Chown(dir, runnerUser, runnerUser))
			}
		}
	}
	script := "#!/bin/sh\nexec " + runnerAgent + " container-hook\n"
	require.NoError(t, os.WriteFile(p.at("runner", "hook.sh"), []byte(script), 0o755))
}

// stop is the end of the runner: guards end by themselves, and the test fails if one does not (JOB-2).
func (p *processPod) stop(t *testing.T) {
	p.hold.Release()
	await.Return(t, p.starts.Wait, "the containers' starts return")
	for _, c := range p.list() {
		select {
		case <-c.done:
		case <-time.After(10 * time.Second):
			t.Errorf("container %s has not ended after its runner", c.name)
			_ = c.command.Process.Kill()
			<-c.done // bounded: its first process was killed
		}
		if t.Failed() {
			t.Logf("log of container %s:\n%s", c.name, c.log.String())
		}
	}
}

func (p *processPod) list() []*processContainer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*processContainer{}, p.containers...)
}

func (p *processPod) find(name string) *processContainer {
	for _, c := range p.list() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// Containers are the names of what was started.
func (p *processPod) Containers() []string {
	var names []string
	for _, c := range p.list() {
		names = append(names, c.name)
	}
	return names
}

// Alive says whether its first process exists.
func (p *processPod) Alive(container string) bool {
	c := p.find(container)
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Kill kills all processes of a container.
func (p *processPod) Kill(t *testing.T, container string) {
	t.Helper()
	c := p.find(container)
	require.NotNil(t, c, "a container %s", container)
	require.NoError(t, c.command.Process.Kill())
	await.Receive(t, c.done, "the container is gone")
}

// LimitsMemory skips the row.
func (p *processPod) LimitsMemory(t *testing.T) {
	t.Skip("nothing limits the memory of namespaces alone")
}

// Explain says why a container has ended.
func (p *processPod) Explain(t *testing.T, failure letter.Failure) {
	t.Helper()
	require.NoError(t, p.broker.fail(failure))
}

// Requests are what the broker was asked.
func (p *processPod) Requests() []jobcontainer.Request { return p.broker.asked() }

// addContainer starts a container as a kubelet does: the hosts file is written again, and the guard is its first process.
func (p *processPod) addContainer(name string, image Image) error {
	root := p.at("root-" + name)
	if err := p.makeRoot(root, image); err != nil {
		return err
	}
	if err := os.WriteFile(p.at("hosts"), []byte(hostsFile), 0o644); err != nil {
		return err
	}
	r := room{
		Root: root, Dir: "/", Argv: jobcontainer.Command(name), Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, image.Config.Env...),
		Mounts: append(p.volumes(), mount{Source: p.at("guard"), Target: jobcontainer.GuardDir, ReadOnly: true}, mount{Source: p.program, Target: Program, ReadOnly: true}),
	}
	declared, err := p.declaredVolumes(root, image)
	if err != nil {
		return err
	}
	r.Mounts = append(r.Mounts, declared...)
	if image.NonRoot {
		r.User, r.Groups = runnerUser, []int{runnerUser} // the group is 0 unless the pod has another
	}
	if !image.Bare {
		r.Mounts = append(r.Mounts, mount{Source: "/usr", Target: "/usr", ReadOnly: true}, mount{Source: "/etc/alternatives", Target: "/etc/alternatives", ReadOnly: true})
	}
	command, err := r.command(syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC)
	if err != nil {
		return err
	}
	c := &processContainer{name: name, command: command, log: &buffer{}, done: make(chan struct{})}
	command.Stdout, command.Stderr = c.log, c.log
	command.WaitDelay = 5 * time.Second
	if err := startIn(p.at("net"), command); err != nil {
		return err
	}
	p.mu.Lock()
	p.containers = append(p.containers, c)
	p.mu.Unlock()
	p.starts.Add(1)
	go func() {
		defer p.starts.Done()
		_ = command.Wait()
		close(c.done)
	}()
	return nil
}

// declaredVolumes are directories of the runtime, one container's each.
func (p *processPod) declaredVolumes(root string, image Image) ([]mount, error) {
	var mounts []mount
	for _, target := range image.Config.Volumes {
		source := root + "-" + strings.ReplaceAll(target[1:], "/", "-")
		for _, dir := range []string{source, filepath.Join(root, target)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
		if file := declaredVolumes[target]; file != "" {
			if err := os.WriteFile(filepath.Join(source, file), nil, 0o644); err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, mount{Source: source, Target: target})
	}
	return mounts, nil
}

// volumes are those of each container of a job.
func (p *processPod) volumes() []mount {
	return []mount{
		{Source: p.at("job"), Target: jobcontainer.Dir}, {Source: p.at("work"), Target: jobcontainer.WorkDir},
		{Source: p.at("externals"), Target: jobcontainer.ExternalsDir, ReadOnly: true}, {Source: p.at("github"), Target: jobcontainer.GitHubDir},
		{Source: p.at("hosts"), Target: "/etc/hosts"},
	}
}

// makeRoot makes the root directory of an image.
func (p *processPod) makeRoot(root string, image Image) error {
	for _, dir := range []string{"proc", "etc", "dev", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := unix.Mknod(filepath.Join(root, "dev", "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(root, "dev", "null"), 0o666); err != nil {
		return err
	}
	files := map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nworker:x:1234:1234::/home/worker:/bin/sh\n", "etc/group": "root:x:0:\nworker:x:1234:\n",
	}
	if image.OSRelease != "" {
		files["etc/os-release"] = image.OSRelease
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if image.Bare {
		return nil
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// runnerRoom is the runner's container.
func (p *processPod) runnerRoom(argv []string, env []string, stdin []byte) (room, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	root := p.at("root-runner")
	if _, err := os.Stat(root); err != nil {
		if err := p.makeRoot(root, Image{OSRelease: "ID=debian\n"}); err != nil {
			return room{}, err
		}
	}
	mounts := append(p.volumes(),
		mount{Source: p.at("runner"), Target: "/home/runner"}, mount{Source: p.at("work"), Target: "/home/runner/_work"}, mount{Source: p.at("externals"), Target: "/home/runner/externals"},
		mount{Source: p.at("courier"), Target: courier.Dir}, mount{Source: p.at("guard", filepath.Base(jobcontainer.Binary)), Target: runnerAgent, ReadOnly: true},
		mount{Source: "/usr", Target: "/usr", ReadOnly: true}, mount{Source: p.program, Target: Program, ReadOnly: true})
	return room{Root: root, Dir: "/home/runner", Argv: argv, Env: slices.Concat(runnerEnvironment(), p.broker.environment(), env), User: runnerUser, Group: runnerUser, Stdin: stdin, Mounts: mounts}, nil
}

// Runner runs a program in the runner's container.
func (p *processPod) Runner(t *testing.T, argv ...string) (string, int) {
	t.Helper()
	r, err := p.runnerRoom(argv, nil, nil)
	require.NoError(t, err)
	command, err := r.command(0)
	require.NoError(t, err)
	var output buffer
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, startIn(p.at("net"), command))
	await.Return(t, func() { _ = command.Wait() }, "the program exits: "+strings.Join(argv, " "))
	return output.String(), command.ProcessState.ExitCode()
}

// WriteWork writes a file as the runner's user.
func (p *processPod) WriteWork(t *testing.T, name, content string, mode uint32) {
	t.Helper()
	file := p.at("work", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), os.FileMode(mode)))
	require.NoError(t, os.Chmod(file, os.FileMode(mode)))
	require.NoError(t, os.Chown(file, runnerUser, runnerUser))
}

// WriteRunner writes a file below /home/runner.
func (p *processPod) WriteRunner(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(p.at("runner", name), []byte(content), 0o644))
}

// Within runs do in the pod's network namespace.
func (p *processPod) Within(t *testing.T, do func() error) {
	t.Helper()
	require.NoError(t, netns.Within(p.at("net"), do))
}

// WriteExternals writes a program for node actions.
func (p *processPod) WriteExternals(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(p.at("externals", name)), 0o755))
	require.NoError(t, os.WriteFile(p.at("externals", name), []byte(content), 0o755))
}

// Hook runs the hook to its end.
func (p *processPod) Hook(_ context.Context, t *testing.T, call Call) Answer {
	t.Helper()
	return p.StartHook(t, call).Wait(t)
}

// StartHook starts the hook as the worker does: by the shell that the extension of its file says.
func (p *processPod) StartHook(t *testing.T, call Call) Running {
	t.Helper()
	response := responseFile(t, call.Stdin)
	p.WriteWork(t, response, "", 0o644)
	r, err := p.runnerRoom([]string{"/usr/bin/bash", "-e", "/home/runner/hook.sh"}, call.Environment, append(bytes.Clone(call.Stdin), '\n'))
	require.NoError(t, err)
	command, err := r.command(0)
	require.NoError(t, err)
	return startHook(t, command, p.at("work", response), func() error { return startIn(p.at("net"), command) })
}

// startHook starts a hook's command, and kills it at the test's end.
func startHook(t *testing.T, command *exec.Cmd, response string, start func() error) Running {
	t.Helper()
	running := &processHook{command: command, response: response, done: make(chan struct{})}
	command.Stdout, command.Stderr = &running.log, &running.log
	command.WaitDelay = 5 * time.Second
	require.NoError(t, start())
	go func() {
		_ = command.Wait()
		close(running.done)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		await.Receive(t, running.done, "the hook's end")
	})
	return running
}

type processHook struct {
	command  *exec.Cmd
	response string
	log      buffer
	done     chan struct{}
}

// Signal signals the process.
func (h *processHook) Signal(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, h.command.Process.Signal(unix.SignalNum(name)))
}

// Log is what was written so far.
func (h *processHook) Log() string { return h.log.String() }

// Wait waits for the exit, and reads the answer as the runner does.
func (h *processHook) Wait(t *testing.T) Answer {
	t.Helper()
	await.Receive(t, h.done, "the hook exits; so far it has written:\n"+h.Log())
	content, err := os.ReadFile(h.response)
	require.NoError(t, err)
	require.NoError(t, os.Remove(h.response))
	return Answer{Code: h.command.ProcessState.ExitCode(), Log: h.Log(), Response: string(content)}
}

// buffer is written by a process and read by a test.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
