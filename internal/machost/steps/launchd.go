package steps

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// job is a launchd job of the system's domain.
type job struct {
	label, plist string
	clock        Clock
}

var pidLine = regexp.MustCompile(`(?m)^\s*pid = ([0-9]+)\s*$`)

func (j job) target() string { return "system/" + j.label }

// noSuchService is launchctl's exit code for a job that is not loaded.
const noSuchService = 113

// state reports whether launchd knows the job, and which process runs for it: 0 for none.
func (j job) state(ctx context.Context, h machost.Host) (loaded bool, pid int, err error) {
	command := machost.Command{Path: launchctl, Args: []string{"print", j.target()}}
	said, err := h.Run(ctx, command)
	switch {
	case err != nil || said.ExitCode == noSuchService:
		return false, 0, err
	case said.ExitCode != 0: // whether it is loaded is unknown
		return false, 0, &commandError{command.Path, command.Args, said}
	}
	if found := pidLine.FindSubmatch(said.Stdout); found != nil {
		pid, err = strconv.Atoi(string(found[1]))
	}
	return true, pid, err
}

// Times of a reload.
const (
	settleFor  = 5 * time.Second // a process that stays that long has started
	settleLook = 250 * time.Millisecond
	startWait  = 20 * time.Second // launchd waits 10 s before it starts a job again
	goneWait   = 30 * time.Second // bootout answers before the process has ended
)

// load makes launchd read the job's file, whatever it knew of it. It finishes what it has begun, also after the end of ctx: a job that was only
// unloaded would leave machines without an agent.
func (j job) load(ctx context.Context, h machost.Host) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := j.unload(ctx, h); err != nil {
		return err
	}
	// Background-task management disables jobs that it has seen come and go.
	if _, err := run(ctx, h, launchctl, "enable", j.target()); err != nil {
		return err
	}
	_, err := run(ctx, h, launchctl, "bootstrap", "system", j.plist)
	return err
}

// unload has launchd forget the job, and waits until it has.
func (j job) unload(ctx context.Context, h machost.Host) error {
	loaded, _, err := j.state(ctx, h)
	if err != nil || !loaded {
		return err
	}
	// Its exit code is ignored: it may mean that the operation is in progress. What counts is that the job is gone.
	said, err := h.Run(ctx, machost.Command{Path: launchctl, Args: []string{"bootout", j.target()}})
	if err != nil {
		return err
	}
	for deadline := j.clock.Now().Add(goneWait); ; {
		loaded, _, err := j.state(ctx, h)
		if err != nil || !loaded {
			return err
		}
		if j.clock.Now().After(deadline) {
			return fmt.Errorf("launchd still lists %s %s after it was unloaded: launchctl: %s", j.label, goneWait, firstLine(said))
		}
		if err := wait(ctx, j.clock, settleLook); err != nil {
			return err
		}
	}
}

// restart ends the job's process, if there is one, and starts another. It works on a dead job, too.
func (j job) restart(ctx context.Context, h machost.Host) error {
	_, err := run(ctx, h, launchctl, "kickstart", "-k", j.target())
	return err
}

// HOST-5: settle waits for a process other than the one of before, which stays. It reports whether there was one.
func (j job) settle(ctx context.Context, h machost.Host, before int) (bool, error) {
	deadline := j.clock.Now().Add(startWait)
	candidate, since := 0, time.Time{}
	for {
		_, pid, err := j.state(ctx, h)
		now := j.clock.Now()
		switch {
		case err != nil:
			return false, err
		case pid == 0 || pid == before:
			candidate = 0
		case pid != candidate:
			candidate, since = pid, now
		case now.Sub(since) >= settleFor:
			return true, nil
		}
		if candidate == 0 && now.After(deadline) || now.After(deadline.Add(settleFor)) {
			return false, nil
		}
		if err := wait(ctx, j.clock, settleLook); err != nil {
			return false, err
		}
	}
}
