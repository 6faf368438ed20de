package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// lostError reports that a connection ended that had begun: the one failure after which the bootstrap goes on by itself.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// errSilent ends a connection whose peer shows no sign of life.
var errSilent = errors.New("the host does not respond")

// refusedError reports that the host takes none of the keys. It is the only way in which authentication fails for good.
type refusedError struct {
	wants   []string // the methods that the host would take
	partial bool     // the key was taken, and is not enough
}

func (e *refusedError) Error() string {
	if e.partial {
		return fmt.Sprintf("the key alone is not enough for the host, it also asks for %v", e.wants)
	}
	if !slices.Contains(e.wants, "publickey") {
		return fmt.Sprintf("the host accepts no keys, only %v", e.wants)
	}
	return "the host accepts none of the keys"
}

// dialer opens connections to one host, all of them to the one key.
type dialer struct {
	address string
	user    string
	keys    *hostKeys
	signers func() ([]ssh.Signer, error)
	timing  Timing
}

// conn is one connection that is authenticated. Its goroutines end with close.
type conn struct {
	client *ssh.Client
	timing Timing
	cause  atomic.Pointer[error] // why it was ended from here
	ctx    context.Context       // ends with the connection, on either side's close
	tasks  sync.WaitGroup
	detach func() bool
}

// dial connects, proves the host and the user, and begins to watch whether the host lives. The host is proved before anything of the
// user is sent.
func (d *dialer) dial(ctx context.Context) (*conn, error) {
	rounds := d.keys.rounds()
	for i, algorithms := range rounds {
		c, err := d.handshake(ctx, algorithms)
		var none *ssh.AlgorithmNegotiationError
		var wrong *HostKeyError
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &none) && slices.Equal(none.SupportedAlgorithms, algorithms):
			if i == len(rounds)-1 {
				return nil, d.keys.none()
			}
		case errors.As(err, &wrong):
			if i == len(rounds)-1 || wrong.Changed {
				return nil, wrong
			}
		default:
			return nil, err
		}
	}
	return nil, d.keys.none()
}

func (d *dialer) handshake(ctx context.Context, algorithms []string) (*conn, error) {
	tcp, cancel := context.WithTimeout(ctx, d.timing.Dial)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: -1}).DialContext(tcp, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	wire := &watchedConn{Conn: raw}
	stop := context.AfterFunc(tcp, func() { raw.Close() }) // the handshake has no context of its own
	var attempt authAttempt
	ours, channels, requests, err := ssh.NewClientConn(wire, d.address, d.config(algorithms, &attempt, wire))
	if !stop() && err == nil {
		_ = ours.Close()
		err = context.Cause(tcp)
	}
	if err != nil {
		raw.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if tcp.Err() != nil {
			return nil, fmt.Errorf("SSH handshake timed out after %s", d.timing.Dial)
		}
		return nil, attempt.judge(err)
	}
	c := &conn{client: ssh.NewClient(ours, channels, requests), timing: d.timing}
	own, ended := context.WithCancel(ctx)
	c.ctx = own
	c.detach = context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	c.tasks.Go(func() {
		_ = c.client.Wait() // callers see the connection's end themselves
		ended()
	})
	c.tasks.Go(c.keepAlive)
	return c, nil
}

func (d *dialer) config(algorithms []string, attempt *authAttempt, wire *watchedConn) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User:              d.user,
		HostKeyAlgorithms: algorithms,
		HostKeyCallback:   d.keys.check,
		ClientVersion:     "SSH-2.0-bullpen",
		// Called before each method: keys once, and nothing else that the host offers.
		AuthCallback: func(a *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
			switch {
			case wire.failed.Load():
				return nil, errBroken
			case attempt.begun || !slices.Contains(a.AllowedMethods, "publickey"):
				return nil, &refusedError{wants: a.AllowedMethods, partial: len(a.PartialSuccessMethods) > 0}
			}
			attempt.begun = true
			signers, err := d.signers()
			if err != nil {
				return nil, &keysError{err}
			}
			return ssh.PublicKeys(signers...), nil
		},
	}
}

// errBroken is a connection that broke during authentication, which the library takes for a refusal.
var errBroken = errors.New("the connection broke during authentication")

// keysError reports that there is no key to log in with.
type keysError struct{ err error }

func (e *keysError) Error() string { return e.err.Error() }
func (e *keysError) Unwrap() error { return e.err }

// authAttempt tells a host that hangs up on our keys from one that is not there.
type authAttempt struct{ begun bool }

// judge says what a failed handshake means.
func (a *authAttempt) judge(err error) error {
	var refused *refusedError
	var keys *keysError
	if !a.begun || errors.As(err, &refused) || errors.As(err, &keys) || errors.Is(err, errBroken) {
		return err
	}
	return &duringAuthError{err}
}

// duringAuthError is a host that hangs up on our keys, as OpenSSH does when an agent has too many. One may be an accident.
type duringAuthError struct{ err error }

func (e *duringAuthError) Error() string { return e.err.Error() }
func (e *duringAuthError) Unwrap() error { return e.err }

// watchedConn remembers whether the network failed.
type watchedConn struct {
	net.Conn
	failed atomic.Bool
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.failed.Store(true)
	}
	return n, err
}

func (w *watchedConn) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		w.failed.Store(true)
	}
	return n, err
}

// end ends the connection, and remembers the first reason.
func (c *conn) end(cause error) {
	c.cause.CompareAndSwap(nil, &cause)
	_ = c.client.Close()
}

// close ends the connection and waits for its goroutines.
func (c *conn) close() {
	c.detach()
	c.end(net.ErrClosed)
	c.tasks.Wait()
}

// why is the reason for which it was ended from here; nil if it was not.
func (c *conn) why() error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// keepAlive asks the host for signs of life, and ends the connection when three were missed: TCP alone would notice in a quarter of
// an hour, or never while nothing is sent.
func (c *conn) keepAlive() {
	for {
		select {
		case <-c.timing.After(c.timing.KeepAlive):
		case <-c.ctx.Done():
			return
		}
		answered := make(chan struct{})
		c.tasks.Go(func() {
			defer close(answered)
			_, _, _ = c.client.SendRequest("keepalive@openssh.com", true, nil) // a refusal is a sign of life, too
		})
		select {
		case <-answered:
		case <-c.ctx.Done():
			return
		case <-c.timing.After(3 * c.timing.KeepAlive):
			c.end(fmt.Errorf("%w for %s", errSilent, 3*c.timing.KeepAlive))
			return
		}
	}
}

// alive reports whether the host still answers on this connection.
func (c *conn) alive() bool {
	answered := make(chan bool, 1)
	c.tasks.Go(func() {
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err == nil
	})
	select {
	case ok := <-answered:
		return ok
	case <-c.ctx.Done():
		return false
	case <-c.timing.After(c.timing.KeepAlive):
		return false
	}
}

// wait retries connect until a host answers, the time is over, or a retry would change nothing.
func (d *dialer) wait(ctx context.Context, limit time.Duration, tell func(reason string)) (*conn, error) {
	began, pause := d.timing.Now(), d.timing.Backoff
	hungUp := 0
	for {
		c, err := d.dial(ctx)
		var wrong *HostKeyError
		var refused *refusedError
		var during *duringAuthError
		var keys *keysError
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errAsk):
			if err := d.keys.ask(); err != nil {
				return nil, err
			}
			continue
		case errors.As(err, &wrong):
			return nil, wrong
		case errors.As(err, &keys):
			return nil, keys.err
		case errors.As(err, &refused):
			return nil, &AuthError{Address: d.address, User: d.user, Err: refused}
		case errors.As(err, &during):
			if hungUp++; hungUp == 3 {
				return nil, &AuthError{Address: d.address, User: d.user, Err: during}
			}
		}
		waited := d.timing.Now().Sub(began)
		if waited+pause > limit {
			return nil, &UnreachableError{Address: d.address, Waited: waited, Err: err}
		}
		tell(err.Error())
		select {
		case <-d.timing.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause = min(2*pause, 10*time.Second)
	}
}
