package steps

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// console is the login window of a Mac with two accounts, ci and runner, and what it reads.
type console struct {
	*fakeLaunchd
	auto     string // the user of the automatic login
	user     string // who is logged in
	sessions int
}

var (
	consoleUIDs      = map[string]int{"ci": 501, "runner": 502}
	consolePasswords = map[string]string{"ci": "one", "runner": "two"}
)

// newConsole is a host on which ci is logged in, and has the node agent.
func newConsole(t *testing.T) *console {
	c := &console{fakeLaunchd: newAgentHost(t)}
	c.h.users(consoleUIDs)
	c.h.says(newsyslog, "")
	c.h.programs[launchctl], c.h.programs["/usr/bin/defaults"] = c.launchctl, c.defaults
	c.h.programs["/usr/bin/stat"] = func(string, string) machost.Result {
		return machost.Result{Stdout: []byte(cmp.Or(c.user, "root") + "\n")}
	}
	_, err := c.apply(c.h, "ci", "one")
	require.NoError(t, err)
	require.Equal(t, "ci", c.user)
	c.calls()
	return c
}

func (c *console) launchctl(args, stdin string) machost.Result {
	switch {
	case strings.HasPrefix(args, "print gui/"):
		if c.user == "" || args != "print gui/"+itoa(consoleUIDs[c.user]) {
			return machost.Result{ExitCode: 113, Stderr: []byte("Could not find domain")}
		}
		return machost.Result{Stdout: fmt.Appendf(nil, "%s = {\n\tsession = Aqua\n\tasid = %d\n}\n", args, c.sessions)}
	case strings.HasSuffix(args, " "+loginwindow):
		c.login()
		return machost.Result{}
	}
	return c.run(args, stdin)
}

// login ends the session, and tries the stored password once.
func (c *console) login() {
	c.user, c.sessions = "", c.sessions+1
	stored, err := autologin.Decode([]byte(c.h.content(kcpassword)))
	if err == nil && stored == consolePasswords[c.auto] {
		c.user = c.auto
		return
	}
	sealed, err := autologin.Encode("_sealed>")
	require.NoError(c.h.t, err)
	sealed[0] ^= '_' ^ '<'
	c.h.put(kcpassword, string(sealed), 0o600)
}

func (c *console) defaults(args, _ string) machost.Result {
	if user, write := strings.CutPrefix(args, "write "+loginDomain+" "+autoUser+" "); write {
		c.auto = user
		return machost.Result{}
	}
	if c.auto == "" {
		return machost.Result{ExitCode: 1, Stderr: []byte("does not exist")}
	}
	return machost.Result{Stdout: []byte(c.auto + "\n")}
}

// apply applies the steps that depend on the user.
func (c *console) apply(h machost.Host, user, password string) (machost.Report, error) {
	config := agentConfig()
	config.User = user
	p := machost.Payload{Config: config, Secrets: machost.Secrets{Password: machost.NewSecret(password), BootstrapKubeconfig: machost.NewSecret("token")}}
	var list []machost.Step
	for _, constructor := range []constructor{newAutoLogin, newLogRotation, newNodeAgent} {
		step, err := constructor(p, Facts{Clock: c.clock}.withDefaults())
		require.NoError(c.h.t, err)
		list = append(list, step)
	}
	return machost.Apply(c.h.t.Context(), machost.Options{
		Host: h, Steps: list, Busy: func(ctx context.Context) (int, error) { return Machines(ctx, h) },
	})
}

// Another user is logged in, and has the node agent, only together: an agent starts machines in its own user's session alone.
func TestUserMove_NODE3_WaitsAsAWhole(t *testing.T) {
	for name, ps := range map[string][]string{
		"a pod whose machine is being cloned":   {aPoller},
		"a machine that ends between the steps": {aMachine, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t)
			password := c.h.content(kcpassword)
			c.h.programs["/bin/ps"] = func(string, string) machost.Result {
				now := ps[0]
				ps = ps[min(1, len(ps)-1):]
				return machost.Result{Stdout: []byte(now)}
			}
			report, err := c.apply(c.h, "runner", "two")
			require.ErrorIs(t, err, machost.ErrBusy)
			require.Equal(t, []string{"auto-login", "node-agent"}, report.Deferred)
			require.True(t, c.loaded)
			require.Equal(t, "ci", c.user)
			require.Equal(t, "ci", c.auto)
			require.Equal(t, 1, c.sessions)
			require.Equal(t, password, c.h.content(kcpassword))
			require.NotContains(t, c.h.content(NodePlist), "<string>runner</string>")

			c.h.says("/bin/ps", "")
			report, err = c.apply(c.h, "runner", "two")
			require.NoError(t, err)
			require.Equal(t, []string{"auto-login", "node-agent"}, report.Changed)
			require.True(t, c.loaded)
			require.Equal(t, "runner", c.user)
			require.Contains(t, c.h.content(NodePlist), "<string>runner</string>")
			report, err = c.apply(c.h, "runner", "two")
			require.NoError(t, err)
			require.Empty(t, report.Changed, "HOST-1")
		})
	}
}

func TestUserMove_NODE3_AnApplyThatFailsKeepsTheAgentOfBefore(t *testing.T) {
	c := newConsole(t)
	_, err := c.apply(fullDisk{c.h, kcpassword}, "runner", "two")
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, "bootout enable bootstrap", c.calls())
	require.True(t, c.loaded)
	require.Equal(t, "ci", c.user)
}

// A mistyped password of the new user does not cost the session of the one before.
func TestUserMove_HOST3_ARefusedPasswordLogsTheUserOfBeforeInAgain(t *testing.T) {
	c := newConsole(t)
	password := c.h.content(kcpassword)
	_, err := c.apply(c.h, "runner", "wrong")
	require.ErrorIs(t, err, machost.ErrWrongPassword)
	require.ErrorContains(t, err, "the previous one was restored and works, for ci")
	require.Equal(t, "ci", c.user)
	require.Equal(t, "ci", c.auto)
	require.Equal(t, password, c.h.content(kcpassword))
	require.True(t, c.loaded)
	_, err = c.h.Stat(untriedFile)
	require.True(t, isMissing(err))

	sessions := c.sessions
	_, err = c.apply(c.h, "runner", "wrong")
	require.ErrorIs(t, err, machost.ErrWrongPassword, "and still")
	report, err := c.apply(c.h, "ci", "one")
	require.NoError(t, err)
	require.NotContains(t, report.Changed, "auto-login")
	require.Equal(t, sessions, c.sessions, "no session was ended again")
}

// `bullpen host prepare` has no configuration of a node: nothing would load the agent again.
func TestUserMove_ALoginAloneUnloadsNothing(t *testing.T) {
	c := newConsole(t)
	step, err := newAutoLogin(machost.Payload{
		Config: machost.Config{User: "runner"}.Default(), Secrets: machost.Secrets{Password: machost.NewSecret("two")},
	}, Facts{Clock: c.clock}.withDefaults())
	require.NoError(t, err)
	_, err = machost.Apply(t.Context(), machost.Options{Host: c.h, Steps: []machost.Step{step}})
	require.NoError(t, err)
	require.Equal(t, "runner", c.user)
	require.Equal(t, "kickstart", c.calls())
}
