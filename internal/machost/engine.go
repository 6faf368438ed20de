package machost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Report is what came of an Apply or a Plan.
type Report struct {
	Changed  []string // steps that were changed, or in a plan would be
	Deferred []string // steps that wait until no virtual machine runs
}

// Options of Apply and Plan. Host and Steps are required.
type Options struct {
	Host  Host
	Steps []Step
	// Events receives each event, in order, from one goroutine. Nil: events are dropped.
	Events func(Event)
	// Busy says how many virtual machines run on the host. Its error counts as busy. Nil: none ever does.
	Busy func(context.Context) (int, error)
	// Hold defers disruptive changes also while no virtual machine runs, for one may be about to start.
	Hold bool
	// Lock keeps other applies away until unlock; it calls waiting if it has to wait. Nil: there are no others.
	Lock func(ctx context.Context, waiting func(message string)) (unlock func(), err error)
	// Secrets never get into an Event or an error, whatever a step does (HOST-6).
	Secrets Secrets
	// Hash and Version are recorded once everything is applied, see Applied. Without a Hash nothing is: these are not all the steps.
	Hash, Version string
	Now           func() time.Time // default time.Now
}

// Plan says what an Apply would do, by Checks alone. It changes nothing.
func Plan(ctx context.Context, o Options) (Report, error) { return newRun(ctx, o, true).all(ctx) }

// Apply makes the host what the steps say, in their order: Check, Apply if something differs and Check again, Verify always (HOST-1,
// HOST-3). The first step that fails ends it, because later ones may build on it; a *StepError says which, and what to do. Disruptive
// changes wait while virtual machines run: the other steps go on, and the error is ErrBusy at the end. When ctx ends, the change
// in hand is finished, and no other is begun, but what a Keeper starts again.
func Apply(ctx context.Context, o Options) (Report, error) { return newRun(ctx, o, false).all(ctx) }

// run is one Apply or Plan.
type run struct {
	Options
	redactor *Redactor
	planning bool
	dirty    bool // the record says that an apply is under way
	report   Report
}

func newRun(_ context.Context, o Options, planning bool) *run {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &run{Options: o, planning: planning, redactor: NewRedactor(o.Secrets)}
}

func (r *run) tell(e Event) {
	if r.Events != nil {
		e.Time = r.Now().UTC()
		r.Events(r.redactor.Event(e))
	}
}

// all goes through the steps.
func (r *run) all(ctx context.Context) (Report, error) {
	if !r.planning && r.Lock != nil {
		unlock, err := r.Lock(ctx, func(message string) { r.tell(Event{Phase: PhaseApplying, Message: message}) })
		if err != nil {
			return r.report, r.failed("lock", err)
		}
		defer unlock()
	}
	for i, step := range r.Steps {
		err := ctx.Err()
		if err == nil {
			err = r.step(ctx, step)
		}
		if err != nil {
			return r.report, r.failed(step.Name(), r.keep(ctx, r.Steps[i:], err))
		}
	}
	return r.report, r.end()
}

// keep is for the steps that an apply does not complete, because of err. An earlier apply, or this one, may have stopped what they keep.
func (r *run) keep(ctx context.Context, left []Step, err error) error {
	if r.planning {
		return err
	}
	for _, step := range left {
		keeper, ok := step.(Keeper)
		if !ok {
			continue
		}
		if failed := keeper.Keep(context.WithoutCancel(ctx), changing{r.Host}); failed != nil {
			err = errors.Join(err, fmt.Errorf("step %s: %w", step.Name(), failed))
		}
	}
	return err
}

func (r *run) end() error {
	switch {
	case r.planning:
		message := ""
		if len(r.report.Changed) == 0 {
			message = "nothing to do"
		}
		r.tell(Event{Phase: PhaseDone, Message: message})
		return nil
	case len(r.report.Deferred) > 0:
		r.tell(Event{Phase: PhaseDeferred, Message: fmt.Sprintf("%v: %s wait until none does", ErrBusy, strings.Join(r.report.Deferred, ", "))})
		return fmt.Errorf("%w: %s wait until none does", ErrBusy, strings.Join(r.report.Deferred, ", "))
	}
	if err := r.record(); err != nil {
		return r.failed("record", err)
	}
	r.tell(Event{Phase: PhaseDone, Hash: r.Hash})
	return nil
}

func (r *run) step(ctx context.Context, step Step) error {
	diff, err := step.Check(ctx, r.Host)
	if err != nil {
		return err
	}
	name := step.Name()
	switch {
	case diff.Empty():
	case r.planning:
		r.report.Changed = append(r.report.Changed, name)
		r.tell(Event{Step: name, Phase: PhasePlanned, Changes: diff.Changes, Message: r.planMessage(diff)})
		return nil
	case diff.Disruptive && !r.idle(ctx, name, diff):
		r.report.Deferred = append(r.report.Deferred, name)
		return nil
	default:
		r.tell(Event{Step: name, Phase: PhaseApplying, Changes: diff.Changes})
		err := r.change(ctx, step)
		if errors.Is(err, ErrBusy) {
			r.report.Deferred = append(r.report.Deferred, name)
			r.tell(Event{Step: name, Phase: PhaseDeferred, Changes: diff.Changes, Message: err.Error()})
			return nil
		}
		if err != nil {
			return err
		}
	}
	if r.planning {
		r.tell(Event{Step: name, Phase: PhaseUnchanged})
		return nil
	}
	if err := step.Verify(ctx, r.Host); err != nil {
		return err
	}
	phase := PhaseUnchanged
	if !diff.Empty() {
		phase = PhaseApplied
		r.report.Changed = append(r.report.Changed, name)
	}
	r.tell(Event{Step: name, Phase: phase})
	return nil
}

func (r *run) planMessage(diff Diff) string {
	if diff.Disruptive {
		return "only while no virtual machine runs"
	}
	return ""
}

// idle reports whether no virtual machine runs; if that is unknown, none may be ended.
func (r *run) idle(ctx context.Context, name string, diff Diff) bool {
	if r.Hold {
		r.tell(Event{Step: name, Phase: PhaseDeferred, Changes: diff.Changes, Message: "it is held back until the Mac is out of service: a virtual machine may start at any time"})
		return false
	}
	if r.Busy == nil {
		return true
	}
	running, err := r.Busy(ctx)
	if err == nil && running == 0 {
		return true
	}
	why := fmt.Sprintf("%d virtual machines run", running)
	if err != nil {
		why = fmt.Sprintf("cannot count the running virtual machines: %v", err)
	}
	r.tell(Event{Step: name, Phase: PhaseDeferred, Changes: diff.Changes, Message: why})
	return false
}

// change applies a step and checks it again. The record of what is applied is void from the first change on, whether or not this apply
// completes.
func (r *run) change(ctx context.Context, step Step) error {
	host := changing{r.Host}
	if !r.dirty {
		if err := host.Remove(AppliedFile); err != nil {
			return err
		}
		r.dirty = true
	}
	if err := step.Apply(ctx, host); err != nil {
		return err
	}
	left, err := step.Check(ctx, r.Host)
	if err != nil {
		return fmt.Errorf("checking what was applied: %w", err)
	}
	if !left.Empty() {
		return &StepError{Step: step.Name(), Remedy: "Something else on the host may change it: look for other tools that manage this Mac, and apply again.",
			Err: fmt.Errorf("it was applied, and still differs: %s", strings.Join(left.Changes, "; "))}
	}
	return nil
}

// failed reports a failure, once, with no secret in it.
func (r *run) failed(step string, err error) error {
	failure := r.redactor.Failure(explain(step, err))
	r.tell(Event{Step: step, Phase: PhaseFailed, Message: failure.Err.Error(), File: failure.File, Remedy: failure.Remedy,
		WrongPassword: errors.Is(err, ErrWrongPassword)})
	return failure
}

// AppliedFile records what was applied last. It does not exist while an apply is running, or after one that did not complete.
const AppliedFile = StateDir + "/applied.json"

// StateDir is where the bootstrap keeps what it knows of a host.
const StateDir = "/usr/local/var/bullpen"

// Applied is the content of AppliedFile.
type Applied struct {
	Hash    string    `json:"hash"`
	Version string    `json:"version,omitempty"`
	Time    time.Time `json:"time"` // of the apply that changed something last
	Steps   []string  `json:"steps"`
}

// ReadApplied returns what was applied last. The error wraps fs.ErrNotExist when there is nothing that holds as a whole.
func ReadApplied(h Host) (Applied, error) {
	var applied Applied
	content, err := h.ReadFile(AppliedFile)
	if err != nil {
		return applied, err
	}
	if err := json.Unmarshal(content, &applied); err != nil {
		return applied, fmt.Errorf("reading %s: %w", AppliedFile, err)
	}
	return applied, nil
}

// record writes what is applied, last of all, unless it is written already (HOST-1).
func (r *run) record() error {
	if r.Hash == "" {
		return nil
	}
	now := Applied{Hash: r.Hash, Version: r.Version, Time: r.Now().UTC()}
	for _, step := range r.Steps {
		now.Steps = append(now.Steps, step.Name())
	}
	had, err := ReadApplied(r.Host)
	if err == nil && had.Hash == now.Hash && had.Version == now.Version && slices.Equal(had.Steps, now.Steps) {
		return nil
	}
	var kind *fs.PathError
	if errors.As(err, &kind) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.tidy(); err != nil {
		return err
	}
	content, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", AppliedFile, err)
	}
	return changing{r.Host}.WriteFile(AppliedFile, strings.NewReader(string(content)+"\n"), Attributes{Mode: 0o644})
}

// candidateSuffix ends the names, in StateDir, of what a step has checked before it put it in force. They are the step's own while
// it applies.
const candidateSuffix = ".candidate"

// tidy removes the candidates of an apply that was killed. Such an apply has left no record, so the next one runs tidy before it writes
// one.
func (r *run) tidy() error {
	names, err := r.Host.ReadDir(StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, candidateSuffix) {
			if err := (changing{r.Host}).Remove(StateDir + "/" + name); err != nil {
				return err
			}
		}
	}
	return nil
}
