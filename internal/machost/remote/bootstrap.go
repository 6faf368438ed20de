package remote

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// Bootstrap makes the target a host of the fleet, or with Options.Plan says what that would change. When it returns, nothing of it is left
// running here. The error is the context's, a *HostKeyError, *UnreachableError, *AuthError, *UnsupportedError, *SudoError, *LostError or
// *StageError of this package, or the apply's own: a *machost.StepError, or machost.ErrBusy when steps wait until no virtual machine runs
// (the others were applied). The Result is filled as far as it got, also with an error.
func Bootstrap(ctx context.Context, o Options) (Result, error) {
	b, err := newBootstrap(o)
	if err != nil {
		return Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, b.timing.Whole)
	defer cancel()
	err = b.untilDone(limited)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil {
		err = b.withDoubt(ctx, fmt.Errorf("the bootstrap timed out after %s, at the stage %s. Run it again to continue", b.timing.Whole, b.stage))
		b.tellFailure(b.stage, err)
	}
	b.result.HostKey = b.dialer.keys.fingerprint()
	return b.result, err
}

// bootstrap is one run, over as many connections as it takes. It belongs to one goroutine.
type bootstrap struct {
	opt     Options
	dialer  *dialer
	show    shower
	payload []byte // with the secrets in the clear
	program program
	timing  Timing

	// Completed stages are not repeated after a dropped connection.
	home       string
	uploaded   bool
	sudo       bool
	attempted  bool // the only attempt with the password was made, or may have been
	unanswered bool // and what came of it is not known
	resumes    int
	shutOut    int   // how often the connection was lost while the host asked whether it can be reached
	stage      Stage // in which the last connection ended
	result     Result
}

// program is the file to upload.
type program struct {
	path   string
	size   int64
	digest string
}

func newBootstrap(o Options) (*bootstrap, error) {
	timing := o.Timing.withDefaults()
	o.Timing = timing
	if o.Target.User == "" {
		o.Target.User = o.Payload.Config.User
	}
	if o.Target.Address == "" || o.Target.User == "" {
		return nil, errors.New("bootstrapping a host: address and user are required")
	}
	if o.Target.Key == nil && o.Target.Signers == nil {
		return nil, errors.New("bootstrapping a host: an SSH key is required")
	}
	if password := o.Payload.Secrets.Password.Reveal(); password != "" {
		if _, err := autologin.Encode(password); err != nil { // a line end in it would be a second attempt at sudo
			return nil, fmt.Errorf("bootstrapping a host: %w", err)
		}
		if len(password) > maxPassword {
			return nil, fmt.Errorf("bootstrapping a host: the password is longer than %d bytes, sudo's limit", maxPassword)
		}
	}
	payload, err := machost.EncodePayload(o.Payload)
	if err != nil {
		return nil, fmt.Errorf("bootstrapping a host: %w", err)
	}
	file, err := examine(o.Binary)
	if err != nil {
		return nil, err
	}
	address := withPort(o.Target.Address)
	keys, err := newHostKeys(o.Target, address)
	if err != nil {
		return nil, err
	}
	return &bootstrap{
		opt: o, timing: timing, payload: payload, program: file,
		show:   shower{machost.NewRedactor(o.Payload.Secrets)},
		dialer: &dialer{address: address, user: o.Target.User, keys: keys, signers: o.Target.signers, timing: timing},
	}, nil
}

// maxPassword is what sudo reads of a line.
const maxPassword = 1000

func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	if len(address) > 1 && address[0] == '[' && address[len(address)-1] == ']' {
		address = address[1 : len(address)-1]
	}
	return net.JoinHostPort(address, "22")
}

func (t Target) signers() ([]ssh.Signer, error) {
	var signers []ssh.Signer
	if t.Key != nil {
		signers = append(signers, t.Key)
	}
	if t.Signers != nil {
		more, err := t.Signers()
		if err != nil {
			return nil, fmt.Errorf("finding keys to log in with: %w", err)
		}
		signers = append(signers, more...)
	}
	if len(signers) == 0 {
		return nil, errors.New("finding SSH keys: none found; give a file, or add a key to the agent (ssh-add)")
	}
	return signers, nil
}

// examine reads the file once, to get the digest of the upload.
func examine(path string) (program, error) {
	f, err := os.Open(path)
	if err != nil {
		return program{}, fmt.Errorf("opening the program to upload: %w", err)
	}
	defer f.Close()
	digest := sha256.New()
	size, err := io.Copy(digest, f)
	if err != nil {
		return program{}, fmt.Errorf("reading the program to upload: %w", err)
	}
	return program{path: path, size: size, digest: hex.EncodeToString(digest.Sum(nil))}, nil
}

// untilDone takes dropped connections up again, a bounded number of times.
func (b *bootstrap) untilDone(ctx context.Context) error {
	pause := b.timing.Backoff
	for {
		stage, err := b.once(ctx)
		b.stage, err = stage, b.withDoubt(ctx, err)
		var lost *lostError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &lost):
			b.tellFailure(stage, err)
			return err
		case b.resumes >= b.timing.Resumes:
			err = b.withDoubt(ctx, &LostError{Stage: stage, Attempts: b.resumes + 1, Err: lost.err})
			b.tellFailure(stage, err)
			return err
		}
		b.resumes++
		b.tell(StageConnect, machost.PhaseApplying, fmt.Sprintf("the connection was lost during %s (%s); connecting again in %s, %d of %d",
			stage, b.show.text(lost.Error()), pause, b.resumes, b.timing.Resumes))
		select {
		case <-b.timing.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, time.Minute)
	}
}

// withDoubt makes a *SudoError of an end that leaves open whether the host has refused the password: it must not pass for a host that was only
// out of reach, which is tried again.
func (b *bootstrap) withDoubt(ctx context.Context, err error) error {
	var lost *lostError
	var sudo *SudoError
	var wrong *HostKeyError
	if err == nil || !b.unanswered || ctx.Err() != nil || errors.As(err, &lost) || errors.As(err, &sudo) || errors.As(err, &wrong) {
		return err
	}
	return &SudoError{User: b.opt.Target.User, Unknown: true, Detail: b.show.text(err.Error())}
}

// once goes as far as one connection goes, and says which stage ended it.
func (b *bootstrap) once(ctx context.Context) (Stage, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return StageConnect, err
	}
	defer c.close()
	for _, s := range []struct {
		stage Stage
		run   func(context.Context, *conn) error
	}{
		{StageProbe, b.probe}, {StageUpload, b.upload}, {StageSudo, b.obtainSudo}, {StageApply, b.apply},
	} {
		if err := s.run(ctx, c); err != nil {
			return s.stage, b.inStage(s.stage, err)
		}
	}
	return "", nil
}

// inStage gives an error that says nothing of where it came from its stage.
func (b *bootstrap) inStage(stage Stage, err error) error {
	var misbehaved *misbehavedError
	if errors.As(err, &misbehaved) {
		return &StageError{Stage: stage, Err: misbehaved}
	}
	return err
}

func (b *bootstrap) connect(ctx context.Context) (*conn, error) {
	b.tell(StageConnect, machost.PhaseApplying, "connecting to "+b.dialer.address)
	last := ""
	c, err := b.dialer.wait(ctx, b.timing.Wait, func(reason string) {
		if reason = b.show.text(reason); reason != last { // each once: it may come for minutes
			b.tell(StageConnect, machost.PhaseApplying, "waiting for SSH: "+reason)
			last = reason
		}
	})
	if err != nil {
		return nil, err
	}
	b.tell(StageConnect, machost.PhaseApplied, "connected, host key "+b.dialer.keys.fingerprint())
	return c, nil
}

// confirm proves that the host can be reached: by a connection of its own, to the same key, with a login and a command (HOST-7). It is
// tried until the time in which the apply takes back what it has done.
func (b *bootstrap) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timing.Confirm)
	defer cancel()
	c, err := b.dialer.wait(ctx, b.timing.Confirm, func(string) {})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no new connection could be opened within %s", b.timing.Confirm)
	}
	if err != nil {
		return err
	}
	defer c.close()
	out, err := c.run(ctx, command{script: "exit 0", limit: b.timing.Dial})
	if err == nil && out.code != 0 {
		err = fmt.Errorf("a command ended with %d", out.code)
	}
	return err
}

func (b *bootstrap) tell(step string, phase machost.Phase, message string) {
	b.emit(machost.Event{Time: b.timing.Now(), Step: step, Phase: phase, Message: message})
}

func (b *bootstrap) tellFailure(stage Stage, err error) {
	var step *machost.StepError
	if errors.As(err, &step) || errors.Is(err, machost.ErrBusy) {
		return // the host has reported it
	}
	b.tell(stage, machost.PhaseFailed, b.show.text(err.Error()))
}

func (b *bootstrap) emit(e machost.Event) {
	if b.opt.Events != nil {
		b.opt.Events(e)
	}
}

// randomName is a file name that no other process writes.
func randomName() string { return rand.Text() }

// remember keeps what was changed, each step once, over several applies.
func remember(list *[]string, step string) {
	if !slices.Contains(*list, step) {
		*list = append(*list, step)
	}
}
