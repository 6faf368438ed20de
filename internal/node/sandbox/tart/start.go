//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// startRunner makes and starts the pod's virtual machine. Each step is on record before it is taken, and may be taken again until the machine is begun.
func (s *Sandbox) startRunner(ctx context.Context, pod *corev1.Pod, c sandbox.Container) error {
	uid := string(pod.UID)
	unlock, err := s.pods.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := s.load(uid)
	if err != nil || r.Begun {
		return err
	}
	m, err := plan(pod)
	if err != nil {
		return err
	}
	r, err = s.update(uid, func(r *record) {
		r.VM, r.Image, r.Shared = runnerName(s.owner, uid), c.Image, sharedDir(m, c)
	})
	if err != nil {
		return err
	}
	s.opts.reached("vm-recorded")
	if err := s.create(ctx, r, m, pullPolicy(pod)); err != nil {
		return err
	}
	if err := s.instruct(r, m, c); err != nil {
		return err
	}
	// NODE-9: no machine is started without a session.
	if err := s.session.ensure(ctx, s); err != nil {
		return err
	}
	// NODE-5: this is where the licence is kept.
	if err := s.takeSlot(ctx, uid); err != nil {
		return err
	}
	return s.run(ctx, pod)
}

// sharedDir is where the read-only share is on this machine.
func sharedDir(m machine, c sandbox.Container) string {
	for _, p := range m.places {
		i := slices.IndexFunc(c.Mounts, func(mount sandbox.Mount) bool { return mount.MountPath == p.mountPath })
		if p.shared && i >= 0 {
			return c.Mounts[i].HostPath
		}
	}
	return ""
}

func pullPolicy(pod *corev1.Pod) corev1.PullPolicy {
	for _, c := range pod.Spec.Containers {
		if c.Name == runnerpod.ContainerRunner {
			return c.ImagePullPolicy
		}
	}
	return corev1.PullIfNotPresent
}

// takeSlot waits a moment for a slot, and says what it waits for if there is none.
func (s *Sandbox) takeSlot(ctx context.Context, uid string) error {
	if err := s.countForeign(ctx); err != nil {
		return s.verdict(record{PodRef: sandbox.PodRef{UID: uid}}, stepList, err) // who cannot count starts nothing
	}
	if s.slots.take(ctx, uid, s.opts.Now, s.opts.SlotPatience) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var held, foreign, ghosts int
	s.slots.read(func(l *ledger) { held, foreign, ghosts = len(l.held), l.foreign, l.ghosts(s.opts.Now()) })
	return delayed(reasonNoSlot, "none of the %d slots for virtual machines is free: %d used by pods, %d by other programs, and %d backing off after Tart rejected them",
		s.opts.Slots, held, foreign, ghosts)
}

// run starts the machine and returns when it has stayed up, or why it has not. The pod has a slot.
func (s *Sandbox) run(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	release := func() { s.slots.change(func(l *ledger) { l.release(uid) }) }
	r, err := s.update(uid, func(r *record) {
		r.Attempt++
		r.Begun, r.StayedUp, r.Heard, r.Killed, r.GaveUp, r.StartedAt = true, false, false, false, "", s.opts.Now()
	})
	if err != nil {
		release()
		return err
	}
	s.opts.reached("run-recorded")
	// Whatever happens to the caller, this is either begun or not.
	argv, environ, err := s.tart.RunCommand(r.VM, s.runOptions(r))
	if err == nil {
		err = s.host.Start(context.WithoutCancel(ctx), pod, sandbox.Container{Name: r.process(), Command: argv, Env: tartEnvironment(environ)})
	}
	if err != nil {
		_, undo := s.update(uid, func(r *record) { r.Begun = false })
		release()
		return errors.Join(fmt.Errorf("starting tart run: %w", err), undo)
	}
	s.opts.reached("run-started")
	m := s.mind(r, false)
	select {
	case <-m.up:
	case <-m.done:
	case <-ctx.Done():
		if m.commit() {
			return nil // it is on record
		}
		<-m.done // the slot and the minder are this attempt's until then
	}
	return m.failure()
}

// tartEnvironment is what a machine's process gets of Tart's environment: not the credentials of a registry, which would be on record for
// as long as the pod is.
func tartEnvironment(environ []string) []sandbox.EnvVar {
	var env []sandbox.EnvVar
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "TART_REGISTRY_") {
			continue
		}
		env = append(env, sandbox.EnvVar{Name: name, Value: value})
	}
	return env
}

// unbegin takes back a start whose end an earlier agent has not seen: the machine has not stayed up, and no guest has reported. It returns
// whether it did.
func (s *Sandbox) unbegin(r record) bool {
	if r.StayedUp || r.Killed || s.contacted(r) {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, settledPatience)
	defer cancel()
	if _, err := s.host.Wait(ctx, r.UID, r.process()); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return false // it runs
	}
	if s.contacted(r) {
		return false
	}
	if _, err := s.update(r.UID, func(r *record) { r.Begun = false }); err != nil {
		s.opts.Log.Error("cleaning up after a failed start", "pod", r.UID, "error", err)
		return false
	}
	return true
}

// lastWords is the end of what `tart run` has written.
func (s *Sandbox) lastWords(r record) string {
	const most = 4 << 10
	log, err := os.Open(s.host.LogFile(r.UID, r.process()))
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	if info, err := log.Stat(); err == nil && info.Size() > most {
		_, _ = log.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(log, most))
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
}
