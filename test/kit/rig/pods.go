package rig

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/agent"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// pods is what runs in synthetic runner pods.
type pods struct {
	server *http.Transport                                 // for pollers
	apart  bool                                            // each poller has connections of its own
	github *http.Client                                    // for runners
	own    func(context.Context, *corev1.Pod) *http.Client // if set, for each of them
	gap    time.Duration                                   // between the acquisition of a job and the start of its worker

	mu     sync.Mutex
	answer map[string]chan struct{} // by pod UID; closed when its poller has ended
	taken  map[string]chan struct{} // by pod UID; closed when a job has started in its runner, or the runner has exited
}

func newPods() *pods {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 4096
	github := http.DefaultTransport.(*http.Transport).Clone()
	github.MaxIdleConnsPerHost = 1024
	return &pods{server: transport, github: &http.Client{Transport: github}, answer: map[string]chan struct{}{}, taken: map[string]chan struct{}{}}
}

// shareConnections has the requests of runners share connections to GitHub: ten thousand that wait for a message would be more open
// files than a process may have, which holds both ends of each.
func (p *pods) shareConnections() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Protocols = protocols
	p.github = &http.Client{Transport: transport}
}

// install puts the programs of a runner pod on a machine.
func (p *pods) install(m *synthetic.Machine) {
	for container, program := range p.programs() {
		m.Install(container, program)
	}
}

// Programs are what the containers of synthetic runner pods run, by the container's name. A runner starts its job's worker so long after it
// has acquired the job.
func Programs(gap time.Duration) map[string]synthetic.Program {
	p := newPods()
	p.gap = gap
	return p.programs()
}

func (p *pods) programs() map[string]synthetic.Program {
	return map[string]synthetic.Program{
		runnerpod.ContainerAgent: {Run: func(context.Context, <-chan struct{}, *corev1.Pod, sandbox.Container) int32 {
			return 0 // there is no binary to install
		}},
		runnerpod.ContainerPoller: {Run: p.poll},
		runnerpod.ContainerIdle:   {Run: p.idle},
		runnerpod.ContainerRunner: {Run: p.run, Exec: func(_ context.Context, c sandbox.Container, _ []string) (int, error) {
			return int(exitCode(agent.Ready(jitFile(c), ""))), nil
		}},
	}
}

// answered is closed when the pod's poller has ended.
func (p *pods) answered(uid string) chan struct{} { return p.one(p.answer, uid) }

// started is closed when a job has started in the pod's runner, or the runner has exited.
func (p *pods) started(uid string) chan struct{} { return p.one(p.taken, uid) }

func (p *pods) one(of map[string]chan struct{}, uid string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of[uid] == nil {
		of[uid] = make(chan struct{})
	}
	return of[uid]
}

func (p *pods) forget(of map[string]chan struct{}, uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(of, uid)
}

// idle is the container whose exit shows that a job has started. A stop ends it only while the runner does not run.
func (p *pods) idle(ctx context.Context, terminate <-chan struct{}, pod *corev1.Pod, c sandbox.Container) int32 {
	uid := string(pod.UID)
	defer p.forget(p.taken, uid)
	taken := p.started(uid)
	select {
	case <-taken:
		return 0
	case <-ctx.Done():
		return 128 + 9
	case <-terminate:
	}
	if agent.Ready(jitFile(c), "") != nil {
		return 0
	}
	select {
	case <-taken:
		return 0
	case <-ctx.Done():
		return 128 + 9
	}
}

// poll is the agent's poller.
func (p *pods) poll(ctx context.Context, terminate <-chan struct{}, pod *corev1.Pod, c sandbox.Container) int32 {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := context.AfterFunc(ctx, func() {})
	defer ended()
	go func() {
		select {
		case <-terminate:
			stop()
		case <-ctx.Done():
		}
	}()
	transport := p.server
	if p.apart {
		transport = transport.Clone()
		defer transport.CloseIdleConnections()
	}
	err := agent.Poll(ctx, agent.PollOptions{
		URL: env(c, runnerpod.EnvDispatchURL), TokenFile: hostPath(c, env(c, runnerpod.EnvTokenFile)), JITFile: jitFile(c), Transport: transport,
	})
	if _, missing := os.Stat(jitFile(c)); missing == nil {
		close(p.answered(string(pod.UID)))
	}
	return exitCode(err)
}

// run waits for a configuration as the agent's supervisor does, and runs the development runner with it. A stop ends it while it has no
// configuration, and is no signal to the runner (EXCL-8).
func (p *pods) run(ctx context.Context, terminate <-chan struct{}, pod *corev1.Pod, c sandbox.Container) int32 {
	uid := string(pod.UID)
	defer p.forget(p.answer, uid)
	started := sync.OnceFunc(func() { close(p.started(uid)) })
	defer started()
	idle := filepath.Join(hostPath(c, env(c, runnerpod.EnvSharedDir)), "runner.idle")
	jobless := filepath.Join(filepath.Dir(idle), "runner.jobless")
	for _, sign := range []string{jobless, idle} {
		if err := os.WriteFile(sign, nil, 0o600); err != nil {
			return 1
		}
	}
	defer os.Remove(jobless)
	defer os.Remove(idle)
	select {
	case <-p.answered(uid):
	case <-terminate:
		return 0
	case <-ctx.Done():
		return 128 + 9
	}
	_ = os.Remove(idle)
	jit, err := os.ReadFile(jitFile(c))
	if err != nil {
		return 1
	}
	if len(jit) == 0 {
		return 0 // nothing to do
	}
	github := p.github
	if p.own != nil {
		github = p.own(ctx, pod)
	}
	runner, err := devrunner.New(devrunner.Options{
		JIT: strings.TrimSpace(string(jit)), WorkDir: hostPath(c, env(c, runnerpod.EnvWorkDir)), HTTP: github, WorkerAfter: p.gap,
		Console: &jobSeen{jobless: jobless, started: started}, Within: sleep, NoFeed: true,
	})
	if err != nil {
		return 1
	}
	return exitCode(runner.Run(ctx))
}

// sleep runs a script that sleeps and does nothing else: ten thousand jobs need no twenty thousand processes for it.
func sleep(ctx context.Context, args []string) (code int, ran bool) {
	script, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		return 0, false
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(string(script)), "sleep ")
	seconds, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(seconds >= 0 && seconds < 1e6) {
		return 0, false
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, true
	case <-ctx.Done():
		return 128 + int(syscall.SIGTERM), true
	}
}

// jobSeen reads on a runner's console whether the worker of its job has started. Then the file is removed, and started called.
type jobSeen struct {
	jobless string
	started func()
}

func (j *jobSeen) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Running job")) {
		_ = os.Remove(j.jobless) // EXCL-6: the pod shows it
		j.started()
	}
	return len(line), nil
}

func exitCode(err error) int32 {
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return int32(coded.ExitCode()) //nolint:gosec // at most 255
	}
	return 1
}

func env(c sandbox.Container, name string) string {
	value := ""
	for _, e := range c.Env {
		if e.Name == name {
			value = e.Value // the last one counts
		}
	}
	return value
}

// hostPath is where a path in the container is on this machine.
func hostPath(c sandbox.Container, path string) string {
	for _, m := range c.Mounts {
		if rest, below := strings.CutPrefix(path, m.MountPath); below && (rest == "" || rest[0] == '/') {
			return m.HostPath + rest
		}
	}
	return path
}

func jitFile(c sandbox.Container) string {
	return filepath.Join(hostPath(c, env(c, runnerpod.EnvSharedDir)), "jitconfig")
}
