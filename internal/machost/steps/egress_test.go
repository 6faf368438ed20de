package steps_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

func TestEgress_HOST1_FiltersMachinesOfANewMac(t *testing.T) {
	m := bootMac(t)
	require.True(t, m.reaches("192.168.64.7", "10.9.9.9", 443), "as macOS comes")
	done := m.firewall(payload(), m.facts(), "egress", "nat")
	require.NoError(t, done.err)
	require.Equal(t, []string{"egress"}, done.report.Changed)
	m.filters()
	require.False(t, m.reaches("192.168.64.7", "192.168.64.8", 22), "another machine, as far as pf sees it")
	require.False(t, m.reaches("192.168.64.7", "10.0.0.21", 22), "the host by its other address")
	require.False(t, m.reaches("fd00:64::7", "fd00:64::1", 22))
	require.False(t, m.reaches("fd00:64::7", "2001:db8::99", 443), "what is beside the host on its network")
	require.True(t, m.reaches("fd00:64::7", "2606:4700::1111", 443))
	require.True(t, m.reaches("10.0.0.99", "10.0.0.21", 22), "the host is reached as before")
	require.True(t, m.reaches("", "192.168.64.7", 22), "and reaches its machines")
	m.missing("/usr/local/var/bullpen/pf.conf.candidate")

	m.restart()
	m.filters()
	require.Contains(t, m.ok("/sbin/pfctl", "-s", "info"), "Status: Enabled")
	again := m.firewall(payload(), m.facts(), "egress", "nat")
	require.NoError(t, again.err)
	require.Empty(t, again.report.Changed, "a restart of the Mac changes nothing")
}

func TestEgress_AllowsWhatIsAllowedAndNotTheHost(t *testing.T) {
	m := bootMac(t)
	p := payload()
	p.Config.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	require.NoError(t, m.firewall(p, m.facts(), "egress").err)
	require.True(t, m.reaches("192.168.64.7", "10.9.9.9", 443))
	require.False(t, m.reaches("192.168.64.7", "10.0.0.21", 443))

	p.Config.Egress.Allow = nil
	done := m.firewall(p, m.facts(), "egress")
	require.NoError(t, done.err)
	require.NotContains(t, done.events[0].Changes, "/etc/pf.conf", "rules alone are loaded into their anchor alone")
	require.False(t, m.reaches("192.168.64.7", "10.9.9.9", 443))
}

func TestEgress_ABadNetworkRendersNothing(t *testing.T) {
	m := bootMac(t)
	before := m.read("/etc/pf.conf")
	p := payload()
	p.Config.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	_, err := stepsFor(p, m.facts())
	require.ErrorContains(t, err, "127.0.0.0/8")
	require.Equal(t, before, m.read("/etc/pf.conf"))
}

// A filter that is out of force for any reason is found by checking pf, and not files.
func TestEgress_HOST2_FindsOutThatItIsNotInForce(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	for name, act := range map[string]func(m *mac){
		"pf is disabled":        func(m *mac) { m.ok("/sbin/pfctl", "-d") },
		"the anchor is empty":   func(m *mac) { m.ok("/sbin/pfctl", "-a", "bullpen.runners", "-F", "rules") },
		"a rule is missing":     func(m *mac) { m.loadWithout("drop in quick on bridge100 from any to <bullpen_private>\n") },
		"a table is another":    func(m *mac) { m.loadChanged("10.0.0.0/8 ", "") },
		"the reference is lost": func(m *mac) { m.oldMain() },
		"the file is another":   func(m *mac) { m.write("/etc/pf.anchors/bullpen.runners", "pass all\n", 0o644) },
		"the file is writable": func(m *mac) {
			m.write("/etc/pf.anchors/bullpen.runners", m.read("/etc/pf.anchors/bullpen.runners"), 0o666)
		},
		"a restart forgets it": func(m *mac) { require.NoError(m.t, m.host.Remove("/Library/LaunchDaemons/dev.bullpen.pf.plist")) },
	} {
		act(m)
		done := m.firewall(payload(), m.facts(), "egress")
		require.NoError(t, done.err, name)
		require.Equal(t, []string{"egress"}, done.report.Changed, name)
		m.filters()
	}
}

func TestEgress_HOST2_VerifyLooksAtPf(t *testing.T) {
	m := bootMac(t)
	step := m.only(payload(), m.facts(), "egress")[0]
	for name, act := range map[string]func(m *mac){
		"pf is disabled":        func(m *mac) { m.ok("/sbin/pfctl", "-d") },
		"the anchor is empty":   func(m *mac) { m.ok("/sbin/pfctl", "-a", "bullpen.runners", "-F", "rules") },
		"the reference is lost": func(m *mac) { m.oldMain() },
	} {
		require.NoError(t, m.apply([]machost.Step{step}, machost.Secrets{}).err, name)
		require.NoError(t, step.Verify(t.Context(), m.host), name)
		act(m)
		require.ErrorContains(t, step.Verify(t.Context(), m.host), "not in force", name)
	}
}

func (m *mac) loadWithout(line string) { m.loadChanged("block "+line, "") }

func (m *mac) loadChanged(old, by string) {
	m.t.Helper()
	text := m.read("/etc/pf.anchors/bullpen.runners")
	require.Contains(m.t, text, old)
	m.write("/private/tmp/other", strings.Replace(text, old, by, 1), 0o644)
	m.ok("/sbin/pfctl", "-a", "bullpen.runners", "-f", "/tmp/other")
}

// oldMain puts a main rule set in force that refers to Apple's anchors alone.
func (m *mac) oldMain() {
	m.t.Helper()
	m.write("/private/tmp/old.conf", devmac.PFConf, 0o644)
	m.ok("/sbin/pfctl", "-f", "/tmp/old.conf")
}

// A load of the whole file waits for machines to end; all else does not.
func TestEgress_OnlyTheWholeFileWaitsForMachines(t *testing.T) {
	m := bootMac(t)
	busy := func(list []machost.Step) error {
		_, err := machost.Apply(t.Context(), machost.Options{Host: m.host, Steps: list, Busy: func(context.Context) (int, error) { return 1, nil }})
		return err
	}
	require.ErrorIs(t, busy(m.only(payload(), m.facts(), "egress")), machost.ErrBusy)
	require.Zero(t, m.called("pfctl -f"))
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	loads := m.called("pfctl -f")
	p := payload()
	p.Config.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	require.NoError(t, busy(m.only(p, m.facts(), "egress")))
	require.Equal(t, loads, m.called("pfctl -f"))
	require.True(t, m.reaches("192.168.64.7", "10.1.1.1", 443))
}

// A mistake of an administrator in the file is reported, and the file stays as it is.
func TestEgress_LeavesAFileThatDoesNotLoad(t *testing.T) {
	m := bootMac(t)
	bad := devmac.PFConf + "pas in quick all\n"
	m.write("/etc/pf.conf", bad, 0o644)
	done := m.firewall(payload(), m.facts(), "egress")
	require.Equal(t, "/etc/pf.conf", failure(t, done.err, "egress").File)
	require.ErrorContains(t, done.err, "syntax error")
	require.Equal(t, bad, m.read("/etc/pf.conf"))
	m.missing("/usr/local/var/bullpen/pf.conf.candidate")
}

// An error that pf reports only on load, such as a table defined twice, leaves the previous rules in force, and is reported.
func TestEgress_ALoadThatFailsIsLoud(t *testing.T) {
	m := bootMac(t)
	m.write("/etc/pf.anchors/theirs", "table <x> { 10.0.0.0/8 }\nblock from <x>\n", 0o644)
	theirs := "anchor \"theirs\"\nload anchor \"theirs\" from \"/etc/pf.anchors/theirs\"\n"
	m.write("/etc/pf.conf", devmac.PFConf+theirs+theirs, 0o644)
	done := m.firewall(payload(), m.facts(), "egress")
	require.Equal(t, "/etc/pf.conf", failure(t, done.err, "egress").File)
	require.ErrorContains(t, done.err, "Resource busy")
}

func TestEgress_KeepsWhatIsNotOurs(t *testing.T) {
	m := bootMac(t)
	theirs := devmac.PFConf + "# ours begins here\nanchor \"office\"\nload anchor \"office\" from \"/etc/pf.anchors/office\"\n"
	m.write("/etc/pf.anchors/office", "pass all\n", 0o644)
	m.write("/etc/pf.conf", theirs+block, 0o600)
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	require.Equal(t, theirs+block, m.read("/etc/pf.conf"))

	m.write("/etc/pf.conf", block+theirs, 0o600)
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	require.Equal(t, theirs+block, m.read("/etc/pf.conf"))
	info, err := m.host.Stat("/etc/pf.conf")
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode, "nor is its mode changed")
}

func TestEgress_OffTakesOutWhatIsThere(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.firewall(payload(), m.facts(), "egress").err)
	p := payload()
	p.Config.Egress.Off = true
	require.NoError(t, m.firewall(p, m.facts(), "egress", "nat").err)
	require.Equal(t, devmac.PFConf, m.read("/etc/pf.conf"))
	m.missing("/etc/pf.anchors/bullpen.runners")
	m.missing("/Library/LaunchDaemons/dev.bullpen.pf.plist")
	require.True(t, m.reaches("192.168.64.7", "10.9.9.9", 443))
}

func TestEgress_ABridgeThatNoRuleIsAboutIsLoud(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.Root.WriteScript(devmac.Script{Rules: []devmac.Rule{{
		Command: "ifconfig", Args: []string{"-l"}, Effect: devmac.EffectAnswer, Stdout: "lo0 en0 bridge0 bridge100 bridge107\n"}}}))
	done := m.firewall(payload(), m.facts(), "egress")
	failure(t, done.err, "egress")
	require.ErrorContains(t, done.err, "bridge107")
}

// Killed before any of its changes, the next apply gets there.
func TestEgress_HOST1_ConvergesFromWhereverItWasKilled(t *testing.T) {
	m := bootMac(t)
	for at := 0; ; at++ {
		m.run("/sbin/pfctl", "-d")
		m.oldRuleset()
		require.NoError(t, m.host.Remove("/Library/LaunchDaemons/dev.bullpen.pf.plist"))
		m.write("/etc/pf.conf", devmac.PFConf+stanza+block, 0o644)
		first := m.applyOn(&breaking{Host: m.host, at: at}, m.only(payload(), m.facts(), "egress", "nat"), machost.Secrets{})
		require.NoError(t, m.firewall(payload(), m.facts(), "egress", "nat").err, "killed before change %d", at)
		m.filters()
		if first.err == nil {
			require.Greater(t, at, 6)
			return
		}
		require.ErrorIs(t, first.err, killed{})
	}
}
