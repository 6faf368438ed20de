package tart

import (
	"errors"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
)

// Reasons for which a runner waits.
const (
	reasonNoSlot    = "NoFreeSlot"
	reasonNoSession = "NoGUISession"
	reasonGhost     = "GhostSlot"
	reasonPull      = "ErrImagePull" // as a kubelet says it
	reasonCreate    = "TartCreateFailed"
	reasonDisk      = "HostDiskFull"
	reasonTart      = "TartNotUsable"
)

// kindNotCounted is a failure of the system, not of Tart: without a count nothing is started.
const kindNotCounted tartcli.Kind = "MachinesNotCounted"

// step is what was being done when Tart failed.
type step string

const (
	stepPull  step = "pull"
	stepClone step = "clone"
	stepSet   step = "set"
	stepRun   step = "run"
	stepList  step = "list"
)

// measure is what a failure calls for, beside trying again.
type measure struct {
	Reason string
	// CoolSlot: the slot is occupied by a ghost.
	CoolSlot bool
	// NoSession: the user has lost the GUI session.
	NoSession bool
	// DropGolden: the base itself is suspect.
	DropGolden bool
	// StopFirst: the machine runs although nothing of ours says so.
	StopFirst bool
	// HostSick: Tart itself cannot be used.
	HostSick bool
}

// judge says what a failure of Tart calls for. Every kind there is has an answer; none of them concerns another pod.
func judge(at step, kind tartcli.Kind) measure {
	m := measure{Reason: reasonCreate}
	if at == stepPull {
		m.Reason = reasonPull
	}
	switch kind {
	case tartcli.KindLimit:
		m.Reason, m.CoolSlot = reasonGhost, at == stepRun
	case tartcli.KindNoSession:
		m.Reason, m.NoSession = reasonNoSession, true
	case tartcli.KindCorrupt, tartcli.KindNotFound:
		m.DropGolden = at != stepPull && at != stepList
	case tartcli.KindRunning:
		m.StopFirst = at != stepPull && at != stepList
	case tartcli.KindNoSpace:
		m.Reason = reasonDisk
	case tartcli.KindNoProgram, tartcli.KindUsage, tartcli.KindUnreadable, kindNotCounted:
		m.Reason, m.HostSick = reasonTart, true
	case tartcli.KindImageMissing, tartcli.KindUnauthorized, tartcli.KindNetwork, tartcli.KindKeychain:
		m.Reason = reasonPull
	}
	return m
}

func delayed(reason, format string, args ...any) error {
	return &sandbox.DelayedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// verdict does what a failure calls for, and returns what the pod shows.
func (s *Sandbox) verdict(r record, at step, err error) error {
	var failed *tartcli.Error
	if !errors.As(err, &failed) || failed.Kind == tartcli.KindCanceled {
		return err
	}
	m := judge(at, failed.Kind)
	if m.CoolSlot {
		now := s.opts.Now()
		s.slots.change(func(l *ledger) { l.refused(r.UID, now, s.opts.Cooldown) })
		s.opts.Log.Warn("Tart rejects a virtual machine although a slot is free; backing off from the slot", "error", err)
	}
	if m.NoSession {
		s.state.setSession(false, "the login keychain is locked: "+failed.Message)
	}
	if m.HostSick {
		s.state.setTart(failed)
	}
	if m.StopFirst {
		err = errors.Join(err, s.stopVM(s.ctx, r.VM))
	}
	if m.DropGolden && at != stepClone { // a clone that failed has dropped it already
		err = errors.Join(err, s.dropBaseOf(r))
	}
	return &sandbox.DelayedError{Reason: m.Reason, Message: err.Error(), Err: err}
}
