package machost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// fakeStep is a step over a map of what the host is.
type fakeStep struct {
	name       string
	log        *[]string
	differs    bool
	disruptive bool
	stubborn   bool // applying does not help
	failCheck  error
	failApply  error
	failVerify error
}

func (s *fakeStep) Name() string { return s.name }

func (s *fakeStep) Check(context.Context, machost.Host) (machost.Diff, error) {
	*s.log = append(*s.log, s.name+".check")
	if s.differs {
		return machost.Diff{Changes: []string{"set " + s.name}, Disruptive: s.disruptive}, s.failCheck
	}
	return machost.Diff{}, s.failCheck
}

func (s *fakeStep) Apply(context.Context, machost.Host) error {
	*s.log = append(*s.log, s.name+".apply")
	if s.failApply == nil && !s.stubborn {
		s.differs = false
	}
	return s.failApply
}

func (s *fakeStep) Verify(context.Context, machost.Host) error {
	*s.log = append(*s.log, s.name+".verify")
	return s.failVerify
}

type bench struct {
	log    []string
	events []machost.Event
	host   machost.Local
}

func newBench(t *testing.T) *bench {
	return &bench{host: machost.Local{Root: t.TempDir()}}
}

func (b *bench) step(name string) *fakeStep { return &fakeStep{name: name, log: &b.log} }

func (b *bench) options(steps ...machost.Step) machost.Options {
	return machost.Options{
		Host: b.host, Steps: steps, Events: func(e machost.Event) { b.events = append(b.events, e) },
		Hash: "h1", Version: "v1", Now: func() time.Time { return time.Unix(1e9, 0) },
	}
}

// sequence lists the events in order, without times.
func (b *bench) sequence() string {
	var lines []string
	for _, e := range b.events {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Step, e.Phase, strings.Join(e.Changes, ","))))
	}
	return strings.Join(lines, "\n")
}

func TestApply_HOST1_ChecksAppliesChecksAgainAndVerifies(t *testing.T) {
	b := newBench(t)
	one, two := b.step("one"), b.step("two")
	two.differs = true
	report, err := machost.Apply(t.Context(), b.options(one, two))
	require.NoError(t, err)
	require.Equal(t, []string{"two"}, report.Changed)
	require.Equal(t, "one.check one.verify two.check two.apply two.check two.verify", strings.Join(b.log, " "))
	require.Equal(t, "one Unchanged\ntwo Applying set two\ntwo Applied\nDone", b.sequence())
	require.Equal(t, "h1", b.events[len(b.events)-1].Hash)

	b.log, b.events = nil, nil
	before, err := b.host.ReadFile(machost.AppliedFile)
	require.NoError(t, err)
	options := b.options(one, two)
	options.Now = time.Now
	report, err = machost.Apply(t.Context(), options)
	require.NoError(t, err)
	require.Empty(t, report.Changed)
	require.Equal(t, "one.check one.verify two.check two.verify", strings.Join(b.log, " "), "HOST-3: verified although nothing differed")
	after, err := b.host.ReadFile(machost.AppliedFile)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "applying twice changes nothing, not even a time")
}

func TestApply_HOST1_AStepThatDoesNotConvergeFails(t *testing.T) {
	b := newBench(t)
	one := b.step("one")
	one.differs, one.stubborn = true, true
	_, err := machost.Apply(t.Context(), b.options(one, b.step("two")))
	var failed *machost.StepError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "one", failed.Step)
	require.ErrorContains(t, err, "still differs: set one")
	require.NotContains(t, strings.Join(b.log, " "), "two", "later steps may build on it")
	require.NotContains(t, strings.Join(b.log, " "), "verify")
	_, err = machost.ReadApplied(b.host)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestApply_HOST3_WhatIsNotInForceFailsAlsoWhereNothingDiffers(t *testing.T) {
	b := newBench(t)
	one := b.step("one")
	_, err := machost.Apply(t.Context(), b.options(one))
	require.NoError(t, err)
	one.failVerify = errors.New("sealed")
	_, err = machost.Apply(t.Context(), b.options(one))
	require.ErrorIs(t, err, one.failVerify)
	require.ErrorContains(t, err, "step one")
	require.Equal(t, machost.PhaseFailed, b.events[len(b.events)-1].Phase)
}

func TestPlan_ChangesNothingAndSaysSoWhenThereIsNothingToDo(t *testing.T) {
	b := newBench(t)
	one, two := b.step("one"), b.step("two")
	one.differs, one.disruptive = true, true
	options := b.options(one, two)
	options.Busy = func(context.Context) (int, error) { return 2, nil }
	options.Lock = func(context.Context, func(string)) (func(), error) { return nil, errors.New("a plan needs no lock") }
	report, err := machost.Plan(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, report.Changed)
	require.Equal(t, "one.check two.check", strings.Join(b.log, " "))
	require.Equal(t, "only while no virtual machine runs", b.events[0].Message)
	names, err := b.host.ReadDir("/")
	require.NoError(t, err)
	require.Empty(t, names)

	one.differs, b.events = false, nil
	_, err = machost.Plan(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, "nothing to do", b.events[len(b.events)-1].Message)
}

// What ends virtual machines waits for them; the rest goes on, and nothing is recorded as applied.
// NODE-3: between two jobs no machine runs for a moment, and the next one is about to.
func TestApply_NODE3_DisruptiveChangesAreHeldBackWhileAMachineMayStart(t *testing.T) {
	b := newBench(t)
	first, second := b.step("first"), b.step("second")
	first.differs, first.disruptive, second.differs = true, true, true
	o := b.options(first, second)
	o.Hold, o.Busy = true, func(context.Context) (int, error) { return 0, nil }
	report, err := machost.Apply(t.Context(), o)
	require.ErrorIs(t, err, machost.ErrBusy)
	require.Equal(t, machost.Report{Changed: []string{"second"}, Deferred: []string{"first"}}, report)
	require.NotContains(t, b.log, "first.apply")
}

func TestApply_DisruptiveChangesWaitForVirtualMachines(t *testing.T) {
	for name, busy := range map[string]func(context.Context) (int, error){
		"one runs":     func(context.Context) (int, error) { return 1, nil },
		"nobody knows": func(context.Context) (int, error) { return 0, errors.New("ps is gone") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			one, two := b.step("one"), b.step("two")
			one.differs, one.disruptive, two.differs = true, true, true
			options := b.options(one, two)
			options.Busy = busy
			report, err := machost.Apply(t.Context(), options)
			require.ErrorIs(t, err, machost.ErrBusy)
			require.Equal(t, machost.Report{Changed: []string{"two"}, Deferred: []string{"one"}}, report)
			require.NotContains(t, b.log, "one.apply")
			require.Equal(t, "one Deferred set one\ntwo Applying set two\ntwo Applied\nDeferred", b.sequence())
			_, err = machost.ReadApplied(b.host)
			require.ErrorIs(t, err, fs.ErrNotExist)

			options.Busy = func(context.Context) (int, error) { return 0, nil }
			report, err = machost.Apply(t.Context(), options)
			require.NoError(t, err)
			require.Equal(t, []string{"one"}, report.Changed)
		})
	}
}

// A machine has started since the engine has counted them, or one of another kind runs.
func TestApply_AStepThatFindsVirtualMachinesIsDeferred(t *testing.T) {
	b := newBench(t)
	one, two := b.step("one"), b.step("two")
	one.differs, one.failApply, two.differs = true, fmt.Errorf("%w: 1", machost.ErrBusy), true
	report, err := machost.Apply(t.Context(), b.options(one, two))
	require.ErrorIs(t, err, machost.ErrBusy)
	require.Equal(t, machost.Report{Changed: []string{"two"}, Deferred: []string{"one"}}, report)
	require.Equal(t, "one Applying set one\none Deferred set one\ntwo Applying set two\ntwo Applied\nDeferred", b.sequence())
	_, err = machost.ReadApplied(b.host)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A host that was A, failed to become B, and is configured as A again must not be taken for A.
func TestApply_TheRecordIsVoidFromTheFirstChangeOn(t *testing.T) {
	b := newBench(t)
	one, two := b.step("one"), b.step("two")
	_, err := machost.Apply(t.Context(), b.options(one, two))
	require.NoError(t, err)
	one.differs, two.differs, two.failApply = true, true, errors.New("no")
	_, err = machost.Apply(t.Context(), b.options(one, two))
	require.ErrorIs(t, err, two.failApply)
	_, err = machost.ReadApplied(b.host)
	require.ErrorIs(t, err, fs.ErrNotExist)
	two.failApply = nil
	_, err = machost.Apply(t.Context(), b.options(one, two))
	require.NoError(t, err)
	applied, err := machost.ReadApplied(b.host)
	require.NoError(t, err)
	require.Equal(t, machost.Applied{Hash: "h1", Version: "v1", Time: time.Unix(1e9, 0).UTC(), Steps: []string{"one", "two"}}, applied)
}

func TestApply_AHalfWrittenRecordIsWrittenAnew(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.host.WriteFile(machost.AppliedFile, strings.NewReader(`{"hash":"h1`), machost.Attributes{Mode: 0o644}))
	_, err := machost.Apply(t.Context(), b.options(b.step("one")))
	require.NoError(t, err)
	applied, err := machost.ReadApplied(b.host)
	require.NoError(t, err)
	require.Equal(t, "h1", applied.Hash)
}

// If an apply is killed between activating a file and removing its candidate, no step differs that would remove it.
func TestApply_HOST1_CandidatesOfAKilledApplyAreRemoved(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"sudoers.candidate", "node-agent.json"} {
		require.NoError(t, b.host.WriteFile(machost.StateDir+"/"+name, strings.NewReader("x"), own(0o600)))
	}
	_, err := machost.Apply(t.Context(), b.options(b.step("one")))
	require.NoError(t, err)
	require.Equal(t, []string{"applied.json", "node-agent.json"}, names(t, b.host, machost.StateDir))
}

func TestApply_EndsBetweenTwoSteps(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	one := b.step("one")
	one.differs = true
	options := b.options(one, b.step("two"))
	options.Events = func(e machost.Event) {
		b.events = append(b.events, e)
		if e.Phase == machost.PhaseApplied {
			cancel()
		}
	}
	_, err := machost.Apply(ctx, options)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "apply again to continue")
	require.NotContains(t, b.log, "two.check")
}

// keeper is a step with a program.
type keeper struct {
	*fakeStep
	failKeep error
}

func (k keeper) Keep(ctx context.Context, _ machost.Host) error {
	*k.log = append(*k.log, k.name+".keep")
	return errors.Join(ctx.Err(), k.failKeep)
}

func TestApply_NODE3_AnApplyThatEndsEarlyKeepsWhatItDoesNotReach(t *testing.T) {
	b := newBench(t)
	done, failing, kept := keeper{fakeStep: b.step("done")}, keeper{fakeStep: b.step("failing")}, keeper{fakeStep: b.step("kept")}
	failing.failCheck = errors.New("the disk is full")
	_, err := machost.Apply(t.Context(), b.options(done, b.step("other"), failing, kept))
	require.EqualError(t, err, "step failing: the disk is full. Apply again; if it recurs, see the program's message above.")
	require.Equal(t, "done.check done.verify other.check other.verify failing.check failing.keep kept.keep", strings.Join(b.log, " "))

	b.log = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = machost.Apply(ctx, b.options(done, failing, kept))
	require.EqualError(t, err, "step done: context canceled. It was stopped between two changes: apply again to continue.", "the steps have a context that goes on")
	require.Equal(t, "done.keep failing.keep kept.keep", strings.Join(b.log, " "))

	kept.failKeep = errors.New("launchd refuses")
	_, err = machost.Apply(t.Context(), b.options(failing, kept))
	require.ErrorIs(t, err, failing.failCheck)
	require.ErrorContains(t, err, "step kept: launchd refuses")

	b.log = nil
	_, err = machost.Plan(t.Context(), b.options(failing, kept))
	require.ErrorIs(t, err, failing.failCheck)
	require.Equal(t, "failing.check", strings.Join(b.log, " "), "a plan changes nothing")
}

// What a step advises is about a program that failed.
func TestApply_AnInterruptedProgramIsNoFailedOne(t *testing.T) {
	b := newBench(t)
	one := b.step("one")
	one.differs = true
	one.failApply = &machost.StepError{File: "/etc/one", Err: fmt.Errorf("running it: %w", context.Canceled), Remedy: "Look at what it says."}
	_, err := machost.Apply(t.Context(), b.options(one))
	require.ErrorContains(t, err, "step one: /etc/one: ")
	require.ErrorContains(t, err, "apply again to continue")
	require.NotContains(t, err.Error(), "Look at what it says")
}

// Every failure names the step, the file and what to do.
func TestApply_FailuresNameStepFileAndRemedy(t *testing.T) {
	for want, failure := range map[string]error{
		"read-only":                         &fs.PathError{Op: "writing", Path: "/etc/pf.conf", Err: syscall.EROFS},
		"The disk is full":                  fmt.Errorf("fetching: %w", &fs.PathError{Op: "writing", Path: "/etc/pf.conf", Err: syscall.ENOSPC}),
		"Apply as root":                     &fs.PathError{Op: "writing", Path: "/etc/pf.conf", Err: syscall.EPERM},
		"part of macOS 14":                  &machost.ProgramError{Path: "/etc/pf.conf", Err: fs.ErrNotExist},
		"what created the link":             &machost.LinkError{Path: "/etc/pf.conf", Link: "/etc"},
		"another kind of file exists there": &fs.PathError{Op: "writing", Path: "/etc/pf.conf", Err: syscall.ENOTDIR},
		"do this":                           fmt.Errorf("more: %w", &machost.StepError{File: "/etc/pf.conf", Remedy: "do this", Err: errors.New("why")}),
	} {
		b := newBench(t)
		one := b.step("one")
		one.differs, one.failApply = true, failure
		_, err := machost.Apply(t.Context(), b.options(one))
		var failed *machost.StepError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "one", failed.Step)
		require.Equal(t, "/etc/pf.conf", failed.File)
		require.Contains(t, strings.ToLower(failed.Remedy), strings.ToLower(want))
		last := b.events[len(b.events)-1]
		require.Equal(t, failed.Remedy, last.Remedy)
		require.Equal(t, "/etc/pf.conf", last.File)
	}
}

func TestApply_AFailureSaysStepFileAndRemedyOnce(t *testing.T) {
	b := newBench(t)
	one := b.step("one")
	inner := &machost.StepError{Step: "one", File: "/etc/x", Remedy: "Do this.", Err: syscall.EROFS}
	for want, failure := range map[string]error{
		"step one: /etc/x: read-only file system. Do this.":                 inner,
		"step one: /etc/x: taking back: read-only file system. Do this.":    fmt.Errorf("taking back: %w", inner),
		"step one: /etc/x: read-only file system\nand not undone. Do this.": errors.Join(inner, errors.New("and not undone")),
	} {
		one.failCheck = failure
		_, err := machost.Apply(t.Context(), b.options(one))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, syscall.EROFS)
	}
}

// An error whose own words hold no secret, around one whose words do.
type outer struct{ error }

func (outer) Error() string   { return "it failed" }
func (e outer) Unwrap() error { return e.error }

func TestApply_HOST6_NoSecretCanBeUnwrapped(t *testing.T) {
	b := newBench(t)
	one := b.step("one")
	one.failCheck = outer{errors.Join(errors.New("harmless"), fmt.Errorf("with hunter2: %w", syscall.EROFS))}
	options := b.options(one)
	options.Secrets.Password = machost.NewSecret("hunter2")
	_, err := machost.Apply(t.Context(), options)
	require.ErrorIs(t, err, syscall.EROFS)
	for e := err; e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), "hunter2")
	}
	require.NotErrorAs(t, err, new(outer))
}

// leak is a step that does what no step may.
func leak(b *bench, secret string) *fakeStep {
	s := b.step("leaky")
	s.failApply = &machost.StepError{File: "/x/" + secret, Remedy: "type " + secret, Err: fmt.Errorf("ran sudo -S with %s: %w", secret, syscall.EROFS)}
	return s
}

type leakyDiff struct {
	*fakeStep
	secret string
}

func (s leakyDiff) Check(context.Context, machost.Host) (machost.Diff, error) {
	return machost.Diff{Changes: []string{"write " + s.secret}}, nil
}

func TestApply_HOST6_NoSecretLeavesWhateverAStepSays(t *testing.T) {
	secrets := machost.Secrets{Password: machost.NewSecret(`pa"ss'w<ö>rd 9`), BootstrapKubeconfig: machost.NewSecret(kubeconfig)}
	for name, form := range formsOf(secrets) {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			options := b.options(leakyDiff{leak(b, form), form})
			options.Secrets = secrets
			_, err := machost.Apply(t.Context(), options)
			require.ErrorIs(t, err, syscall.EROFS, "what it is can still be asked")
			var failed *machost.StepError
			require.ErrorAs(t, err, &failed)
			events, jsonErr := json.Marshal(b.events)
			require.NoError(t, jsonErr)
			everything := fmt.Sprintf("%s\n%+v\n%#v\n%s\n%v\n%s", err, failed, failed, failed.Remedy, errors.Unwrap(failed), events)
			require.NotContains(t, everything, form)
			require.Contains(t, everything, "[redacted]")
		})
	}
}
