package steps_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// An administrator has disabled pf, and manages the Mac from another network since. Enabling pf for egress would put the previous guard in
// force, which would shut out the session that the apply runs in.
func TestEgress_HOST7_PutsNoGuardInForceThatNobodyConfirms(t *testing.T) {
	for name, open := range map[string]func(m *mac){
		"pf was disabled": func(m *mac) { m.ok("/sbin/pfctl", "-d") },
		"its main rules were not loaded": func(m *mac) {
			m.write("/etc/other.conf", "pass all\n", 0o644)
			m.ok("/sbin/pfctl", "-f", "/etc/other.conf")
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			f, _ := m.over(inside, yes)
			require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
			require.True(t, m.guarded())
			open(m)
			require.True(t, m.open())

			asked := 0
			p := payload(withGuard("198.51.100.0/24"))
			f, _ = m.over(outside, func(context.Context, string) error { asked++; return nil })
			require.NoError(t, m.apply(m.only(p, f, "egress"), p.Secrets).err)
			require.True(t, m.open(), "until the guard's own step has asked")
			require.NoError(t, m.firewall(p, f, guardSteps...).err)
			require.Equal(t, 1, asked)
			require.True(t, m.reaches(outside, "10.0.0.21", 22))
			require.False(t, m.reaches(inside, "10.0.0.21", 22))
		})
	}
}

// With the guard's file gone, pf loads nothing of pf.conf, and the guard's own step was never reached.
func TestEgress_HOST1_MendsAGuardWhoseFileIsGone(t *testing.T) {
	m := bootMac(t)
	f, _ := m.over(inside, yes)
	p := payload(withGuard("10.0.0.0/24"))
	require.NoError(t, m.firewall(p, f, guardSteps...).err)
	require.NoError(t, m.host.Remove(guardFile))
	m.write("/etc/pf.conf", m.read("/etc/pf.conf")+"# a line below ours\n", 0o644)
	require.NoError(t, m.firewall(p, f, guardSteps...).err)
	require.True(t, m.guarded())
}

// An apply was killed with its guard in force, and the watchdog leaves it to the next apply, which cannot start one.
func TestSSHGuard_HOST7_WithoutAWatchdogNoGuardStays(t *testing.T) {
	m := bootMac(t)
	p := payload(withGuard("198.51.100.0/24"))
	f, _ := m.over(outside, func(context.Context, string) error { panic(killed{}) })
	require.PanicsWithError(t, killed{}.Error(), func() { m.apply(m.only(p, f, guardSteps...), p.Secrets) })
	require.False(t, m.open())
	f, _ = m.over(outside, yes)
	none := errors.New("no process more")
	f.Watchdog = func(context.Context, string) error { return none }
	require.ErrorIs(t, m.apply(m.only(p, f, guardSteps...), p.Secrets).err, none)
	require.True(t, m.open())
}

// The mode of a link is 0777, and became that of the file in its place.
func TestEgress_HOST2_AFileInPlaceOfALinkIsRootsAlone(t *testing.T) {
	m := bootMac(t)
	m.write("/etc/pf.conf.apple", m.read("/etc/pf.conf"), 0o644)
	require.NoError(t, m.host.Symlink("pf.conf.apple", "/etc/pf.conf"))
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	info, err := m.host.Stat("/etc/pf.conf")
	require.NoError(t, err)
	require.Equal(t, machost.FileInfo{Attributes: machost.Attributes{Mode: fs.FileMode(0o644), UID: os.Geteuid(), GID: os.Getegid()}, Size: info.Size}, info)
}
