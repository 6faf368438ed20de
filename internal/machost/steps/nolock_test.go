package steps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// A wrong password was once given to sysadminctl in every apply, before it was verified, until macOS had locked the account.
func TestNoLock_HOST3_GivesNoPasswordThatWasNotTried(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(wrongPassword))
	list := m.only(p, m.facts(), "auto-login", "no-lock")
	for range 3 {
		require.True(t, errorsIsWrong(m.apply(list, p.Secrets).err))
	}
	bad, err := m.Root.BadPasswords("ci")
	require.NoError(t, err)
	require.Equal(t, 1, bad, "by the login window, once")
	require.Zero(t, m.called("/usr/bin/sudo -n -H -u ci /usr/sbin/sysadminctl -screenLock off"))

	p = payload(withPassword(right))
	list = m.only(p, m.facts(), "auto-login", "no-lock")
	require.NoError(t, m.apply(list, p.Secrets).err)
	again := m.apply(list, p.Secrets)
	require.NoError(t, again.err)
	require.Empty(t, again.report.Changed)
}

// While machines run, a new password cannot be verified, and is given to no program either.
func TestNoLock_HOST3_WaitsWithAPasswordThatMustBeTried(t *testing.T) {
	// The login at boot comes in its own time, and would seal the wrong password that is stored here.
	m := bootMac(t, mactest.With(func(o *devmac.Options) { o.Machine.NoLoginAtBoot = true }))
	p := payload(withPassword(wrongPassword))
	diff, err := m.only(p, m.facts(), "no-lock")[0].Check(t.Context(), m.host)
	require.NoError(t, err)
	require.False(t, diff.Empty())
	require.True(t, diff.Disruptive)

	m.storePassword(wrongPassword)
	list := m.only(p, m.facts(), "no-lock")
	diff, err = list[0].Check(t.Context(), m.host)
	require.NoError(t, err)
	require.False(t, diff.Disruptive, "auto-login has it")
	require.True(t, errorsIsWrong(m.apply(list, machost.Secrets{}).err), "it was changed since: it is not tried again automatically")
}
