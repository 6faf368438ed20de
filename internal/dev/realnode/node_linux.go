package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

const (
	startPatience = 2 * time.Minute       // of each program, until it is healthy
	askAgain      = 50 * time.Millisecond // whether it is
	stopGrace     = 10 * time.Second      // of a program that is restarted
)

// Node is one running node. Its methods may be called concurrently.
type Node struct {
	layout  layout
	cluster *Cluster
	dir     string // on the machine
	parts   string
	images  string // keeps containerd's data; empty: nothing does
	init    *childproc.Child
	control *control
	power   *power // nil without a ShutdownGracePeriod

	operation sync.Mutex // serialises starts and stops of programs
	runs      map[string]*run
}

// Name of the node, in the cluster and as its host name.
func (n *Node) Name() string { return n.layout.name }

// LogPath is the file that a program of the node writes its log to.
func (n *Node) LogPath(program string) string { return filepath.Join(n.dir, "log", program+".log") }

// Done is closed when the node has ended, for whatever reason.
func (n *Node) Done() <-chan struct{} { return n.init.Done() }

func (n *Node) namespace(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", n.init.PID(), kind)
}

// launch makes the namespaces, the network and the cgroups of a node, and starts its programs.
func (n *Node) launch(ctx context.Context) error {
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := makeCgroup(n.layout.cgroup); err != nil {
		return err
	}
	if err := n.startInit(); err != nil {
		return err
	}
	if err := n.cluster.network.attach(n.layout, n.init.PID()); err != nil {
		return err
	}
	if err := n.control.setUp(n.layout.setup(n.dir, n.parts, n.images, resolverFile())); err != nil {
		return err
	}
	for _, p := range n.layout.programs() {
		if err := n.startProgram(ctx, p); err != nil {
			return err
		}
		if err := n.prepared(ctx, p.name); err != nil {
			return err
		}
	}
	return nil
}

// prepared does what has to be done once a program runs, before the next one starts.
func (n *Node) prepared(ctx context.Context, program string) error {
	switch program {
	case Containerd:
		return n.importImages(ctx)
	case DBus:
		var err error
		n.power, err = n.servePower()
		return err
	default:
		return nil
	}
}

// startInit starts node-init as PID 1 of namespaces of its own. It dies with this process.
func (n *Node) startInit() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control of node-init")
	defer theirs.Close()
	defer ours.Close() // FileConn has a descriptor of its own
	conn, err := net.FileConn(ours)
	if err != nil {
		return fmt.Errorf("connecting to node-init: %w", err)
	}
	command := exec.Command(filepath.Join(n.parts, "node-init")) //nolint:noctx // it outlives the context of its start; Stop ends it
	command.ExtraFiles = []*os.File{theirs}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	}
	started, err := childproc.StartLogged(command, n.LogPath("node-init"), syscall.SIGKILL)
	if err != nil {
		return errors.Join(fmt.Errorf("starting node-init: %w", err), conn.Close())
	}
	n.cluster.mu.Lock() // the egress proxy may be looking for a node
	defer n.cluster.mu.Unlock()
	n.init, n.control = started, newControl(conn)
	return nil
}

func (n *Node) writeFiles() error {
	files, err := n.layout.files()
	if err != nil {
		return err
	}
	for _, dir := range []string{"log", "pki", "cni", "containerd", "opt", "logs", "kubelet", "addresses", "volume-plugins", "tmp", resolverDir, "registries", "dbus", "logind.conf.d"} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			return fmt.Errorf("making the node's directory: %w", err)
		}
	}
	if n.images != "" {
		if err := os.MkdirAll(n.images, 0o700); err != nil {
			return fmt.Errorf("making the directory of images: %w", err)
		}
	}
	files[filepath.Join(resolverDir, filepath.Base(resolverFile()))] = n.layout.resolvers()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing %s of the node: %w", name, err)
		}
	}
	if err := os.Chmod(filepath.Join(n.dir, "resolv.conf"), 0o644); err != nil { // pods without cluster DNS get it
		return fmt.Errorf("writing resolv.conf of the node: %w", err)
	}
	return n.cluster.identities(n.layout, n.dir)
}

// startProgram starts a program that does not run, and returns when it is healthy.
func (n *Node) startProgram(ctx context.Context, p program) error {
	n.operation.Lock()
	defer n.operation.Unlock()
	if r := n.runs[p.name]; r != nil && !r.over() {
		return nil
	}
	began := time.Now()
	r, err := n.control.start(p.name, p.args, []string{
		"PATH=" + insideParts + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/run/node/tmp", "NODE_NAME=" + n.layout.name,
	}, filepath.Join(insideState, "log", p.name+".log"))
	if err != nil {
		return err
	}
	n.runs[p.name] = r
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := n.waitHealthy(ctx, p.name, r); err != nil {
		return fmt.Errorf("waiting for %s of node %s: %w (its log: %s)", p.name, n.layout.name, err, n.LogPath(p.name))
	}
	n.cluster.log.Info("started", "node", n.layout.name, "program", p.name, "took", time.Since(began).Round(time.Millisecond).String())
	return nil
}

func (n *Node) waitHealthy(ctx context.Context, name string, r *run) error {
	retry := time.NewTicker(askAgain)
	defer retry.Stop()
	for {
		err := n.healthy(ctx, name)
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("it ended: %s", r.outcome)
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

// healthy asks a program. kube-router's port serves metrics and pprof too, and so is not open: it need only run.
func (n *Node) healthy(ctx context.Context, name string) error {
	switch name {
	case Containerd:
		conn, err := new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root%s", n.init.PID(), runtimeSock))
		if err != nil {
			return err
		}
		return conn.Close()
	case DBus, Logind:
		return n.askBus(name)
	case Kubelet:
		return n.ask(ctx, "127.0.0.1:10248", "/healthz")
	case KubeProxy:
		return n.ask(ctx, "127.0.0.1:10256", "/livez")
	default:
		return nil
	}
}

// ask sends a request from within the node's network.
func (n *Node) ask(ctx context.Context, address, path string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialFrom(ctx, func() (string, error) { return n.namespace("net"), nil }, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// Start starts a program of the node that was stopped, and returns when it is healthy. It does nothing when the program runs.
func (n *Node) Start(ctx context.Context, name string) error {
	for _, p := range n.layout.programs() {
		if p.name == name {
			return n.startProgram(ctx, p)
		}
	}
	return fmt.Errorf("%q is not a program of a node", name)
}

// StopProgram ends a program, with SIGTERM and after ten seconds with SIGKILL. Containers continue, as they do on any node.
func (n *Node) StopProgram(ctx context.Context, name string) error {
	n.operation.Lock()
	defer n.operation.Unlock()
	return n.endProgram(ctx, name, syscall.SIGTERM, syscall.SIGKILL)
}

// endProgram sends the signals one after the other until the program has ended. The caller holds operation.
func (n *Node) endProgram(ctx context.Context, name string, signals ...syscall.Signal) error {
	r := n.runs[name]
	if r == nil || r.over() {
		delete(n.runs, name)
		return nil
	}
	for _, signal := range signals {
		if err := n.control.signal(r, signal, false); err != nil {
			return err
		}
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-r.done:
			delete(n.runs, name)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stopping %s of node %s: %w", name, n.layout.name, context.Cause(ctx))
		case <-timer.C:
		}
	}
	return fmt.Errorf("stopping %s of node %s: it still runs %s after the last signal", name, n.layout.name, stopGrace)
}

// Restart stops a program and starts it again.
func (n *Node) Restart(ctx context.Context, name string) error {
	return n.replace(ctx, name, syscall.SIGTERM, syscall.SIGKILL)
}

// Crash kills a program with SIGKILL and starts it again.
func (n *Node) Crash(ctx context.Context, name string) error {
	return n.replace(ctx, name, syscall.SIGKILL)
}

func (n *Node) replace(ctx context.Context, name string, signals ...syscall.Signal) error {
	n.operation.Lock()
	err := n.endProgram(ctx, name, signals...)
	n.operation.Unlock()
	if err != nil {
		return err
	}
	return n.Start(ctx, name)
}

// Init is the PID of the node's first process on the machine. When it ends, everything on the node does.
func (n *Node) Init() int { return n.init.PID() }

// Command is a command that runs on the node, as root, in its namespaces.
func (n *Node) Command(ctx context.Context, args ...string) *exec.Cmd {
	return n.runtime().command(ctx, args...)
}

// Snapshots is the directory of the node where containerd has the containers' own file systems, for Command.
func (n *Node) Snapshots() string {
	return insideState + "/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
}

// Import gives the node an image, in the format of `docker save` or of OCI, so that no registry is asked for it.
func (n *Node) Import(ctx context.Context, archive io.Reader) error {
	if err := n.runtime().Import(ctx, archive); err != nil {
		return fmt.Errorf("node %s: %w", n.layout.name, err)
	}
	return nil
}

// Runtime is the node's container runtime.
func (n *Node) Runtime() Runtime { return n.runtime() }

func (n *Node) runtime() Runtime { return Runtime{Init: n.init.PID()} }

// Dead are the node's programs that have ended and were not stopped.
func (n *Node) Dead() []string {
	n.operation.Lock()
	defer n.operation.Unlock()
	var names []string
	for _, p := range n.layout.programs() {
		if r := n.runs[p.name]; r != nil && r.over() {
			names = append(names, p.name)
		}
	}
	return names
}

// PID of a program of the node, as the node numbers it; 0 when it does not run.
func (n *Node) PID(program string) int {
	n.operation.Lock()
	defer n.operation.Unlock()
	r := n.runs[program]
	if r == nil || r.over() {
		return 0
	}
	return n.control.pid(r)
}

// Kill ends the node at once, as a power failure does: no program of it gets a signal that it could handle. The Node object stays in the
// API. Boot starts the node again, with its disk; the node's directory and cgroups are removed by Stop.
func (n *Node) Kill(ctx context.Context) { n.init.Stop(ctx, syscall.SIGKILL, 0) }

// Boot starts a node that was killed or has shut down. Its disk is as it was: images, what the kubelet stored, and the logs. It returns when
// the kubelet has reported that the Node is Ready.
func (n *Node) Boot(ctx context.Context) error {
	if !n.init.Exited() {
		return fmt.Errorf("starting node %s again: it runs", n.layout.name)
	}
	n.disconnect()
	if err := removeCgroup(ctx, n.layout.cgroup); err != nil {
		return fmt.Errorf("starting node %s again: %w", n.layout.name, err)
	}
	n.operation.Lock()
	n.runs = map[string]*run{}
	n.operation.Unlock()
	began := time.Now()
	err := n.launch(ctx)
	if err == nil {
		err = n.cluster.waitReady(ctx, n.layout.name, began)
	}
	if err != nil {
		return fmt.Errorf("starting node %s again: %w", n.layout.name, err)
	}
	return nil
}

// disconnect waits for the end of what served a node that has ended.
func (n *Node) disconnect() {
	<-n.control.ended // bounded: node-init is killed, and its end of the connection closed
	_ = n.control.conn.Close()
	if n.power != nil {
		n.power.close()
	}
}

// Stop ends the node as Kill does, and removes what is left of it on the machine.
func (n *Node) Stop(ctx context.Context) error {
	if n.init != nil {
		n.Kill(ctx)
		n.disconnect()
	}
	n.cluster.forget(n)
	return errors.Join(removeCgroup(ctx, n.layout.cgroup), os.RemoveAll(n.dir))
}
