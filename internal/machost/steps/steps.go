package steps

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Facts are what steps have to know of the apply that they are part of. Binary is required.
type Facts struct {
	// Binary is the path of the running executable, as the machine that it runs on has it: it becomes BinaryPath of the host.
	Binary string
	// Session is where the SSH session comes from that the apply runs in. Invalid: at the console.
	Session netip.Addr
	// Confirm asks the other end to prove that the host can still be reached, and waits for the answer. Nil: at the console.
	Confirm func(ctx context.Context, token string) error
	// Progress receives the progress of slow operations. Nil: it is dropped.
	Progress func(message string)
	// HTTP fetches the archive of Tart. Default: a client without a time-out of its own.
	HTTP *http.Client
	// Clock is the time by which steps wait. Default: the machine's.
	Clock Clock
	// Watchdog starts a process of its own that takes back what was done to the way in, unless the apply confirms the token in time.
	// Required where there is a guard of SSH.
	Watchdog func(ctx context.Context, token string) error
}

// Clock is what steps wait by.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

type wallClock struct{}

// Now is time.Now.
func (wallClock) Now() time.Time { return time.Now() }

// After is time.After.
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// wait waits that long, or until ctx ends, whose error it returns then.
func wait(ctx context.Context, clock Clock, d time.Duration) error {
	select {
	case <-clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f Facts) withDefaults() Facts {
	if f.Progress == nil {
		f.Progress = func(string) {}
	}
	if f.HTTP == nil {
		f.HTTP = &http.Client{}
	}
	if f.Clock == nil {
		f.Clock = wallClock{}
	}
	return f
}

// Where things lie on a host.
const (
	// BinaryPath is this program.
	BinaryPath = "/usr/local/bin/bullpen"
	// TartPath leads to Tart's program.
	TartPath = "/usr/local/bin/tart"
	// NodePlist is the launchd job of the node agent, NodeLabel its name.
	NodePlist = "/Library/LaunchDaemons/" + NodeLabel + ".plist"
	NodeLabel = "dev.bullpen.node"
	// NodeLog is what the node agent says.
	NodeLog = logDir + "/node.log"

	stateDir = machost.StateDir
	logDir   = stateDir + "/log"
)

// For lists the steps that make a host what the payload says, in the order in which they are applied: what others need comes first, and
// what could close the way by which the host is managed last. The configuration is validated: of a bad one nothing is rendered.
func For(payload machost.Payload, facts Facts) ([]machost.Step, error) {
	return made(order, payload, facts)
}

// Prepare lists the steps that need a person with the user's password, at the Mac or over plain SSH. They are those of For, and prove
// the same (HOST-3).
func Prepare(payload machost.Payload, facts Facts) ([]machost.Step, error) {
	return made([]constructor{newSudo, newAutoLogin}, payload, facts)
}

// GrantSudo lists the one step by which all others can be applied without a password.
func GrantSudo(user string) ([]machost.Step, error) {
	return made([]constructor{newSudo}, machost.Payload{Config: machost.Config{User: user}}, Facts{})
}

func made(constructors []constructor, payload machost.Payload, facts Facts) ([]machost.Step, error) {
	payload.Config = payload.Config.Default()
	if err := payload.Config.Validate(); err != nil {
		return nil, err
	}
	facts = facts.withDefaults()
	var list []machost.Step
	for _, make := range constructors {
		step, err := make(payload, facts)
		if err != nil {
			return nil, err
		}
		if step != nil {
			list = append(list, step)
		}
	}
	return list, nil
}

// constructor makes a step, or nil where the configuration asks for none. The payload is valid, and has its defaults.
type constructor func(machost.Payload, Facts) (machost.Step, error)

var order = []constructor{
	newPreflight,
	newSudo,
	newBinary,
	newHostname,
	newNoSleep,
	newDHCPLease,
	newTart,
	newAutoLogin,
	newNoLock, // the password is known to be right
	newEgress,
	newNAT,
	newLogRotation,
	newNodeAgent,
	newSSHGuard, // last of all
}
