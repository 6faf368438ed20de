//go:build unix

package tartcli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
)

// Options say which Tart is called, and how.
type Options struct {
	// Command is the argument vector that starts Tart. Default: tart, looked for in PATH.
	Command []string
	// Home is TART_HOME, where Tart keeps VMs and images. Default: this process's TART_HOME, else ~/.tart.
	Home string
	// Env are more variables, as in "TART_NO_AUTO_PRUNE=1"; they are the way to give a registry's credentials
	// (TART_REGISTRY_HOSTNAME, …_USERNAME, …_PASSWORD). Of this process's own environment Tart gets only inherited.
	Env []string
	// Timeouts bound the calls.
	Timeouts Timeouts
	// Pause waits before a query that failed is repeated, and between two checks of a pull. Default: a timer.
	Pause func(ctx context.Context, d time.Duration)
}

// inherited are the variables that Tart gets from this process: what it needs to find its files, its helpers and the keychain, and
// nothing that could be a secret.
var inherited = []string{"HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "LANG", "LC_ALL", "SSH_AUTH_SOCK", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}

// Timeouts bound how long each kind of call may take. Zero means the default.
type Timeouts struct {
	Silence time.Duration // how long a pull may bring nothing; default: 15 minutes
	Clone   time.Duration // default: 5 minutes
	Delete  time.Duration // default: 5 minutes
	Set     time.Duration // default: 1 minute
	Stop    time.Duration // default: 2 minutes
	Query   time.Duration // default: 30 seconds
}

func (t Timeouts) withDefaults() Timeouts {
	for _, field := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&t.Silence, 15 * time.Minute}, {&t.Clone, 5 * time.Minute}, {&t.Delete, 5 * time.Minute},
		{&t.Set, time.Minute}, {&t.Stop, 2 * time.Minute}, {&t.Query, 30 * time.Second},
	} {
		if *field.value <= 0 {
			*field.value = field.fallback
		}
	}
	return t
}

const (
	// pipeCloseDelay is how long a call waits for its output to end once Tart itself has: a helper of Tart's that hangs may have
	// it open for ever.
	pipeCloseDelay = 2 * time.Second
	// maxOutput is how much of what Tart prints is read, in bytes.
	maxOutput = 8 << 20
	// maxMessage is how long a message for people is, in bytes.
	maxMessage = 512
)

// Client calls Tart. Its methods may be called concurrently; Tart itself makes pulls of one registry wait for each other, and
// clones.
type Client struct {
	opts    Options
	env     []string
	secrets []string
}

// New checks the options. It does not call Tart: Version does.
func New(opts Options) (*Client, error) {
	if len(opts.Command) == 0 {
		opts.Command = []string{"tart"}
	}
	if opts.Home == "" {
		opts.Home = os.Getenv("TART_HOME")
	}
	if opts.Home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("finding Tart's home directory: %w", err)
		}
		opts.Home = filepath.Join(user, ".tart")
	}
	if !filepath.IsAbs(opts.Home) {
		return nil, fmt.Errorf("home directory of Tart %q: give an absolute path", opts.Home)
	}
	opts.Timeouts = opts.Timeouts.withDefaults()
	if opts.Pause == nil {
		opts.Pause = pause
	}
	c := &Client{opts: opts}
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			c.env = append(c.env, name+"="+value)
		}
	}
	c.env = append(c.env, opts.Env...)
	c.env = append(c.env, "TART_HOME="+opts.Home)
	for _, variable := range opts.Env {
		name, value, found := strings.Cut(variable, "=")
		if !found || name == "" {
			return nil, errors.New("a variable for Tart has no name: write NAME=value")
		}
		if strings.HasSuffix(name, "PASSWORD") && value != "" {
			c.secrets = append(c.secrets, value)
		}
	}
	return c, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// call is one call of Tart.
type call struct {
	operation string
	timeout   time.Duration // zero: none
	silence   time.Duration // zero: it may bring nothing
	args      []string
}

// output runs Tart to its end and returns what it printed to stdout.
func (c *Client) output(ctx context.Context, k call) (string, error) {
	bounded, end := context.WithCancelCause(ctx)
	if k.timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, k.timeout)
		defer cancel()
	}
	cmd := c.command(bounded, k.args)
	var out, failures bounds
	cmd.Stdout, cmd.Stderr = &out, &failures
	var watch sync.WaitGroup
	if k.silence > 0 {
		watch.Go(func() {
			c.endSilent(bounded, end, k.silence, func() int64 { return out.written.Load() + failures.written.Load() })
		})
	}
	err := cmd.Run()
	late := context.Cause(bounded)
	end(nil)
	watch.Wait()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return out.String(), nil
	}
	return "", c.failure(ctx, late, k.operation, cmd, err, failures.String(), out.String())
}

// command is Tart with those arguments, the leader of a group of its own that ends with the context.
func (c *Client) command(ctx context.Context, args []string) *exec.Cmd {
	argv := append(append([]string{}, c.opts.Command...), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the administrator's program; arguments are checked
	cmd.Env = c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeCloseDelay
	return cmd
}

// failure explains why a command has failed. ctx is the caller's; late is why the command was ended, if it was.
func (c *Client) failure(ctx context.Context, late error, operation string, cmd *exec.Cmd, err error, texts ...string) *Error {
	failed := &Error{Operation: operation, Code: -1}
	if cmd.ProcessState != nil {
		failed.Code = cmd.ProcessState.ExitCode()
	}
	failed.Message = c.message(texts...)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		failed.Kind, failed.Err = KindCanceled, context.Cause(ctx)
	case late != nil:
		failed.Kind, failed.Err, failed.Message = KindTimeout, late, "" // what it had printed until then explains nothing
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		failed.Kind, failed.Err = KindNoProgram, err
	case errors.As(err, &exit):
		failed.Kind = classify(failed.Code, strings.Join(texts, "\n"))
		if failed.Code < 0 {
			failed.Err = err // the signal
		}
	default:
		failed.Kind, failed.Err = KindUnknown, err
	}
	return failed
}

// message is the first line that says anything, of the first text that does.
func (c *Client) message(texts ...string) string {
	for _, text := range texts {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return ' '
				}
				return r
			}, strings.ToValidUTF8(line, "?")))
			if line == "" {
				continue
			}
			for _, secret := range c.secrets {
				line = strings.ReplaceAll(line, secret, "(secret)")
			}
			if len(line) > maxMessage {
				line = strings.ToValidUTF8(line[:maxMessage], "") + "…"
			}
			return line
		}
	}
	return ""
}

// bounds keeps the beginning of what is written to it.
type bounds struct {
	buffer  bytes.Buffer
	written atomic.Int64 // in all
}

func (b *bounds) Write(p []byte) (int, error) {
	b.written.Add(int64(len(p)))
	if room := maxOutput - b.buffer.Len(); room > 0 {
		b.buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (b *bounds) String() string { return b.buffer.String() }

// checkName refuses what Tart would take for an option.
func checkName(operation, name string) error {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, unicode.IsControl) {
		return &Error{Operation: operation, Kind: KindUsage, Code: -1, Err: fmt.Errorf("%q is not the name of a VM or an image", name)}
	}
	return nil
}
