package steps_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

// The incident without any block: the file is right, and what is in force is not.
func TestNAT_HOST2_FindsThatApplesHookIsNotInForce(t *testing.T) {
	m := bootMac(t)
	m.oldRuleset()
	p := payload()
	p.Config.Egress.Off = true
	list := m.only(p, m.facts(), "nat")
	diff, err := list[0].Check(t.Context(), m.host)
	require.NoError(t, err)
	require.True(t, diff.Disruptive, "a load of the whole file ends the network of machines that run")
	require.NoError(t, m.firewall(p, m.facts(), "nat").err)
	require.Contains(t, m.ok("/sbin/pfctl", "-s", "nat"), "nat-anchor \"com.apple/*\"")
}

func TestNAT_WantsApplesLinesInTheFile(t *testing.T) {
	m := bootMac(t)
	m.write("/etc/pf.conf", strings.Replace(devmac.PFConf, "nat-anchor \"com.apple/*\"\n", "# nat-anchor \"com.apple/*\"\n", 1), 0o644)
	done := m.firewall(payload(), m.facts(), "egress", "nat")
	stepError := failure(t, done.err, "nat")
	require.Equal(t, "/etc/pf.conf", stepError.File)
	require.Contains(t, stepError.Remedy, "nat-anchor")
}

func TestNAT_WhileMachinesRunTheyMustHaveANetwork(t *testing.T) {
	const machine = "/opt/homebrew/bin/tart run --no-graphics one\n"
	running := devmac.Rule{Command: "ps", Effect: devmac.EffectAnswer, Stdout: machine}
	for name, c := range map[string]struct {
		rules []devmac.Rule
		want  string
	}{
		"nothing is forwarded": {[]devmac.Rule{running, {Command: "sysctl", Args: []string{"net.inet.ip.forwarding"}, Effect: devmac.EffectAnswer, Stdout: "0\n"}}, "net.inet.ip.forwarding"},
		"nothing is translated": {[]devmac.Rule{running, {Command: "sysctl", Args: []string{"net.inet.ip.forwarding"}, Effect: devmac.EffectAnswer, Stdout: "1\n"},
			{Command: "pfctl", Args: []string{"Anchors"}, Effect: devmac.EffectAnswer, Stdout: "  com.apple\n  com.apple/200.AirDrop\n"}}, "no nat rule"},
	} {
		t.Run(name, func(t *testing.T) {
			m := bootMac(t)
			require.NoError(t, m.firewall(payload(), m.facts(), "egress", "nat").err, "no machine runs yet, and there is nothing to prove")
			require.NoError(t, m.Root.WriteScript(devmac.Script{Rules: c.rules}))
			_, err := machost.Apply(context.Background(), machost.Options{Host: m.host, Steps: m.only(payload(), m.facts(), "nat")})
			failure(t, err, "nat")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestNAT_IsSatisfiedWithWhatVmnetSetsUp(t *testing.T) {
	m := bootMac(t)
	require.NoError(t, m.firewall(payload(), m.facts(), "egress", "nat").err)
	m.write("/private/tmp/vmnet", "nat on en0 inet from 192.168.64.0/24 to any -> (en0)\n", 0o644)
	m.ok("/sbin/pfctl", "-a", "com.apple/shared_v4", "-f", "/tmp/vmnet")
	require.NoError(t, m.Root.WriteScript(devmac.Script{Rules: []devmac.Rule{
		{Command: "ps", Effect: devmac.EffectAnswer, Stdout: "/opt/homebrew/bin/tart run --no-graphics one\n"},
		{Command: "sysctl", Args: []string{"net.inet.ip.forwarding"}, Effect: devmac.EffectAnswer, Stdout: "1\n"}}}))
	_, err := machost.Apply(context.Background(), machost.Options{Host: m.host, Steps: m.only(payload(), m.facts(), "nat")})
	require.NoError(t, err)
}
