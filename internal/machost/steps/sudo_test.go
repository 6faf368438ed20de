package steps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

const sudoersFile = "/etc/sudoers.d/bullpen-ci"

func TestSudo_HOST1_GrantsAndProvesIt(t *testing.T) {
	m := bootMac(t)
	done := m.firewall(payload(), m.facts(), "sudo")
	require.NoError(t, done.err)
	info, err := m.host.Stat(sudoersFile)
	require.NoError(t, err)
	require.EqualValues(t, 0o440, info.Mode)
	m.ok("/usr/sbin/visudo", "-cf", sudoersFile)
	m.missing("/usr/local/var/bullpen/sudoers.candidate")
	t.Setenv("DEVMAC_USER", "ci")
	m.ok("/usr/bin/sudo", "-n", "/usr/bin/true")
}

// An existing file proves nothing: a wrong one is repaired.
func TestSudo_MendsAFileThatIsThere(t *testing.T) {
	for name, act := range map[string]func(m *mac){
		"another user's": func(m *mac) { m.write(sudoersFile, "admin ALL=(ALL) NOPASSWD: ALL\n", 0o440) },
		"half of it":     func(m *mac) { m.write(sudoersFile, "# Written by `bullpen host apply`.\nci ALL=(A", 0o440) },
		"one that is ignored": func(m *mac) {
			m.write(sudoersFile, "# Written by `bullpen host apply`.\nci ALL=(ALL) NOPASSWD: ALL\n", 0o666)
		},
		"empty":                func(m *mac) { m.write(sudoersFile, "", 0o440) },
		"one that asks for it": func(m *mac) { m.write(sudoersFile, "ci ALL=(ALL) ALL\n", 0o440) },
	} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			act(m)
			done := m.firewall(payload(), m.facts(), "sudo")
			require.NoError(t, done.err)
			require.Equal(t, []string{"sudo"}, done.report.Changed)
		})
	}
}

// With one bad file in that directory, sudo fails for all users.
func TestSudo_ACandidateThatVisudoRefusesIsNotInstalled(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.Root.WriteScript(devmac.Script{Rules: []devmac.Rule{{Command: "visudo", Effect: devmac.EffectAnswer, Exit: 1, Stderr: "syntax error\n"}}}))
	done := m.firewall(payload(), m.facts(), "sudo")
	require.Equal(t, sudoersFile, failure(t, done.err, "sudo").File)
	m.missing(sudoersFile)
	m.missing("/usr/local/var/bullpen/sudoers.candidate")
}

func TestSudo_ALaterFileThatSaysOtherwiseIsLoud(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.firewall(payload(), m.facts(), "sudo").err)
	m.write("/etc/sudoers.d/zz-theirs", "ci ALL=(ALL) PASSWD: ALL\n", 0o440)
	done := m.apply(m.only(payload(), m.facts(), "sudo"), machost.Secrets{})
	failure(t, done.err, "sudo")
}

func TestSudo_RefusesNamesThatMeanSomething(t *testing.T) {
	for _, name := range []string{"", "root", "ALL ALL=(ALL) NOPASSWD: ALL\nci", "ci,admin", "%admin", "../ci", "a b", "-u", "jo.doe", "!ci", "ALL", "CI_1"} {
		_, err := stepsFor(machost.Payload{Config: machost.Config{User: name}}, steps.Facts{Binary: "/usr/local/bin/bullpen"})
		require.Error(t, err, "%q", name)
	}
}
