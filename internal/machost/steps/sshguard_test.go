package steps_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

const (
	guardFile     = "/etc/pf.anchors/bullpen.ssh"
	armedFile     = "/usr/local/var/bullpen/ssh-guard.armed"
	candidateFile = "/usr/local/var/bullpen/ssh-guard.candidate"
	inside        = "10.0.0.99"
	outside       = "198.51.100.7"
)

// over are the facts of an apply over SSH whose other end confirms so. The watchdog's tokens are recorded, and no watchdog runs.
func (m *mac) over(from string, confirm func(context.Context, string) error) (steps.Facts, *[]string) {
	var tokens []string
	f := m.facts()
	f.Session, f.Confirm = netip.MustParseAddr(from), confirm
	f.Watchdog = func(_ context.Context, token string) error {
		tokens = append(tokens, token)
		return nil
	}
	return f, &tokens
}

func yes(context.Context, string) error { return nil }

func (m *mac) open() bool {
	return m.reaches(inside, "10.0.0.21", 22) && m.reaches(outside, "10.0.0.21", 22)
}

func (m *mac) guarded() bool {
	return m.reaches(inside, "10.0.0.21", 22) && !m.reaches(outside, "10.0.0.21", 22)
}

var guardSteps = []string{"egress", "ssh-guard"}

func TestSSHGuard_HOST7_IsKeptOnceItIsConfirmed(t *testing.T) {
	m := bootMac(t)
	asked := 0
	p := payload(withGuard("10.0.0.0/24"))
	f, tokens := m.over(inside, func(_ context.Context, token string) error {
		asked++
		require.True(t, m.guarded(), "it is in force while the other end tries")
		require.NotContains(t, m.read(guardFile), "block", "and not yet where the next start reads it")
		require.Contains(t, m.read(armedFile), token)
		return nil
	})
	require.NoError(t, m.firewall(p, f, guardSteps...).err)
	require.Equal(t, 1, asked, "and not again where nothing differs")
	require.Len(t, *tokens, 1)
	require.True(t, m.guarded())
	require.False(t, m.reaches("192.168.64.7", "10.0.0.21", 22), "a machine")
	require.False(t, m.reaches("192.168.64.7", "192.168.64.1", 22), "a machine")
	require.True(t, m.reaches("192.168.64.7", "140.82.121.4", 22), "a machine, to a forge")
	m.missing(armedFile)
	m.missing(candidateFile)

	m.restart()
	require.True(t, m.guarded())
	m.filters2()
}

// HOST-1: an apply that is killed after it has written the rules leaves temporary files. The next apply removes them, with or without a
// guard in its configuration.
func TestSSHGuard_HOST1_WhatAKilledApplyHasLeftIsFinished(t *testing.T) {
	for name, wanted := range map[string]machost.Payload{"with a guard": payload(withGuard("10.0.0.0/24")), "without one": payload()} {
		for _, left := range []string{armedFile, candidateFile} {
			t.Run(name+"/"+filepath.Base(left), func(t *testing.T) {
				m := bootMac(t)
				f, _ := m.over(inside, yes)
				require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
				m.WriteFile(left, "left\n", 0o600)
				require.NoError(t, m.firewall(wanted, f, guardSteps...).err, "and nothing differs afterwards")
				m.missing(armedFile)
				m.missing(candidateFile)
				require.Equal(t, name == "with a guard", m.guarded())
			})
		}
	}
}

// filters2 is filters where the guard's block stands behind that of machines.
func (m *mac) filters2() {
	m.t.Helper()
	require.Contains(m.t, m.read("/etc/pf.conf"), block+"# BEGIN bullpen.ssh\n")
	require.False(m.t, m.reaches("192.168.64.7", "10.9.9.9", 443))
}

// A session that is open is not cut: the rules are about each packet, not about the first.
func TestSSHGuard_HOST7_OpenSessionsGoOn(t *testing.T) {
	m := bootMac(t)
	f, _ := m.over(inside, yes)
	require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
	answer, err := m.Root.Evaluate(devmac.Flow{From: netip.MustParseAddr(inside), To: netip.MustParseAddr("10.0.0.21"), Port: 22, Established: true})
	require.NoError(t, err)
	require.True(t, answer.Reached)
}

func TestSSHGuard_HOST7_RefusesToShutOutWhoAsks(t *testing.T) {
	m := bootMac(t)
	p := payload(withGuard("10.0.0.0/24", "fd00::/8"))
	for _, from := range []string{outside, "::ffff:" + outside, "2001:db8:9::1", "fe80::1%en0"} {
		f, tokens := m.over(from, yes)
		before := m.read("/etc/pf.conf")
		done := m.apply(m.only(p, f, "ssh-guard"), machost.Secrets{})
		stepError := failure(t, done.err, "ssh-guard")
		require.ErrorContains(t, done.err, netip.MustParseAddr(from).Unmap().WithZone("").String(), "the address is named")
		require.Contains(t, stepError.Remedy, "ssh.allowFrom")
		require.Equal(t, before, m.read("/etc/pf.conf"))
		require.Empty(t, *tokens)
		m.missing(guardFile)
	}
	for _, from := range []string{inside, "::ffff:" + inside, "127.0.0.1", "::1"} {
		f, _ := m.over(from, yes)
		_, err := m.only(p, f, "ssh-guard")[0].Check(t.Context(), m.host)
		require.NoError(t, err, from)
	}
}

func TestSSHGuard_HOST7_IsTakenBackWhenNobodyConfirms(t *testing.T) {
	no := errors.New("no new connection")
	for name, kept := range map[string]string{"the first guard": "", "a change of one": "198.51.100.0/24"} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			before := ""
			if kept != "" {
				f, _ := m.over(outside, yes)
				require.NoError(t, m.firewall(payload(withGuard(kept)), f, guardSteps...).err)
				before = m.read(guardFile)
			}
			f, _ := m.over(inside, func(context.Context, string) error { return no })
			done := m.apply(m.only(payload(withGuard("10.0.0.0/24")), f, guardSteps...), machost.Secrets{})
			failure(t, done.err, "ssh-guard")
			require.ErrorIs(t, done.err, no)
			require.True(t, m.reaches(outside, "10.0.0.21", 22), "who could come before can again")
			require.Equal(t, kept == "", m.reaches(inside, "10.0.0.21", 22))
			if kept != "" {
				require.Equal(t, before, m.read(guardFile))
			}
			m.missing(armedFile)
			m.restart()
			require.True(t, m.reaches(outside, "10.0.0.21", 22))
		})
	}
}

// Killed before any of its changes, or while the other end tries: the watchdog takes back what is in force, unless it was confirmed; so
// does a restart of the Mac.
func TestSSHGuard_HOST7_AKilledApplyLeavesTheWayOpen(t *testing.T) {
	p := payload(withGuard("10.0.0.0/24"))
	m := bootMac(t)
	opened := 0
	for at := 0; ; at++ {
		f, tokens := m.over(inside, yes)
		host := &breaking{Host: m.host, at: at}
		confirmed := false
		f.Confirm = func(context.Context, string) error {
			if err := host.change(); err != nil {
				return err
			}
			confirmed = true
			return nil
		}
		first := m.applyOn(host, m.only(p, f, guardSteps...), p.Secrets)
		for _, token := range *tokens {
			require.NoError(t, steps.RevertGuard(t.Context(), m.host, token, m.clock()))
		}
		m.missing(armedFile)
		if !confirmed {
			require.True(t, m.open(), "killed before change %d", at)
			opened++
		}
		if first.err == nil {
			break
		}
		f, _ = m.over(inside, yes)
		require.NoError(t, m.firewall(p, f, guardSteps...).err, "killed before change %d", at)
		require.True(t, m.guarded())
		require.NoError(t, m.firewall(payload(), f, guardSteps...).err)
		require.True(t, m.open())
	}
	require.Greater(t, opened, 6)
}

// The window in which a loaded guard is not confirmed: a restart opens the way, and so does the watchdog, and neither needs the apply.
func TestSSHGuard_HOST7_WhatIsNotConfirmedDoesNotLast(t *testing.T) {
	p := payload(withGuard("198.51.100.0/24")) // a list that shuts out the other end
	for name, act := range map[string]func(m *mac, token string){
		"a restart": func(m *mac, _ string) { m.restart() },
		"the watchdog": func(m *mac, token string) {
			require.NoError(m.t, steps.RevertGuard(m.t.Context(), m.host, token, m.clock()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			f, _ := m.over(outside, nil)
			f.Confirm = func(_ context.Context, token string) error {
				require.False(t, m.reaches(inside, "10.0.0.21", 22), "shut out")
				act(m, token)
				require.True(t, m.open())
				panic(killed{})
			}
			require.PanicsWithError(t, killed{}.Error(), func() { m.apply(m.only(p, f, guardSteps...), p.Secrets) })
			require.True(t, m.open())
		})
	}
}

func TestSSHGuard_HOST7_TheWatchdogLeavesAloneWhatIsConfirmed(t *testing.T) {
	m := bootMac(t)
	f, tokens := m.over(inside, yes)
	require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
	clock := m.clock()
	began := clock.now
	require.NoError(t, steps.RevertGuard(t.Context(), m.host, (*tokens)[0], clock))
	require.Equal(t, began, clock.now, "at once")
	require.True(t, m.guarded())

	m.write(armedFile, "a later apply's", 0o644)
	require.NoError(t, steps.RevertGuard(t.Context(), m.host, (*tokens)[0], clock))
	require.Contains(t, m.read(armedFile), "a later apply's")
}

// At its deadline, or when asked to stop: it opens rather than not.
func TestSSHGuard_HOST7_AWatchdogThatIsStoppedTakesTheGuardBack(t *testing.T) {
	m := bootMac(t)
	f, _ := m.over(inside, yes)
	require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
	m.write(guardFile, "", 0o644)
	m.write(armedFile, "token", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, steps.RevertGuard(ctx, m.host, "token", &stoppedClock{}))
	require.True(t, m.open())
}

type stoppedClock struct{}

func (stoppedClock) Now() time.Time                       { return time.Time{} }
func (stoppedClock) After(time.Duration) <-chan time.Time { return nil }

func TestSSHGuard_HOST7_NobodyToConfirmAndNobodyToRevert(t *testing.T) {
	m := bootMac(t)
	p := payload(withGuard("10.0.0.0/24"))
	f, _ := m.over(inside, nil)
	done := m.apply(m.only(p, f, guardSteps...), machost.Secrets{})
	failure(t, done.err, "ssh-guard")
	require.True(t, m.open())

	f, _ = m.over(inside, yes)
	f.Watchdog = nil
	done = m.apply(m.only(p, f, guardSteps...), machost.Secrets{})
	require.Error(t, done.err)
	require.True(t, m.open())

	f, _ = m.over(inside, yes)
	f.Watchdog = func(context.Context, string) error { return errors.New("no more processes") }
	done = m.apply(m.only(p, f, guardSteps...), machost.Secrets{})
	require.ErrorContains(t, done.err, "no more processes")
	require.True(t, m.open())
}

func TestSSHGuard_IsTakenOutWithItsNetworks(t *testing.T) {
	m := bootMac(t)
	f, _ := m.over(inside, yes)
	require.NoError(t, m.firewall(payload(withGuard("10.0.0.0/24")), f, guardSteps...).err)
	require.True(t, m.guarded())
	f, tokens := m.over(outside, nil)
	require.NoError(t, m.firewall(payload(), f, guardSteps...).err)
	require.Empty(t, *tokens, "who opens needs no proof")
	require.True(t, m.open())
	m.missing(guardFile)
	m.filters()
}

func TestSSHGuard_HOST2_BothBlocksStayInTheirOrder(t *testing.T) {
	m := bootMac(t)
	p := payload(withGuard("10.0.0.0/24"))
	f, _ := m.over(inside, yes)
	require.NoError(t, m.firewall(p, f, guardSteps...).err)
	want := m.read("/etc/pf.conf")
	ssh := "# BEGIN bullpen.ssh\nanchor \"bullpen.ssh\"\nload anchor \"bullpen.ssh\" from \"/etc/pf.anchors/bullpen.ssh\"\n# END bullpen.ssh\n"
	require.Equal(t, devmac.PFConf+block+ssh, want)
	for _, text := range []string{devmac.PFConf + ssh + block, devmac.PFConf + block + ssh + ssh + block, ssh + devmac.PFConf} {
		m.write("/etc/pf.conf", text, 0o644)
		require.NoError(t, m.firewall(p, f, guardSteps...).err)
		require.Equal(t, want, m.read("/etc/pf.conf"))
	}
}

func TestSSHGuard_ComesLast(t *testing.T) {
	list, err := steps.For(payload(withGuard("10.0.0.0/24")), steps.Facts{Binary: "/usr/local/bin/bullpen"})
	require.NoError(t, err)
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name()
	}
	require.Equal(t, "ssh-guard", names[len(names)-1])
	require.Less(t, slices.Index(names, "egress"), slices.Index(names, "nat"))
	require.Less(t, slices.Index(names, "sudo"), slices.Index(names, "auto-login"))
}
