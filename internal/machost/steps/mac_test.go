package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// mac is a model of a Mac on which the steps of this package's tests work as root.
type mac struct {
	*mactest.Mac
	t    *testing.T
	host machost.Host
}

// bootMac boots a new Mac.
func bootMac(t *testing.T, options ...mactest.Option) *mac {
	t.Setenv("DEVMAC_USER", "root")
	m := mactest.Boot(t, options...)
	return &mac{m, t, m.Host()}
}

const wrongPassword = "correct hoarse"

func payload(change ...func(*machost.Payload)) machost.Payload {
	p := machost.Payload{Config: machost.Config{User: "ci"}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func withPassword(text string) func(*machost.Payload) {
	return func(p *machost.Payload) { p.Secrets.Password = machost.NewSecret(text) }
}

func withGuard(networks ...string) func(*machost.Payload) {
	return func(p *machost.Payload) {
		for _, n := range networks {
			p.Config.SSH.AllowFrom = append(p.Config.SSH.AllowFrom, netip.MustParsePrefix(n))
		}
	}
}

// facts are those of an apply at the Mac's console.
func (m *mac) facts() steps.Facts {
	return steps.Facts{Clock: m.clock(), Binary: "/usr/local/bin/bullpen"}
}

func (m *mac) clock() *macClock { return &macClock{m: m, now: time.Now()} }

// macClock passes time only when the product waits, and only once the model Mac has tried the password of a login that has begun: the
// product gives a login thirty seconds, which pass here in as many looks, and a loaded machine may take longer for it than the looks take.
type macClock struct {
	m   *mac
	now time.Time
}

func (c *macClock) Now() time.Time { return c.now }

func (c *macClock) After(d time.Duration) <-chan time.Time {
	c.m.t.Helper()
	for deadline := time.Now().Add(await.Limit); ; {
		tries, err := c.m.Root.LoggingIn()
		require.NoError(c.m.t, err)
		if !tries {
			break
		}
		require.True(c.m.t, time.Now().Before(deadline), "the model Mac has not tried the password after %s", await.Limit)
		<-time.After(5 * time.Millisecond)
	}
	c.now = c.now.Add(d)
	done := make(chan time.Time, 1)
	done <- c.now
	return done
}

// only picks steps by name, so that a test is about what it is about. All of them are For's.
func (m *mac) only(p machost.Payload, facts steps.Facts, names ...string) []machost.Step {
	all, err := steps.For(p, facts)
	require.NoError(m.t, err)
	list := slices.DeleteFunc(all, func(s machost.Step) bool { return !slices.Contains(names, s.Name()) })
	require.Len(m.t, list, len(names))
	return list
}

// applied is the output of an apply.
type applied struct {
	report machost.Report
	err    error
	events []machost.Event
}

func (m *mac) apply(list []machost.Step, secrets machost.Secrets) applied {
	return m.applyOn(m.host, list, secrets)
}

func (m *mac) applyOn(host machost.Host, list []machost.Step, secrets machost.Secrets) applied {
	var a applied
	a.report, a.err = machost.Apply(context.Background(), machost.Options{
		Host: host, Steps: list, Secrets: secrets, Events: func(e machost.Event) { a.events = append(a.events, e) },
		Busy: func(ctx context.Context) (int, error) { return steps.Machines(ctx, m.host) },
	})
	return a
}

// firewall applies the steps of pf that are wanted, and then again, which must change nothing (HOST-1).
func (m *mac) firewall(p machost.Payload, facts steps.Facts, names ...string) applied {
	m.t.Helper()
	list := m.only(p, facts, names...)
	first := m.apply(list, p.Secrets)
	if first.err == nil {
		again := m.apply(list, p.Secrets)
		require.NoError(m.t, again.err)
		require.Empty(m.t, again.report.Changed, "applying twice: %v", again.events)
	}
	return first
}

func (m *mac) run(program string, args ...string) machost.Result {
	m.t.Helper()
	result, err := m.host.Run(context.Background(), machost.Command{Path: program, Args: args})
	require.NoError(m.t, err)
	return result
}

func (m *mac) ok(program string, args ...string) string {
	m.t.Helper()
	result := m.run(program, args...)
	require.Zero(m.t, result.ExitCode, "%s %v: %s", program, args, result.Stderr)
	return string(result.Stdout)
}

func (m *mac) read(path string) string {
	m.t.Helper()
	text, err := m.host.ReadFile(path)
	require.NoError(m.t, err)
	return string(text)
}

func (m *mac) write(path, text string, mode os.FileMode) {
	m.t.Helper()
	require.NoError(m.t, m.host.WriteFile(path, strings.NewReader(text), machost.Attributes{Mode: mode}))
}

func (m *mac) missing(path string) {
	m.t.Helper()
	_, err := m.host.Stat(path)
	require.ErrorIs(m.t, err, os.ErrNotExist)
}

// reaches reports whether a connection gets through, by the rules in force.
func (m *mac) reaches(from, to string, port uint16) bool {
	m.t.Helper()
	flow := devmac.Flow{To: netip.MustParseAddr(to), Port: port}
	if from != "" {
		flow.From = netip.MustParseAddr(from)
	}
	answer, err := m.Root.Evaluate(flow)
	require.NoError(m.t, err)
	return answer.Reached
}

// storePassword writes the file as an earlier apply, or an administrator, has left it.
func (m *mac) storePassword(password string) {
	m.t.Helper()
	content, err := autologin.Encode(password)
	require.NoError(m.t, err)
	m.write("/etc/kcpassword", string(content), 0o600)
	m.ok("/usr/bin/defaults", "write", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser", "ci")
}

func (m *mac) storedPassword() string {
	m.t.Helper()
	password, err := autologin.Decode([]byte(m.read("/etc/kcpassword")))
	require.NoError(m.t, err)
	return password
}

// logsIn restarts the login window, and waits until the user is logged in.
func (m *mac) logsIn() {
	m.t.Helper()
	m.ok("/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	require.Eventually(m.t, func() bool { return m.console() == "ci" }, 10*time.Second, 10*time.Millisecond)
}

func (m *mac) console() string {
	return strings.TrimSpace(m.ok("/usr/bin/stat", "-f", "%Su", "/dev/console"))
}

// called counts the calls of a command whose line begins so.
func (m *mac) called(line string) int {
	m.t.Helper()
	calls, err := m.Root.Calls()
	require.NoError(m.t, err)
	return len(slices.DeleteFunc(calls, func(c devmac.Call) bool { return !strings.HasPrefix(c.Line(), line) }))
}

// failure is the one that an apply ended with.
func failure(t *testing.T, err error, step string) *machost.StepError {
	t.Helper()
	var failed *machost.StepError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, step, failed.Step)
	require.NotEmpty(t, failed.Remedy, "a failure says what to do")
	return failed
}

// tells reports whether an apply's output contains a text.
func (a applied) tells(text string) bool {
	events, err := json.Marshal(a.events)
	return strings.Contains(string(events), text) || a.err != nil && strings.Contains(a.err.Error(), text) || err != nil
}

// breaking is a host on which one change is the last thing that the apply does: what a process leaves that is killed there.
type breaking struct {
	machost.Host
	at, seen int
	dead     bool
}

type killed struct{}

func (killed) Error() string { return "killed here" }

// change is called before each change, and before no check.
func (b *breaking) change() error {
	b.dead = b.dead || b.seen == b.at
	b.seen++
	if b.dead {
		return killed{}
	}
	return nil
}

var looks = []string{"print", "read", "-read", "-n", "-nf", "-nvf", "-s", "-sr", "-l", "-t", "-f %Su", "-cf", "-axww", "-v"}

func (b *breaking) Run(ctx context.Context, command machost.Command) (machost.Result, error) {
	if !slices.ContainsFunc(command.Args, func(arg string) bool { return slices.Contains(looks, arg) }) || b.dead {
		if err := b.change(); err != nil {
			return machost.Result{}, err
		}
	}
	return b.Host.Run(ctx, command)
}

func (b *breaking) WriteFile(path string, content io.Reader, attributes machost.Attributes) error {
	if err := b.change(); err != nil {
		return err
	}
	return b.Host.WriteFile(path, content, attributes)
}

func (b *breaking) Remove(path string) error {
	if err := b.change(); err != nil {
		return err
	}
	return b.Host.Remove(path)
}

// beforeRestart kills the apply before its first restart of the login window.
type beforeRestart struct{ machost.Host }

func (b beforeRestart) Run(ctx context.Context, command machost.Command) (machost.Result, error) {
	if slices.Contains(command.Args, "kickstart") {
		return machost.Result{}, killed{}
	}
	return b.Host.Run(ctx, command)
}

func stepsFor(p machost.Payload, facts steps.Facts) ([]machost.Step, error) {
	return steps.For(p, facts)
}

func errorsIsWrong(err error) bool { return errors.Is(err, machost.ErrWrongPassword) }

func loginTakes(millis int) mactest.Option {
	return mactest.With(func(o *devmac.Options) { o.Machine.LoginMillis = millis })
}

var noSession = mactest.With(func(o *devmac.Options) { o.Machine.NoSession = true })

// restart restarts the Mac, and waits until pf filters, if it is to: before that, everything is open.
func (m *mac) restart() {
	m.t.Helper()
	m.Reboot()
	if _, err := m.host.Stat("/Library/LaunchDaemons/dev.bullpen.pf.plist"); err == nil {
		require.Eventually(m.t, func() bool { return strings.Contains(m.ok("/sbin/pfctl", "-s", "info"), "Status: Enabled") }, 10*time.Second, 10*time.Millisecond)
	}
}
