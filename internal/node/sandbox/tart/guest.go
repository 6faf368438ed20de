//go:build unix

package tart

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// guestAgent is the agent's binary as a guest sees it.
const guestAgent = guestshare.SharesDir + "/" + guestshare.ShareBullpen + "/" + guestshare.FileAgent

// runOptions are how a machine is started.
func (s *Sandbox) runOptions(r record) tartcli.RunOptions {
	return tartcli.RunOptions{
		Shares: []tartcli.Share{
			{Name: guestshare.ShareBullpen, Path: r.Shared, ReadOnly: true},
			{Name: guestshare.ShareStatus, Path: s.statusDir(r.UID)},
		},
		RootDiskOptions: "caching=cached",
	}
}

// mounts are the runner's as the guest will have them.
func mounts(m machine) []sandbox.Mount {
	var all []sandbox.Mount
	for _, p := range m.places {
		all = append(all, sandbox.Mount{MountPath: p.mountPath, HostPath: p.guestPath()})
	}
	return all
}

// instruct writes the guest's command into the directory that it reads. The guest fills in its own paths.
func (s *Sandbox) instruct(r record, m machine, c sandbox.Container) error {
	in := mounts(m)
	spec := guestshare.Spec{
		PodUID: r.UID, Placeholder: placeholder,
		Env: []string{runnerpod.EnvStatusDir + "=" + path.Join(placeholder, guestshare.GuestStatus)},
	}
	for _, arg := range c.Command {
		spec.Command = append(spec.Command, process.Substitute(arg, in))
	}
	for _, e := range c.Env {
		spec.Env = append(spec.Env, e.Name+"="+process.Substitute(e.Value, in))
	}
	spec.WorkingDir = process.Substitute(c.WorkingDir, in)
	for _, p := range m.places {
		if !p.shared {
			spec.Folders = append(spec.Folders, p.folder())
		}
	}
	if err := writeJSON(filepath.Join(s.vmDir(r.UID), mountsFile), in); err != nil {
		return fmt.Errorf("recording the volumes: %w", err)
	}
	if r.Shared == "" {
		return invalid("the volume %q has no directory on this machine", runnerpod.VolumeShared)
	}
	if err := guestshare.WriteJSON(filepath.Join(r.Shared, guestshare.FileSpec), spec); err != nil {
		return fmt.Errorf("writing what the guest is to run: %w", err)
	}
	return nil
}

// contacted reports whether the guest's agent has ever reported.
func (s *Sandbox) contacted(r record) bool {
	if r.Heard {
		return true
	}
	if _, seen := guestshare.Heartbeat(s.statusDir(r.UID), s.opts.Now()); seen {
		return true
	}
	_, reported, err := s.report(r)
	return reported || err != nil
}

// report is the guest's word on how the command ended.
func (s *Sandbox) report(r record) (guestshare.Report, bool, error) {
	return guestshare.ReadReport(s.statusDir(r.UID), guestshare.FileExit)
}

// startGuest starts the guest's agent, which changes nothing where one has been started before.
func (s *Sandbox) startGuest(ctx context.Context, r record) error {
	var said bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, guestStartTimeout)
	defer cancel()
	argv, err := s.execCommand(r.VM, []string{guestAgent, "agent", "guest"})
	if err != nil {
		return err
	}
	code, err := s.host.Exec(ctx, r.UID, r.process(), argv, sandbox.Streams{Err: &bounded{to: &said}})
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("tart exec exited with code %d: %s", code, said.String())
	}
	return nil
}

// guestStartTimeout bounds one attempt to start the guest's agent.
const guestStartTimeout = 30 * time.Second

// bounded keeps the first kilobyte of what is written to it.
type bounded struct{ to *bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.to.WriteString(clip(string(p), max(0, 1024-b.to.Len())))
	return len(p), nil
}

// execCommand is the argument vector that runs a command in a guest.
func (s *Sandbox) execCommand(vm string, command []string, flags ...string) ([]string, error) {
	argv, _, err := s.tart.ExecCommand(vm, command)
	if err != nil {
		return nil, err
	}
	return slices.Insert(argv, len(s.opts.Tart)+1, flags...), nil // behind "exec"
}

func execFlags(streams sandbox.Streams) []string {
	var flags []string
	if streams.In != nil {
		flags = append(flags, "-i")
	}
	if streams.TTY {
		flags = append(flags, "-t")
	}
	return flags
}

// orderTerminate asks the guest's command to end.
func (s *Sandbox) orderTerminate(r record) error {
	if err := guestshare.Write(filepath.Join(r.Shared, guestshare.FileTerminate), nil); err != nil {
		return fmt.Errorf("ordering the guest to end: %w", err)
	}
	return nil
}

// stopsIdle reports whether a machine has been asked to stop and has no job for certain: no configuration was released to its runner, and none can be
// any more. Only what the host has on record counts, so the guest has no say in it.
func (s *Sandbox) stopsIdle(r record) bool {
	if _, err := os.Stat(filepath.Join(r.Shared, guestshare.FileTerminate)); err != nil || r.Shared == "" {
		return false
	}
	jit, err := os.Lstat(filepath.Join(r.Shared, runnerpod.FileJIT))
	if err == nil {
		return jit.Mode().IsRegular() && jit.Size() == 0 // the server had nothing to do for the pod
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	onHost, err := s.host.Inspect(s.ctx, r.UID)
	return err == nil && slices.ContainsFunc(onHost.Containers, func(c sandbox.ContainerState) bool {
		return c.Name == runnerpod.ContainerPoller && c.Exit != nil && c.Exit.Code == pollerStopped
	})
}

// pollerStopped is the exit code of a poller that was stopped before it had an answer: nothing was staged then (agent.Poll).
const pollerStopped = 128 + int32(syscall.SIGTERM)

// removeTaken removes the configuration once the supervisor, which may not, has taken it (NET-3).
func (s *Sandbox) removeTaken(r record) bool {
	taken, err := guestshare.Open(s.statusDir(r.UID), runnerpod.FileJIT+".taken")
	if err != nil {
		return false
	}
	_ = taken.Close()
	for _, name := range []string{runnerpod.FileJIT, runnerpod.FileJIT + guestshare.StagedSuffix} {
		if err := os.Remove(filepath.Join(r.Shared, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.opts.Log.Warn("removing a used configuration", "pod", r.UID, "error", err)
			return false
		}
	}
	return true
}

// Exec implements sandbox.Sandbox. In a guest the command is run, and ended, by our own agent there, which reports its code: `tart exec`
// has codes of its own, which are indistinguishable from the command's (Tart 4.1).
func (s *Sandbox) Exec(ctx context.Context, podUID, name string, command []string, streams sandbox.Streams) (int, error) {
	if name != runnerpod.ContainerRunner {
		return s.host.Exec(ctx, podUID, name, command, streams)
	}
	r, err := s.onRecord(podUID)
	if err != nil {
		return 0, err
	}
	if len(command) == 0 {
		return 0, errors.New("no command given")
	}
	if s.over(r) || !s.contacted(r) {
		return 0, fmt.Errorf("the virtual machine %s: %w", r.VM, sandbox.ErrNotRunning)
	}
	id := s.beginExec()
	defer s.forgetExec(r, id)
	argv := []string{guestAgent, "agent", "guest", "exec", "--id", id}
	if streams.TTY {
		argv = append(argv, "--tty")
	}
	argv = append(argv, "--")
	in, err := s.guestMounts(r)
	if err != nil {
		return 0, err
	}
	for _, arg := range command {
		argv = append(argv, process.Substitute(arg, in))
	}
	if argv, err = s.execCommand(r.VM, argv, execFlags(streams)...); err != nil {
		return 0, err
	}
	code, err := s.host.Exec(ctx, podUID, r.process(), argv, streams)
	report, reported, reportErr := guestshare.ReadReport(s.statusDir(podUID), guestshare.FileExec(id))
	switch {
	case ctx.Err() != nil:
		return 0, errors.Join(context.Cause(ctx), s.endExec(r, id))
	case reported && report.Reason == guestshare.ReasonStartError:
		return 0, errors.New(report.Message)
	case reported:
		return int(report.Code), nil
	}
	if now, endErr := s.onRecord(podUID); endErr != nil || s.over(now) { // the machine's end has ended the command
		return 0, fmt.Errorf("the virtual machine %s: %w", r.VM, sandbox.ErrNotRunning)
	}
	if err = errors.Join(err, reportErr); err == nil {
		err = errors.New("the guest has not reported the command")
	}
	return 0, fmt.Errorf("tart exec ended with %d: %w", code, err)
}

// over reports whether the guest's command has ended, even if the machine has not.
func (s *Sandbox) over(r record) bool {
	_, reported, err := s.report(r)
	return r.Exit != nil || reported || err != nil
}

// endExec has a command ended in the guest after its connection is gone, and waits until that is reported.
func (s *Sandbox) endExec(r record, id string) error {
	if err := guestshare.Write(filepath.Join(r.Shared, guestshare.FileExecEnd(id)), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), execEndPatience)
	defer cancel()
	look := time.NewTicker(s.opts.LookEvery)
	defer look.Stop()
	for {
		if _, reported, err := guestshare.ReadReport(s.statusDir(r.UID), guestshare.FileExec(id)); reported || err != nil {
			return nil
		}
		if now, err := s.onRecord(r.UID); err != nil || now.Exit != nil {
			return nil // the machine is gone, and all in it
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("stopping a command in the virtual machine %s: it has not reported its exit", r.VM)
		}
	}
}

// execEndPatience bounds how long a guest may take to end a command. One that never began does not report.
const execEndPatience = 5 * time.Second

// beginExec names a command, whose report is waited for until forgetExec.
func (s *Sandbox) beginExec() string {
	id := randomID()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execs[id] = true
	return id
}

// waited reports whether a command's report is waited for. An agent that was restarted waits for none.
func (s *Sandbox) waited(exec string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.execs[exec]
}

func (s *Sandbox) forgetExec(r record, id string) {
	s.mu.Lock()
	delete(s.execs, id)
	s.mu.Unlock()
	_ = os.Remove(filepath.Join(r.Shared, guestshare.FileExecEnd(id)))
	if root, err := os.OpenRoot(s.statusDir(r.UID)); err == nil {
		_ = root.Remove(guestshare.FileExec(id))
		_ = root.Close()
	}
}

// guestMounts are the runner's mounts as guest.json has them.
func (s *Sandbox) guestMounts(r record) ([]sandbox.Mount, error) {
	var in []sandbox.Mount
	found, err := readJSON(filepath.Join(s.vmDir(r.UID), mountsFile), &in)
	if err != nil || !found {
		return nil, fmt.Errorf("reading the volumes of the virtual machine %s: found=%t: %w", r.VM, found, err)
	}
	return in, nil
}

const mountsFile = "mounts.json"

func randomID() string {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// OpenLog implements sandbox.Sandbox.
func (s *Sandbox) OpenLog(podUID, name string) (sandbox.Log, error) {
	if name != runnerpod.ContainerRunner {
		return s.host.OpenLog(podUID, name)
	}
	if _, err := s.onRecord(podUID); err != nil {
		return nil, err
	}
	file, err := guestshare.Open(s.statusDir(podUID), guestshare.FileLog)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the guest's log: %w", err)
	}
	return &guestLog{file: file, status: s.statusDir(podUID)}, nil
}

// guestLog implements sandbox.Log.
type guestLog struct {
	file   *os.File // nil when the guest has not written any
	status string
}

// ReadAt implements sandbox.Log.
func (l *guestLog) ReadAt(p []byte, off int64) (int, error) {
	if l.file == nil {
		return 0, io.EOF
	}
	return l.file.ReadAt(p, off)
}

// Size implements sandbox.Log.
func (l *guestLog) Size() (int64, error) {
	if l.file == nil {
		return 0, nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// OffsetAt implements sandbox.Log.
func (l *guestLog) OffsetAt(t time.Time) (int64, error) {
	if l.file == nil {
		return 0, nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return 0, err
	}
	if info.ModTime().Add(fileClock).Before(t) { // nothing was written since
		return info.Size(), nil
	}
	index, err := guestshare.Read(l.status, guestshare.FileLogTimes)
	if err != nil {
		return 0, nil //nolint:nilerr // without an index all of it counts as later
	}
	return min(offsetAt(string(index), t), info.Size()), nil
}

// fileClock is by how much the time of a file's last change may be behind the clock.
const fileClock = 20 * time.Millisecond

// offsetAt finds the size that the log had at the last look before t. The guest's clock has written the index, and a customer's job may have.
func offsetAt(index string, t time.Time) int64 {
	var offset int64
	for line := range strings.Lines(index) {
		at, size, _ := strings.Cut(strings.TrimSpace(line), " ")
		nanoseconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil || nanoseconds >= t.UnixNano() {
			break
		}
		if bytes, err := strconv.ParseInt(size, 10, 64); err == nil {
			offset = max(offset, bytes)
		}
	}
	return offset
}

// Close implements sandbox.Log.
func (l *guestLog) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
