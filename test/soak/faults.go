package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// breaker carries out steps: those of one target one after another, those of different targets side by side.
type breaker struct {
	s     *System
	round int
	tasks sync.WaitGroup

	mu    sync.Mutex
	lines map[string]chan struct{} // by target: closed when the last step for it is over
}

func newBreaker(s *System, round int) *breaker {
	return &breaker{s: s, round: round, lines: map[string]chan struct{}{}}
}

// do begins a step; it waits behind earlier ones that hit the same.
func (b *breaker) do(ctx context.Context, step schedule.Step) {
	target := step.Target
	if step.Kind == schedule.GitHub || step.Kind == schedule.JobCancel || step.Kind == schedule.PodStop {
		target = fmt.Sprint("#", step.Number) // any number of them at once
	}
	if strings.HasPrefix(step.Kind, "pool-") {
		target = "pools"
	}
	if strings.HasPrefix(step.Kind, "postgres-") {
		target = schedule.Postgres
	}
	b.mu.Lock()
	before := b.lines[target]
	done := make(chan struct{})
	b.lines[target] = done
	b.mu.Unlock()
	b.tasks.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		b.carryOut(ctx, step)
	})
}

// wait returns when every step that was begun is over.
func (b *breaker) wait() { b.tasks.Wait() }

func (b *breaker) carryOut(ctx context.Context, step schedule.Step) {
	deed := check.Deed{At: time.Now().UTC(), Round: b.round, Step: step.Number, Kind: step.Kind, Target: step.Target, Detail: step.Fault}
	if step.Route != "" || step.Status != 0 {
		deed.Detail += fmt.Sprintf(" %d %s", step.Status, step.Route)
	}
	b.s.say("%s", step)
	if err := b.s.apply(ctx, step, &deed); err != nil {
		deed.Error = err.Error()
		b.s.say("step %d (%s of %s): %v", step.Number, step.Kind, step.Target, err)
	}
	deed.Until = time.Now().UTC()
	b.s.noteDeed(deed)
}

func (s *System) noteDeed(d check.Deed) {
	if err := appendLines(s.evidence(check.FileDeeds), []check.Deed{d}); err != nil {
		s.log.Error("a deed was not written down", "error", err)
	}
}

// apply does what a step says, and returns when it is over.
func (s *System) apply(ctx context.Context, step schedule.Step, deed *check.Deed) error {
	length := time.Duration(step.For)
	switch step.Kind {
	case schedule.ServerKill, schedule.ControllerKill, schedule.AgentKill:
		return s.end(ctx, step.Target, syscall.SIGKILL, length)
	case schedule.ServerTerminate, schedule.ControllerEnd:
		return s.end(ctx, step.Target, syscall.SIGTERM, length)
	case schedule.ServersKill:
		var both sync.WaitGroup
		for name := range strings.SplitSeq(step.Target, "+") {
			both.Go(func() { _ = s.end(ctx, name, syscall.SIGKILL, length) })
		}
		both.Wait()
	case schedule.ServerFreeze, schedule.ControllerStill, schedule.AgentFreeze:
		if p := s.parts[step.Target]; p != nil {
			p.freeze(ctx, length)
		}
	case schedule.MachineKill:
		deed.Machine = step.Target
		return s.end(ctx, machineOf(step.Target), syscall.SIGKILL, length)
	case schedule.PostgresRestart:
		return s.database.restart(ctx)
	case schedule.PostgresKill:
		return s.database.kill(ctx, length)
	case schedule.PostgresFull:
		return errors.Join(s.disk.full(ctx, length), s.database.revive(ctx))
	case schedule.PostgresCut:
		s.postgres[step.Target].away(ctx, length)
	case schedule.PostgresStall:
		s.postgres[step.Target].stall(ctx, length)
	case schedule.PostgresRestore:
		return s.restoreDatabase(ctx, length)
	case schedule.APIRestart:
		return s.plane.Restart(ctx, controlplane.APIServer)
	case schedule.APIKill:
		return s.killAPIServer(ctx)
	case schedule.APIFreeze:
		if pid := s.plane.Pids()[controlplane.APIServer]; pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			pause(ctx, length)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	case schedule.APIConflicts:
		return s.conflict(ctx, step.Target, length)
	case schedule.PollsCut:
		s.polls.away(ctx, length)
	case schedule.PollsStall:
		s.polls.stall(ctx, length)
	default:
		return s.applyOutside(ctx, step, deed)
	}
	return nil
}

// applyOutside is what GitHub, its users and an administrator do.
func (s *System) applyOutside(ctx context.Context, step schedule.Step, deed *check.Deed) error {
	length := time.Duration(step.For)
	switch step.Kind {
	case schedule.GitHubDown:
		s.github.down.Store(true)
		pause(ctx, length)
		s.github.down.Store(false)
	case schedule.GitHub:
		fault := standin.Fault{
			Kind: standin.FaultKind(step.Fault), Percent: step.Percent, Status: step.Status, Route: step.Route, Delay: standin.Duration(step.Delay),
		}
		if step.Account > 0 {
			fault.Installation = installation(step.Account)
		}
		if fault.Kind == standin.FaultRemoveBusy {
			s.github.removesBusy.Add(1)
			defer s.github.removesBusy.Add(-1)
		}
		added, err := s.github.server.AddFault(fault)
		if err != nil {
			return err
		}
		pause(ctx, length)
		s.github.server.RemoveFault(added.ID)
	case schedule.JobCancel:
		return s.cancelJob(step, deed)
	case schedule.PoolRoll:
		return s.rollPool(ctx, step.Target)
	case schedule.PoolZero:
		return s.zeroPool(ctx, step.Target, length)
	case schedule.PoolRename:
		return s.renamePool(ctx, step.Target)
	case schedule.NodeCordon:
		return s.cordon(ctx, step.Target, length)
	case schedule.NodeDelete:
		return s.deleteNode(ctx, step.Target)
	case schedule.NodeDrain:
		return s.drainNode(ctx, step.Target, length)
	case schedule.PodDelete:
		return s.deleteBusyPods(ctx, step.Value == 1)
	case schedule.PodStop:
		return s.stopPod(ctx, step, deed)
	case schedule.NodeEmpty:
		return s.emptyNode(ctx, step.Target, length, deed)
	case schedule.NodeTerminate:
		return s.terminateNode(ctx, step.Target)
	case schedule.DieAt:
		return s.dieAt(ctx, step, deed)
	case schedule.ClockSkew:
		return s.skewClock(ctx, step, deed)
	case schedule.LimitChange:
		return s.setLimit(ctx, step.Target, step.Value)
	default:
		return fmt.Errorf("the soak does not know how to do %q", step.Kind)
	}
	return nil
}

func (s *System) end(ctx context.Context, name string, signal syscall.Signal, away time.Duration) error {
	p := s.parts[name]
	if p == nil {
		return nil // this soak has no such part
	}
	return p.end(ctx, signal, away)
}

// restoreDatabase cuts every server off, so that nothing is committed unseen, and puts the database back.
func (s *System) restoreDatabase(ctx context.Context, away time.Duration) error {
	for _, p := range s.postgres {
		p.setRefuse(true)
		p.cut()
	}
	defer func() {
		for _, p := range s.postgres {
			p.setRefuse(false)
		}
	}()
	if err := s.database.restore(ctx, away); err != nil {
		return err
	}
	return s.database.snapshot(ctx)
}

// dieAt has the process that passes a point for the n-th time die there. A point that is not passed in time is disarmed.
func (s *System) dieAt(ctx context.Context, step schedule.Step, deed *check.Deed) error {
	armed := s.path("faultpoints", step.Target)
	if err := os.WriteFile(armed, []byte(strconv.Itoa(step.Value)), 0o600); err != nil {
		return fmt.Errorf("arming %s: %w", step.Target, err)
	}
	limit := time.Now().Add(time.Duration(step.For))
	for time.Now().Before(limit) {
		if _, err := os.Stat(armed); errors.Is(err, fs.ErrNotExist) {
			deed.Detail = fmt.Sprintf("the %d. passing was the last", step.Value)
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	deed.Detail = "not reached"
	_ = os.Remove(armed) // or it was reached just now
	return nil
}

// skewClock has one process see another time for a while.
func (s *System) skewClock(ctx context.Context, step schedule.Step, deed *check.Deed) error {
	skew := time.Duration(step.Value) * time.Second
	deed.Detail = skew.String()
	file := s.path("faultpoints", "clock."+strconv.Itoa(s.parts[step.Target].current().PID()))
	if err := os.WriteFile(file, []byte(skew.String()), 0o600); err != nil {
		return fmt.Errorf("changing a clock: %w", err)
	}
	pause(ctx, time.Duration(step.For))
	return os.Remove(file)
}

func (s *System) killAPIServer(ctx context.Context) error {
	pid := s.plane.Pids()[controlplane.APIServer]
	if pid == 0 {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for s.plane.Pids()[controlplane.APIServer] == pid { // until it was waited for
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return s.plane.StartComponent(ctx, controlplane.APIServer)
}

// cancelJob cancels one of the jobs that wait, or one of those that run, as a user does.
func (s *System) cancelJob(step schedule.Step, deed *check.Deed) error {
	wanted := "queued"
	if step.Target == "running" {
		wanted = "in_progress"
	}
	jobs := slices.DeleteFunc(s.github.server.Jobs(), func(j standin.JobView) bool { return j.Status != wanted })
	if len(jobs) == 0 {
		return nil
	}
	job := jobs[int(step.Choice)%len(jobs)]
	deed.Jobs = []int64{job.ID}
	return s.github.server.CancelJob(job.ID)
}
