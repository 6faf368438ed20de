package steps_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

const right = devmac.DefaultPassword

// login applies the one step.
func (m *mac) login(p machost.Payload) applied {
	m.t.Helper()
	return m.apply(m.only(p, m.facts(), "auto-login"), p.Secrets)
}

func TestAutoLogin_HOST1_LogsTheUserIn(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(right))
	done := m.login(p)
	require.NoError(t, done.err)
	require.False(t, done.tells(right))
	require.Equal(t, "ci", m.console())
	require.Equal(t, right, m.storedPassword())
	info, err := m.host.Stat("/etc/kcpassword")
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode)

	for name, p := range map[string]machost.Payload{"with the password": p, "without": payload()} {
		kicks := m.called("launchctl kickstart")
		again := m.login(p)
		require.NoError(t, again.err, name)
		require.Empty(t, again.report.Changed, name)
		require.Equal(t, kicks, m.called("launchctl kickstart"), "no user is logged out without a need")
	}
	m.restart()
	require.NoError(t, m.login(payload()).err)
}

// A loaded Mac takes its time: the step waits for the login as long as it may last, and no number of looks is taken for that time.
func TestAutoLogin_HOST1_WaitsForALoginThatTakesLong(t *testing.T) {
	for password, refused := range map[string]bool{right: false, wrongPassword: true} {
		m := bootMac(t, loginTakes(1000))
		done := m.login(payload(withPassword(password)))
		require.Equal(t, refused, errorsIsWrong(done.err), "%v", done.err)
		require.Equal(t, !refused, m.console() == "ci")
	}
}

func TestAutoLogin_HOST6_PasswordsOfAllSorts(t *testing.T) {
	for _, password := range []string{`it's "quoted" \ $(id) %s`, "päßwörd 密码 🔑", "elevenbytes", "twenty-two-bytes-long.", " ", "-p", "a", strings.Repeat("long", 64)} {
		t.Run(password[:min(len(password), 12)], func(t *testing.T) {
			m := bootMac(t, mactest.Password(password))
			p := payload(withPassword(password))
			done := m.login(p)
			require.NoError(t, done.err)
			require.Equal(t, "ci", m.console())
			if len(password) > 5 {
				require.False(t, done.tells(password))
			}
		})
	}
}

func TestAutoLogin_RefusesWhatIsNoPassword(t *testing.T) {
	for _, password := range []string{"two\nlines", "ends in a line\n", "car\rriage", "nul\x00byte", "not \xff UTF-8", "<sealed>"} {
		m := bootMac(t)
		m.storePassword(right)
		m.logsIn()
		done := m.login(payload(withPassword(password)))
		require.Equal(t, "/etc/kcpassword", failure(t, done.err, "auto-login").File)
		require.Equal(t, right, m.storedPassword(), "what works stays")
		require.False(t, done.tells(password))
	}
}

func TestAutoLogin_HOST3_WithoutAPasswordItOnlyLooks(t *testing.T) {
	sealed := string(devmac.SealedPassword())
	for name, c := range map[string]struct {
		stored *string
		wrong  bool
	}{"none": {}, "sealed": {&sealed, true}, "nonsense": {ptr("abcdefghijk"), false}, "empty": {ptr(""), false}} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			if c.stored != nil {
				m.write("/etc/kcpassword", *c.stored, 0o600)
			}
			done := m.login(payload())
			require.Equal(t, "/etc/kcpassword", failure(t, done.err, "auto-login").File)
			require.Equal(t, c.wrong, errorsIsWrong(done.err))
			require.Zero(t, m.called("launchctl kickstart"))
		})
	}
}

func ptr(text string) *string { return &text }

// A plan says what an apply would only find out.
func TestAutoLogin_HOST3_APlanTellsThatTheFileIsSealed(t *testing.T) {
	m := bootMac(t)
	m.write("/etc/kcpassword", string(devmac.SealedPassword()), 0o600)
	_, err := machost.Plan(t.Context(), machost.Options{Host: m.host, Steps: m.only(payload(), m.facts(), "auto-login")})
	require.ErrorIs(t, err, machost.ErrWrongPassword)
}

func TestAutoLogin_MendsWhatDiffers(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(right))
	require.NoError(t, m.login(p).err)
	for name, c := range map[string]struct {
		act      func(m *mac)
		restarts int
	}{
		"the mode": {func(m *mac) { m.write("/etc/kcpassword", m.read("/etc/kcpassword"), 0o644) }, 0},
		"who is logged in": {func(m *mac) {
			m.ok("/usr/bin/defaults", "write", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser", "root")
		}, 1},
		"that nobody is": {func(m *mac) {
			m.ok("/usr/bin/defaults", "delete", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser")
		}, 1},
		"the session":          {func(m *mac) { m.ok("/usr/bin/killall", "-HUP", "loginwindow") }, 1},
		"the file":             {func(m *mac) { require.NoError(m.t, m.host.Remove("/etc/kcpassword")) }, 1},
		"the file's content":   {func(m *mac) { m.write("/etc/kcpassword", "abcdefghijk", 0o600) }, 1},
		"an older password":    {func(m *mac) { m.storePassword("older") }, 1},
		"a password, unsealed": {func(m *mac) { m.write("/etc/kcpassword", string(devmac.SealedPassword()), 0o600) }, 1},
	} {
		c.act(m)
		kicks := m.called("launchctl kickstart")
		done := m.login(p)
		require.NoError(t, done.err, name)
		require.Equal(t, []string{"auto-login"}, done.report.Changed, name)
		require.Equal(t, c.restarts, m.called("launchctl kickstart")-kicks, name)
		require.Equal(t, "ci", m.console(), name)
		require.Empty(t, m.login(p).report.Changed, name)
	}
}

// The host is not left worse: a mistyped password does not cost the existing session.
func TestAutoLogin_HOST3_AMistypedPasswordDoesNotCostTheOneThatWorks(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.login(payload(withPassword(right))).err)
	p := payload(withPassword(wrongPassword))
	done := m.login(p)
	failure(t, done.err, "auto-login")
	require.ErrorIs(t, done.err, machost.ErrWrongPassword)
	require.ErrorContains(t, done.err, "the previous one")
	require.Equal(t, right, m.storedPassword())
	require.Equal(t, "ci", m.console())

	kicks := m.called("launchctl kickstart")
	again := m.login(p)
	require.ErrorIs(t, again.err, machost.ErrWrongPassword, "and still, each time")
	require.Equal(t, kicks, m.called("launchctl kickstart"), "without ending the session again")
	require.NoError(t, m.login(payload()).err, "the host itself is all right")
	require.NotContains(t, m.read("/usr/local/var/bullpen/auto-login.refused"), wrongPassword)
}

// The account is not locked by a controller that applies again and again.
func TestAutoLogin_HOST3_ARefusedPasswordIsTriedOnce(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(wrongPassword))
	for range 4 {
		require.ErrorIs(t, m.login(p).err, machost.ErrWrongPassword)
	}
	bad, err := m.Root.BadPasswords("ci")
	require.NoError(t, err)
	require.Equal(t, 1, bad)
	require.NoError(t, m.login(payload(withPassword(right))).err)
	require.NoError(t, m.host.Remove("/etc/kcpassword"))
	failed := failure(t, m.login(p).err, "auto-login")
	require.Contains(t, failed.Remedy, "auto-login.refused", "should it be the right one by now")
}

// A password that was written and never tried looks right, and is sealed at the next start.
func TestAutoLogin_HOST3_AnApplyThatWasKilledBeforeTheRestart(t *testing.T) {
	for _, password := range []string{right, wrongPassword} {
		m := bootMac(t)
		m.storePassword(right)
		m.logsIn()
		m.storePassword("another one") // that the user had when the session began, say
		p := payload(withPassword(password))
		first := m.applyOn(beforeRestart{m.host}, m.only(p, m.facts(), "auto-login"), p.Secrets)
		require.ErrorIs(t, first.err, killed{})
		require.Equal(t, password, m.storedPassword())

		again := m.login(payload())
		if password == right {
			require.NoError(t, again.err)
			require.Equal(t, []string{"auto-login"}, again.report.Changed)
			require.Empty(t, m.login(payload()).report.Changed)
			continue
		}
		require.ErrorIs(t, again.err, machost.ErrWrongPassword)
	}
}

func TestAutoLogin_HOST1_ConvergesFromWhereverItWasKilled(t *testing.T) {
	p := payload(withPassword(right))
	for at := 0; ; at++ {
		m := bootMac(t)
		first := m.applyOn(&breaking{Host: m.host, at: at}, m.only(p, m.facts(), "auto-login"), p.Secrets)
		require.NoError(t, m.login(p).err, "killed before change %d", at)
		require.Equal(t, "ci", m.console())
		if first.err == nil {
			require.Greater(t, at, 3)
			return
		}
		require.ErrorIs(t, first.err, killed{})
	}
}

// The previous session, which is still there for a moment, proves nothing about the password.
func TestAutoLogin_HOST3_TheSessionFromBeforeIsNoProof(t *testing.T) {
	m := bootMac(t, loginTakes(300))
	require.NoError(t, m.apply(m.only(payload(withPassword(right)), steps.Facts{Binary: "/x"}, "auto-login"), machost.Secrets{}).err)
	m.ok("/usr/bin/defaults", "write", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser", "nobody")
	session := m.ok("/bin/launchctl", "print", "gui/501")
	require.NoError(t, m.Root.WriteScript(devmac.Script{Rules: []devmac.Rule{
		{Command: "launchctl", Args: []string{"gui/501"}, Effect: devmac.EffectAnswer, Stdout: session},
		{Command: "stat", Effect: devmac.EffectAnswer, Stdout: "ci\n"}}}))
	p := payload(withPassword(wrongPassword))
	done := m.apply(m.only(p, steps.Facts{Binary: "/x"}, "auto-login"), p.Secrets)
	require.ErrorIs(t, done.err, machost.ErrWrongPassword)
}

func TestAutoLogin_NoSessionIsLoud(t *testing.T) {
	m := bootMac(t, noSession)
	done := m.login(payload(withPassword(right)))
	failure(t, done.err, "auto-login")
	require.False(t, errorsIsWrong(done.err), "the password is not called wrong")
	require.ErrorContains(t, done.err, "not logged in at the console")
	done = m.login(payload())
	failure(t, done.err, "auto-login")
}

// A restart of the login window ends virtual machines.
func TestAutoLogin_WaitsForMachines(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(right))
	_, err := machost.Apply(t.Context(), machost.Options{Host: m.host, Steps: m.only(p, m.facts(), "auto-login"), Busy: func(context.Context) (int, error) { return 1, nil }})
	require.ErrorIs(t, err, machost.ErrBusy)
	require.Zero(t, m.called("launchctl kickstart"))
	m.missing("/etc/kcpassword")
}

func TestAutoLogin_HOST6_ThePasswordIsInNoCall(t *testing.T) {
	m := bootMac(t)
	for _, password := range []string{wrongPassword, right} {
		m.login(payload(withPassword(password)))
	}
	calls, err := m.Root.Calls()
	require.NoError(t, err)
	for _, call := range calls {
		require.NotContains(t, call.Line(), wrongPassword)
		require.NotContains(t, call.Line(), right)
	}
}
