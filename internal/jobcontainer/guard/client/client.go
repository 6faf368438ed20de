package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// What is sent and received.
type (
	Process      = wire.Process
	Limits       = wire.Limits
	Exit         = wire.Exit
	Status       = wire.Status
	HealthResult = wire.HealthResult
	Link         = wire.Link
	HostEntry    = wire.HostEntry
	Relay        = wire.Relay
	Release      = wire.Release
	// Failure is what the guard answers when it refuses a request, or fails. Errors of this package wrap it: use errors.As.
	Failure = wire.Failure
)

// ErrLost is a connection that ended without an answer: the guard, or its container, is gone. The container's status says why.
var ErrLost = errors.New("the connection to the container ended without an answer")

// ErrAbsent is a guard that cannot be reached: it has not started yet, or is gone.
var ErrAbsent = errors.New("the container does not answer")

// answerPatience bounds the wait for an answer that needs no process of the container.
const answerPatience = time.Minute

// waitEvery is how often Wait tries to connect.
const waitEvery = 5 * time.Millisecond

// Client of one container's guard.
type Client struct {
	socket string
}

// New returns a client of the guard that listens at jobcontainer.Socket(name). It does not connect.
func New(socket string) *Client { return &Client{socket: socket} }

// Wait returns nil as soon as the guard answers, and ctx's error, with ErrAbsent, when ctx ends before.
func (c *Client) Wait(ctx context.Context) error {
	look := time.NewTicker(waitEvery)
	defer look.Stop()
	for {
		_, err := c.Status(ctx)
		if err == nil || !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrLost) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the container: %w: %w", ctx.Err(), ErrAbsent)
		case <-look.C:
		}
	}
}

// Start starts the container's main process, once; a second time is a Failure with FailStarted. stopSignal is as in an image's STOPSIGNAL. A
// command that cannot be started is no error: the Status has the Exit, with a Text.
func (c *Client) Start(ctx context.Context, process Process, stopSignal string) (Status, error) {
	var status Status
	err := c.ask(ctx, "starting the container's process", &wire.Request{Start: &wire.Start{Process: process, StopSignal: stopSignal}}, answerPatience, &status)
	return status, err
}

// Status returns what became of the main process.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.ask(ctx, "reading the container's status", &wire.Request{Status: &wire.Empty{}}, answerPatience, &status)
	return status, err
}

// Stop sends the main process its stop signal, kills everything in the container after grace, and returns when that is done. Without a main
// process everything is killed at once. The guard goes on.
func (c *Client) Stop(ctx context.Context, grace time.Duration) (Status, error) {
	var status Status
	err := c.ask(ctx, "stopping the container", &wire.Request{Stop: &wire.Stop{Grace: grace}}, grace+answerPatience, &status)
	return status, err
}

// End is Stop, and the container ends, too.
func (c *Client) End(ctx context.Context, grace time.Duration) (Status, error) {
	var status Status
	err := c.ask(ctx, "ending the container", &wire.Request{End: &wire.End{Grace: grace}}, grace+answerPatience, &status)
	return status, err
}

// Health runs a health command. The command's failure is in the result, and no error.
func (c *Client) Health(ctx context.Context, process Process, timeout time.Duration) (HealthResult, error) {
	var result HealthResult
	err := c.ask(ctx, "running the health command", &wire.Request{Health: &wire.Health{Process: process, Timeout: timeout}}, timeout+answerPatience, &result)
	return result, err
}

// Links links volumes of the job to their targets. FailNotEmpty and FailNotPermitted are sentences for the job's log.
func (c *Client) Links(ctx context.Context, links []Link) error {
	return c.ask(ctx, "linking volumes", &wire.Request{Links: &wire.Links{Links: links}}, answerPatience, nil)
}

// Hosts adds names to /etc/hosts, which all containers of the pod share; those that are there stay. FailNotPermitted where the guard is not
// root. The kubelet writes the file again whenever a container starts, so it is called before each step.
func (c *Client) Hosts(ctx context.Context, entries []HostEntry) error {
	return c.ask(ctx, "adding host names", &wire.Request{Hosts: &wire.Hosts{Entries: entries}}, answerPatience, nil)
}

// Relay forwards a port until the container ends. FailInUse and FailNotPermitted say why a port cannot be opened.
func (c *Client) Relay(ctx context.Context, relay Relay) error {
	return c.ask(ctx, "opening a port", &wire.Request{Relay: &relay}, answerPatience, nil)
}

// Release returns what the container's file system says of itself, and of a user.
func (c *Client) Release(ctx context.Context, user string) (Release, error) {
	var release Release
	err := c.ask(ctx, "reading the container's release", &wire.Request{Release: &wire.ReleaseOf{User: user}}, answerPatience, &release)
	return release, err
}

// Logs writes what is kept of the main process's output: the last MiB or so, of both streams, in their order. A note about what is left out comes
// first, on stderr.
func (c *Client) Logs(ctx context.Context, stdout, stderr io.Writer) error {
	const doing = "reading the container's log"
	conn, stop, err := c.send(ctx, doing, &wire.Request{Logs: &wire.Empty{}})
	if err != nil {
		return err
	}
	defer stop()
	for {
		kind, payload, err := conn.Read(answerPatience)
		if err != nil {
			return lost(ctx, doing, err)
		}
		if done, err := c.output(kind, payload, stdout, stderr); done || err != nil {
			return wrap(doing, err)
		}
	}
}

// output passes a frame of output on. done says that it was the last frame.
func (c *Client) output(kind wire.Kind, payload []byte, stdout, stderr io.Writer) (done bool, err error) {
	switch kind {
	case wire.KindStdout:
		_, err = stdout.Write(payload)
	case wire.KindStderr:
		_, err = stderr.Write(payload)
	default:
		return true, answer(kind, payload, nil)
	}
	return false, err
}

// ask sends a request that has a single answer.
func (c *Client) ask(ctx context.Context, doing string, request *wire.Request, patience time.Duration, result any) error {
	conn, stop, err := c.send(ctx, doing, request)
	if err != nil {
		return err
	}
	defer stop()
	kind, payload, err := conn.Read(patience)
	if err != nil {
		return lost(ctx, doing, err)
	}
	return wrap(doing, answer(kind, payload, result))
}

// send connects and sends the request. The end of ctx closes the connection, and so does stop, which must be called.
func (c *Client) send(ctx context.Context, doing string, request *wire.Request) (conn *wire.Conn, stop func(), err error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", c.socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, nil, fmt.Errorf("%s: %w: %w", doing, ErrAbsent, err)
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}
	conn = wire.NewConn(raw, wire.MaxData)
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	stop = func() { release(); _ = raw.Close() }
	request.Version = wire.Version
	payload, err := json.Marshal(request)
	if err == nil && len(payload) > wire.MaxRequest {
		err = fmt.Errorf("arguments and environment have %d bytes, the most is %d", len(payload), wire.MaxRequest)
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}
	if err := conn.Write(wire.KindRequest, payload); err != nil {
		stop()
		return nil, nil, lost(ctx, doing, err)
	}
	return conn, stop, nil
}

// answer reads the last frame into result; nil where nothing is expected.
func answer(kind wire.Kind, payload []byte, result any) error {
	switch kind {
	case wire.KindFailure:
		failure := new(wire.Failure)
		if err := json.Unmarshal(payload, failure); err != nil {
			return fmt.Errorf("%w: a failure that cannot be read", wire.ErrProtocol)
		}
		return failure
	case wire.KindResult:
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(payload, result); err != nil {
			return fmt.Errorf("%w: a result that cannot be read", wire.ErrProtocol)
		}
		return nil
	}
	return fmt.Errorf("%w: kind %d is no answer", wire.ErrProtocol, kind)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// lost says why a connection ended: because the caller's ctx did, or ErrLost.
func lost(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	return fmt.Errorf("%s: %w (%w)", doing, ErrLost, err)
}
