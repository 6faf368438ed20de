package steps_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// The states in which the hosts of an incident were found (test/incidents, "Mac hosts"), each as it was, and what an apply makes of it.

const (
	block    = "# BEGIN bullpen.runners\n" + stanza + "# END bullpen.runners\n"
	stanza   = "anchor \"bullpen.runners\"\nload anchor \"bullpen.runners\" from \"/etc/pf.anchors/bullpen.runners\"\n"
	oldRules = "table <vm_sources> { 192.168.64.0/22 }\ntable <vm_blocked> { 10.0.0.0/8 172.16.0.0/12 169.254.0.0/16 }\nblock drop quick from <vm_sources> to <vm_blocked>\n"
	// withoutNAT is the previous rule set, without Apple's translation.
	withoutNAT = "anchor \"com.apple/*\"\nload anchor \"com.apple\" from \"/etc/pf.anchors/com.apple\"\n"
)

// oldRuleset puts rules in force that nothing of what came later is in.
func (m *mac) oldRuleset() {
	m.write("/private/tmp/old.conf", withoutNAT, 0o644)
	m.ok("/sbin/pfctl", "-f", "/tmp/old.conf")
	m.ok("/sbin/pfctl", "-e")
	m.write("/etc/pf.anchors/bullpen.runners", oldRules, 0o644)
}

// refusesItsFile is the incident: the file is not loaded, and what was in force stays so.
func (m *mac) refusesItsFile() {
	m.t.Helper()
	refused := m.run("/sbin/pfctl", "-f", "/etc/pf.conf")
	require.NotZero(m.t, refused.ExitCode)
	require.Contains(m.t, string(refused.Stderr), "Resource busy")
	require.NotContains(m.t, m.ok("/sbin/pfctl", "-s", "nat"), "com.apple", "the old rules are in force, and machines have no network")
	require.True(m.t, m.reaches("192.168.64.7", "10.9.9.9", 443), "nor are they kept from anything")
}

// filters is what a host must be after an apply, whatever it was before.
func (m *mac) filters() {
	m.t.Helper()
	text := m.read("/etc/pf.conf")
	require.True(m.t, strings.HasSuffix(text, block), text)
	require.Equal(m.t, 1, strings.Count(text, "load anchor \"bullpen.runners\""), text)
	require.Contains(m.t, text, "nat-anchor \"com.apple/*\"")
	m.ok("/sbin/pfctl", "-nf", "/etc/pf.conf")
	require.Contains(m.t, m.ok("/sbin/pfctl", "-s", "nat"), "nat-anchor \"com.apple/*\"")
	require.True(m.t, m.reaches("192.168.64.7", "1.1.1.1", 443))
	require.False(m.t, m.reaches("192.168.64.7", "10.9.9.9", 443))
	require.False(m.t, m.reaches("192.168.64.7", "192.168.64.1", 22), "the host")
}

func TestIncident_HOST2_TheBlockWasThereTwice(t *testing.T) {
	m := bootMac(t)
	m.oldRuleset()
	m.write("/etc/pf.conf", devmac.PFConf+block+block, 0o644)
	m.refusesItsFile()

	require.NoError(t, m.firewall(payload(), m.facts(), "egress", "nat").err)
	m.filters()
	m.ok("/sbin/pfctl", "-f", "/etc/pf.conf")
	m.restart()
	m.filters()
}

// The first review comment: stripping marked blocks alone leaves the stanza of the version before marks.
func TestIncident_HOST2_TheOlderUnmarkedStanza(t *testing.T) {
	for name, text := range map[string]string{
		"beside a block":         devmac.PFConf + "# bullpen.runners: egress of virtual machines\n" + stanza + block,
		"behind a block":         devmac.PFConf + block + stanza,
		"twice":                  devmac.PFConf + stanza + "\n" + stanza,
		"and half a block":       devmac.PFConf + stanza + "# BEGIN bullpen.runners\n" + stanza,
		"on lines that continue": devmac.PFConf + "anchor \\\n  \"bullpen.runners\"\nload anchor \"bullpen.runners\" \\\n from \"/etc/pf.anchors/bullpen.runners\"\n" + block,
	} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			m.oldRuleset()
			m.write("/etc/pf.conf", text, 0o644)
			m.refusesItsFile()

			require.NoError(t, m.firewall(payload(), m.facts(), "egress", "nat").err)
			m.filters()
			require.Equal(t, 1, strings.Count(m.read("/etc/pf.conf"), "anchor \"bullpen.runners\"\n"))
			require.NotContains(t, m.read("/etc/pf.conf"), "egress of virtual machines")
		})
	}
}

func TestIncident_HOST3_AWrongPasswordIsSealed(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(wrongPassword))
	failed := m.apply(m.only(p, m.facts(), "auto-login"), p.Secrets)
	stepError := failure(t, failed.err, "auto-login")
	require.ErrorIs(t, failed.err, machost.ErrWrongPassword)
	require.ErrorIs(t, failed.err, autologin.ErrSealed)
	require.Equal(t, "/etc/kcpassword", stepError.File)
	require.Equal(t, string(devmac.SealedPassword()), m.read("/etc/kcpassword"), "as in the incident")
	require.Equal(t, "root", m.console(), "there is no session, and no virtual machine could start")
	require.False(t, failed.tells(wrongPassword))

	// Silence from here on was the incident. Each apply fails, with the password and without one, and none tries it again.
	tries := m.called("launchctl kickstart")
	for _, p := range []machost.Payload{p, payload()} {
		again := m.apply(m.only(p, m.facts(), "auto-login"), p.Secrets)
		failure(t, again.err, "auto-login")
		require.ErrorIs(t, again.err, machost.ErrWrongPassword)
	}
	require.Equal(t, tries, m.called("launchctl kickstart"))

	p = payload(withPassword(devmac.DefaultPassword))
	require.NoError(t, m.apply(m.only(p, m.facts(), "auto-login"), p.Secrets).err)
	require.Equal(t, "ci", m.console())
}

func TestIncident_HOST4_TheLoginWindowIsDead(t *testing.T) {
	m := bootMac(t)
	m.storePassword(devmac.DefaultPassword)
	m.ok("/usr/bin/killall", "-HUP", "loginwindow")
	again := m.run("/usr/bin/killall", "-HUP", "loginwindow")
	require.Equal(t, 1, again.ExitCode, "there is no process to signal, and launchd starts none")
	require.Contains(t, string(again.Stderr), "No matching processes")
	require.Equal(t, "root", m.console())

	require.NoError(t, m.apply(m.only(payload(), m.facts(), "auto-login"), machost.Secrets{}).err)
	require.Equal(t, "ci", m.console())
	require.Contains(t, m.ok("/bin/launchctl", "print", "system/com.apple.loginwindow"), "state = running")
}

// The second review comment: what was there before must not be taken for what works.
func TestIncident_HOST3_EverythingWasThereAndTheFileIsSealed(t *testing.T) {
	m := bootMac(t)
	p := payload(withPassword(devmac.DefaultPassword))
	require.NoError(t, m.apply(m.only(p, m.facts(), "sudo", "auto-login"), p.Secrets).err)
	m.write("/etc/kcpassword", string(devmac.SealedPassword()), 0o600)

	for _, p := range []machost.Payload{payload(), p} {
		checks := m.only(p, m.facts(), "auto-login")
		require.Error(t, checks[0].Verify(t.Context(), m.host), "whether or not anything differs, and with any password")
	}
	failed := m.apply(m.only(payload(), m.facts(), "sudo", "auto-login"), machost.Secrets{})
	failure(t, failed.err, "auto-login")
	require.ErrorIs(t, failed.err, machost.ErrWrongPassword)
	require.Equal(t, "ci", m.console(), "the session from before lives, and nothing but a restart would have shown it")
	_, err := m.host.Stat("/etc/sudoers.d/bullpen-ci")
	require.NotErrorIs(t, err, os.ErrNotExist)
}
