package remote

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// errWithoutEnd is an apply that was killed: it has not reported its end. It is handled like a lost connection.
var errWithoutEnd = errors.New("the apply was killed on the host")

// errShutOut is an apply that cuts itself off: trying on would do so again and again, each time until the host takes it back.
var errShutOut = errors.New("it was lost twice when the host checked whether it is still reachable: its SSH guard denies the address of this client. The host has reverted the change; check ssh.allowFrom")

// exitDeferred is what `bullpen host apply` ends with when steps wait for virtual machines.
const exitDeferred = 75

// apply runs `bullpen host apply` on the host. The payload is the first line of its standard input, which stays open for the confirmations that
// it asks for.
func (b *bootstrap) apply(ctx context.Context, c *conn) error {
	b.tell(StageApply, machost.PhaseApplying, "")
	b.result.Report.Deferred = nil // an earlier attempt's
	run := &applying{b: b, ctx: c.ctx, answers: make(chan string, 8)}
	events := &parser{show: b.show, event: run.event, stop: c.end}
	out, err := c.run(ctx, command{
		script: b.applyScript(), limit: b.timing.Apply, silence: b.timing.Silence,
		stdout: events,
		stdin: func(ctx context.Context, w io.Writer) error {
			if _, err := w.Write(b.payload); err != nil {
				return err
			}
			return run.answer(ctx, w)
		},
	})
	var lost *lostError
	if errors.As(err, &lost) && run.unanswered {
		if b.shutOut++; b.shutOut == 2 {
			err = &LostError{Stage: StageApply, Attempts: b.resumes + 1, Err: errShutOut}
		}
	}
	if err != nil {
		return err
	}
	events.close()
	if !run.ended && out.code >= killedBySignal {
		return &lostError{errWithoutEnd}
	}
	detail := out.stderr
	if detail == "" {
		detail = string(events.noise)
	}
	return run.judge(out.code, b.show.text(detail))
}

// applyScript has no secret in it. The address that we come from is what the guard of port 22 must let in; sudo would not pass on
// the variable that says it.
func (b *bootstrap) applyScript() string {
	script := `s="${SSH_CONNECTION%% *}"; exec ` + b.sudoProgram() + ` -n ` + quote(b.remoteProgram()) +
		` host apply --stdin --output json ${s:+--session "$s"}`
	if b.opt.Plan {
		script += " --plan"
	}
	if b.opt.Hold {
		script += " --hold-disruptive"
	}
	return script + b.rootFlag()
}

// applying is one apply: what it says, and what it is answered.
type applying struct {
	b       *bootstrap
	ctx     context.Context // ends with the connection
	answers chan string     // tokens to confirm
	failed  *machost.StepError
	message string // of a failure that is of no step
	done    bool
	ended   bool // it has reported its end
	// unanswered indicates that the host has asked whether it can be reached, and has no answer yet.
	unanswered bool
}

// event is called for each event of the host, in their order, by one goroutine.
func (a *applying) event(e machost.Event) {
	report := &a.b.result.Report
	switch e.Phase {
	case machost.PhaseApplied, machost.PhasePlanned:
		remember(&report.Changed, e.Step)
	case machost.PhaseDeferred:
		if e.Step != "" {
			remember(&report.Deferred, e.Step)
		}
		a.ended = a.ended || e.Step == ""
	case machost.PhaseFailed:
		if e.Step != "" {
			a.ended, a.failed = true, failure(e)
		} else {
			a.ended, a.message = true, e.Message
		}
	case machost.PhaseDone:
		a.done, a.ended = true, true
		a.b.result.Hash = e.Hash
	}
	a.b.emit(e)
	if e.Phase == machost.PhaseConfirm {
		a.prove(e)
	}
}

// prove answers a question of the host whether it can still be reached. Without an answer it takes back what it has done.
func (a *applying) prove(e machost.Event) {
	if e.Token == "" {
		return
	}
	a.unanswered = true
	if err := a.b.confirm(a.ctx); err != nil {
		a.b.tell(e.Step, machost.PhaseConfirm, "the host is unreachable by a new connection and must revert the change: "+a.b.show.text(err.Error()))
		a.refuse() // at once, not after a minute
		return
	}
	a.b.tell(e.Step, machost.PhaseConfirm, "reached by a new connection")
	a.unanswered = false
	a.say(e.Token)
}

func (a *applying) refuse() { a.say("") }

func (a *applying) say(token string) {
	select {
	case a.answers <- token:
	default: // standard input has no reader any more
	}
}

// answer writes confirmations until the apply has ended, or something was not confirmed: standard input ends then.
func (a *applying) answer(ctx context.Context, w io.Writer) error {
	for {
		select {
		case token := <-a.answers:
			if token == "" {
				return nil
			}
			if _, err := io.WriteString(w, "confirm "+token+"\n"); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// judge says what the end of the apply means.
func (a *applying) judge(code int, detail string) error {
	switch {
	case a.failed != nil:
		return a.failed
	case code == exitDeferred:
		return fmt.Errorf("steps %v wait: %w", a.b.result.Report.Deferred, machost.ErrBusy)
	case code == 0 && a.done:
		return nil
	case code == 0:
		return &StageError{Stage: StageApply, Err: errors.New("the apply exited without reporting its result"), Detail: detail}
	case a.message != "":
		return &StageError{Stage: StageApply, Err: errors.New(a.message), Detail: detail}
	}
	return &StageError{Stage: StageApply, Err: fmt.Errorf("the apply exited with code %d", code), Detail: detail}
}

// failure is the error in an event.
func failure(e machost.Event) *machost.StepError {
	reason := errors.New(e.Message)
	if e.WrongPassword {
		reason = &wrongPasswordError{e.Message}
	}
	return &machost.StepError{Step: e.Step, File: e.File, Remedy: e.Remedy, Err: reason}
}

// wrongPasswordError is machost.ErrWrongPassword in the host's words.
type wrongPasswordError struct{ text string }

func (e *wrongPasswordError) Error() string { return e.text }
func (e *wrongPasswordError) Unwrap() error { return machost.ErrWrongPassword }
