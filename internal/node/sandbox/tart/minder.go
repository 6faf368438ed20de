//go:build unix

package tart

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// settledPatience is how long a machine's process is given to show that it has ended already.
const settledPatience = time.Second

// minder looks after one machine from its start to its settled end: it starts the guest's agent, stops the machine when that has reported, and
// writes down how the runner ended. There is one for each pod whose machine runs, and it waits for no other (NODE-6).
type minder struct {
	s      *Sandbox
	r      record
	ctx    context.Context
	cancel context.CancelFunc

	up   chan struct{} // closed when the machine has stayed up
	done chan struct{} // closed when nothing is left to do; failed is set before
	stop chan struct{} // closed to end the machine

	stopOnce sync.Once

	mu        sync.Mutex
	committed bool // the container was reported as started: its start cannot be taken back
	takenBack bool // the other way round
	failed    error
}

// mind returns the minder of a pod's machine, making it if there is none. committed says that the start is known to others.
func (s *Sandbox) mind(r record, committed bool) *minder {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.minders[r.UID]
	if m != nil {
		if committed {
			m.commit()
		}
		return m
	}
	m = &minder{s: s, r: r, up: make(chan struct{}), done: make(chan struct{}), stop: make(chan struct{}), committed: committed}
	m.ctx, m.cancel = context.WithCancel(s.ctx)
	if s.ctx.Err() != nil {
		close(m.done)
		return m
	}
	s.minders[r.UID] = m
	if r.running() { // its record may have been unreadable when this agent started (NODE-5)
		s.slots.change(func(l *ledger) { l.adopt(r.UID) })
	}
	if r.Killed {
		m.end()
	}
	s.wg.Go(m.run)
	return m
}

// commit makes the start final, because the container is reported as started; false when it has been taken back already.
func (m *minder) commit() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = !m.takenBack
	return m.committed
}

// end has the machine ended, without waiting.
func (m *minder) end() { m.stopOnce.Do(func() { close(m.stop) }) }

// failure is why the machine has not stayed up; nil when it has, or when that is for Wait to tell.
func (m *minder) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

func (m *minder) run() {
	defer func() {
		m.cancel()
		m.s.mu.Lock()
		if m.s.minders[m.r.UID] == m {
			delete(m.s.minders, m.r.UID)
		}
		m.s.mu.Unlock()
		close(m.done)
	}()
	exit, ended := m.attend()
	if !ended {
		return
	}
	if !m.isUp() && !m.s.contacted(m.r) && m.takeBack(exit) {
		return
	}
	m.settle(exit)
}

// attend returns when the machine's process has ended; false when this agent ends before.
func (m *minder) attend() (sandbox.Exit, bool) {
	ended := make(chan sandbox.Exit, 1)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer m.cancel()
	tasks.Go(func() {
		// Its process is on record before there is a minder: not to be found means that it is gone for good.
		if exit, err := m.s.host.Wait(m.ctx, m.r.UID, m.r.process()); err == nil {
			ended <- exit
		} else if errors.Is(err, sandbox.ErrNotFound) {
			ended <- sandbox.Exit{Unknown: true, FinishedAt: m.s.opts.Now()}
		} else if m.ctx.Err() == nil {
			m.s.opts.Log.Error("waiting for a virtual machine", "vm", m.r.VM, "error", err)
			m.cancel()
		}
	})
	w := m.newWatch(&tasks)
	look := time.NewTicker(m.s.opts.LookEvery)
	defer look.Stop()
	for {
		w.look()
		select {
		case exit := <-ended:
			return exit, true
		case <-m.ctx.Done():
			return sandbox.Exit{}, false
		case <-w.stop:
			w.halt()
			w.stop = nil
		case <-look.C:
		}
	}
}

// watch is what a minder does at every look.
type watch struct {
	*minder
	tasks *sync.WaitGroup
	stop  <-chan struct{}

	since     time.Time // from when on the guest is waited for: an agent that was away has not tried to reach it
	contacted bool      // there may be a job from here on
	recorded  bool      // and that is on record
	silent    bool      // and its silence has been reported
	beat      time.Time // of the heartbeat's file
	beatSeen  time.Time // when it was seen to change
	nextStart time.Time
	starting  chan error // nil while no attempt to start the guest's agent is under way
	lastError error
	taken     bool
	halting   bool
	nextWeigh time.Time // of the status share
}

func (m *minder) newWatch(tasks *sync.WaitGroup) *watch {
	now := m.s.opts.Now()
	return &watch{minder: m, tasks: tasks, stop: m.stop, since: now, beatSeen: now, contacted: m.r.Heard, recorded: m.r.Heard}
}

func (w *watch) look() {
	s, now := w.s, w.s.opts.Now()
	if beat, seen := guestshare.Heartbeat(s.statusDir(w.r.UID), now); seen && !beat.Equal(w.beat) {
		w.contacted, w.silent, w.beat, w.beatSeen = true, false, beat, now
	}
	w.recordContact()
	if w.contacted || !w.isUp() && now.Sub(w.r.StartedAt) >= s.opts.StayUp {
		w.markUp()
	}
	if w.halting {
		return
	}
	if w.contacted && !w.taken {
		w.taken = s.removeTaken(w.r)
	}
	// A report that cannot be read or trusted ends nothing: a job may have written it, or this host may be short of some resource for a
	// moment, while the command runs. The guest's agent replaces it by its own.
	_, reported, _ := s.report(w.r)
	switch {
	case reported: // the command has ended, and the machine with it
		s.opts.reached("reported")
		w.halt()
	case w.overfull(now): // TEN-6
	case !w.contacted && now.Sub(w.since) > s.opts.GuestPatience && guestshare.Absent(s.statusDir(w.r.UID), guestshare.FileHeartbeat):
		w.giveUp("GuestUnreachable", "the guest's agent could not be started in the virtual machine: "+text(w.lastError))
	case w.contacted && now.Sub(w.beatSeen) > s.opts.GuestSilence:
		if s.stopsIdle(w.r) {
			w.giveUp(reasonSilent, "the agent in the guest no longer reports, and does not stop the virtual machine, which no job can be in")
			return
		}
		w.noteSilence()
	case !w.contacted:
		w.start(now)
	}
}

// recordContact notes for the agents after this one that a job may run in the machine: a job can remove the heartbeat.
func (w *watch) recordContact() {
	if !w.contacted || w.recorded {
		return
	}
	_, err := w.s.update(w.r.UID, func(r *record) { r.Heard = true })
	w.recorded = err == nil // a disk that is full is tried again
}

// noteSilence reports a guest whose agent has reported and no longer does. That ends no machine that may have a job, also one that should stop: the host's disk may
// be full, or a job may have killed the agent, and the job runs on. GitHub knows whether the job has ended, and the server asks; it then has
// the pod deleted with a short grace period. A machine that does not stop is killed when its pod's grace period is over.
func (w *watch) noteSilence() {
	if w.silent {
		return
	}
	w.silent = true
	w.s.opts.Log.Warn("the agent in a guest no longer reports; the virtual machine is left running", "vm", w.r.VM)
	w.s.news(w.r.UID, reasonSilent, "the agent in the guest no longer reports; the virtual machine is left running until the grace period of its deleted pod is over")
}

// overfull ends a machine whose guest takes more of this host's disk than it may, by the directory that it shares with it, and reports whether it
// did. The other machine's disk lies there as well.
func (w *watch) overfull(now time.Time) bool {
	if now.Before(w.nextWeigh) {
		return false
	}
	w.nextWeigh = now.Add(w.s.opts.StatusEvery)
	guestshare.RemoveReports(w.s.statusDir(w.r.UID), w.s.waited)
	excess := guestshare.Excess(w.s.statusDir(w.r.UID), w.s.opts.MaxStatus)
	if excess == "" {
		return false
	}
	message := "the directory that the guest shares with its host (" + runnerpod.EnvStatusDir + ") " + excess + "; it is for the runner's log and signs: have the job write elsewhere"
	w.giveUp(reasonShare, message)
	w.halt() // also where the disk is too full to record why
	w.s.news(w.r.UID, reasonShare, message)
	return true
}

func text(err error) string {
	if err == nil {
		return "no response"
	}
	return err.Error()
}

// start tries to start the guest's agent, unless that is under way or was tried just now.
func (w *watch) start(now time.Time) {
	if w.starting != nil {
		select {
		case err := <-w.starting:
			w.starting, w.lastError, w.nextStart = nil, err, now.Add(w.s.opts.GuestRetry)
		default:
			return
		}
	}
	if now.Before(w.nextStart) {
		return
	}
	result := make(chan error, 1)
	w.starting = result
	w.tasks.Go(func() {
		w.s.opts.reached("guest-start")
		result <- w.s.startGuest(w.ctx, w.r)
	})
}

// giveUp ends a machine that is of no use, and records why before.
func (w *watch) giveUp(reason, message string) {
	w.s.opts.Log.Warn("giving up on a virtual machine", "vm", w.r.VM, "reason", reason, "detail", message)
	if _, err := w.s.update(w.r.UID, func(r *record) { r.GaveUp, r.GaveUpMessage = reason, message }); err != nil {
		w.s.opts.Log.Error("recording that a virtual machine was given up", "vm", w.r.VM, "error", err)
		return
	}
	w.halt()
}

// halt ends the machine, beside the looks.
func (w *watch) halt() {
	if w.halting {
		return
	}
	w.halting = true
	w.tasks.Go(func() { w.s.halt(w.ctx, w.r) })
}

func (m *minder) isUp() bool {
	select {
	case <-m.up:
		return true
	default:
		return m.r.StayedUp
	}
}

// markUp notes that the machine has stayed up.
func (m *minder) markUp() {
	select {
	case <-m.up:
		return
	default:
	}
	if !m.r.StayedUp {
		if _, err := m.s.update(m.r.UID, func(r *record) { r.StayedUp = true }); err != nil {
			m.s.opts.Log.Error("recording that a virtual machine runs", "vm", m.r.VM, "error", err)
		}
		m.s.slots.change(func(l *ledger) { l.stayed(m.r.UID) })
		m.s.opts.reached("up")
	}
	close(m.up)
}

// takeBack undoes a start that failed, unless it was reported as started, and returns whether it did.
func (m *minder) takeBack(exit sandbox.Exit) bool {
	r, undone := m.undo()
	if !undone {
		return false
	}
	m.s.opts.reached("taken-back")
	// Not under the lock: this may stop a machine and delete a base, and a caller that waits for this minder blocks all other minders
	// (NODE-6).
	failed := m.s.verdict(r, stepRun, m.s.runFailure(r, exit))
	m.mu.Lock()
	m.failed = failed
	m.mu.Unlock()
	m.s.slots.change(func(l *ledger) { l.release(m.r.UID) })
	return true
}

// undo removes the start from the record, unless it was reported as started.
func (m *minder) undo() (record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.committed {
		return record{}, false
	}
	r, err := m.s.load(m.r.UID)
	if err != nil || r.Killed {
		return record{}, false
	}
	if _, err := m.s.update(m.r.UID, func(r *record) { r.Begun = false }); err != nil {
		m.s.opts.Log.Error("cleaning up after a failed start", "vm", m.r.VM, "error", err)
		return record{}, false
	}
	m.takenBack = true
	return r, true
}

// settle writes down how the runner ended. The slot is free from here on: no process of the machine is left.
func (m *minder) settle(run sandbox.Exit) {
	report, reported, err := m.s.report(m.r)
	if guestshare.HostFailed(err) {
		// Not settled: Wait's caller asks again.
		m.s.opts.Log.Error("reading the guest's report", "vm", m.r.VM, "error", err)
		m.s.slots.change(func(l *ledger) { l.release(m.r.UID) })
		return
	}
	if err != nil {
		m.s.opts.Log.Warn("the guest's report is invalid", "vm", m.r.VM, "error", err)
	}
	if !reported && err == nil {
		m.learn(run)
	}
	m.s.opts.reached("settling")
	_, err = m.s.update(m.r.UID, func(r *record) {
		if r.Exit != nil {
			return
		}
		e := evidence{
			Killed: r.Killed, GaveUp: r.GaveUp, GaveUpMessage: r.GaveUpMessage, Run: run, LastWords: clip(firstLine(m.s.lastWords(*r)), 512),
			StartedAt: r.StartedAt,
		}
		if reported {
			e.Report = &report
		}
		exit := attribute(e)
		r.Exit = &exit
	})
	m.s.slots.change(func(l *ledger) { l.release(m.r.UID) })
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		m.s.opts.Log.Error("recording the exit of a virtual machine", "vm", m.r.VM, "error", err)
	}
}

// learn derives the host's state from an exit before the guest's first report: on a slow host Tart refuses when the machine already counts
// as having stayed up, and would refuse the next pod, too.
func (m *minder) learn(run sandbox.Exit) {
	r, err := m.s.load(m.r.UID)
	if err != nil || run.Unknown || run.Code == 0 || run.Signal != 0 || r.Killed || r.GaveUp != "" || m.s.contacted(r) {
		return
	}
	_ = m.s.verdict(r, stepRun, m.s.runFailure(r, run)) // the pod has ended, and has no use for the rest
}

// abandon ends the minder, not the machine, and waits for it.
func (m *minder) abandon() {
	m.cancel()
	<-m.done
}
