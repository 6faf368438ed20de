package onebox

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testSetting() setting {
	return setting{
		layout: Layout{Dir: "/state"}, binary: "/opt/bullpen", agent: "/opt/bullpen-agent", appID: 1, capacity: capacity{CPU: 4, Memory: "8Gi", Disk: "1Ti", Pods: 10},
		addresses: addresses{
			Webhooks: "127.0.0.1:1", Internal: "127.0.0.1:2", ServerMetrics: "127.0.0.1:3",
			ControllerHealth: "127.0.0.1:4", ControllerMetrics: "127.0.0.1:5", GitHub: "127.0.0.1:6",
			Kubelet: "127.0.0.1:7", MacKubelet: "127.0.0.1:8",
		},
		clientAuthority: "/state/control-plane/pki/ca.crt",
		env:             []string{"PATH=/bin"},
	}
}

// NET-8: each part proves itself with its own identity, and none with the administrator's.
func TestPlan_NET8_EachPartHasItsOwnIdentity(t *testing.T) {
	s := testSetting()
	for part, command := range map[string]Command{
		partServer: s.serverCommand(), partController: s.controllerCommand(), partNode: s.nodeCommand(),
		partMac: s.macCommand(),
	} {
		var kubeconfigs []string
		for _, arg := range command.Args {
			if file, found := strings.CutPrefix(arg, "--kubeconfig="); found {
				kubeconfigs = append(kubeconfigs, file)
			}
			require.NotContains(t, arg, "admin.kubeconfig", part)
		}
		if part == partNode || part == partMac { // it gets a certificate of its own, by a token that is good for asking alone
			require.Empty(t, kubeconfigs)
			require.Contains(t, command.Args, "--bootstrap-kubeconfig=/state/identities/node-bootstrap.kubeconfig")
			require.Contains(t, command.Args, map[string]string{partNode: "--kubelet-port=7", partMac: "--kubelet-port=8"}[part])
			require.Contains(t, command.Args, "--client-ca-file=/state/control-plane/pki/ca.crt")
			continue
		}
		require.Equal(t, []string{"/state/identities/" + part + ".kubeconfig"}, kubeconfigs)
	}
	for _, arg := range s.standInCommand().Args {
		require.NotContains(t, arg, "identities", "GitHub has no business in the cluster")
	}
}

func TestPlanKeepsTheUsersEnvironmentOut(t *testing.T) {
	env := baseEnvironment([]string{"PATH=/bin", "HOME=/home/ada", "GITHUB_TOKEN=secret", "BULLPEN_DATABASE_URL=postgres://u:p@h/d", "KUBECONFIG=/k", "AWS_SECRET_ACCESS_KEY=x"})
	require.Equal(t, []string{"PATH=/bin", "HOME=/home/ada"}, env)
}

func TestPlanWithARealApp(t *testing.T) {
	s := testSetting()
	require.Contains(t, s.serverCommand().Args, "--github-hosted-labels=", "the stand-in has no runners of GitHub's own")
	s.app, s.appID = &App{ID: 42, KeyFile: "/keys/app.pem", SecretFile: "/keys/secret"}, 42
	args := s.serverCommand().Args
	require.Contains(t, args, "--github-url=https://api.github.com")
	require.Contains(t, args, "--github-app-id=42")
	require.NotContains(t, args, "--github-hosted-labels=")
	require.Contains(t, args, "--github-private-key-file=/keys/app.pem")
	require.Contains(t, args, "--webhook-secret-file=/keys/secret")
	s.poll = true
	args = s.serverCommand().Args
	require.Contains(t, args, "--webhooks=poll")
	require.NotContains(t, args, "--webhook-secret-file=/keys/secret")
}

func TestCheckApp(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		require.NoError(t, os.WriteFile(dir+"/"+name, []byte(content), 0o600))
		return dir + "/" + name
	}
	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	require.NoError(t, makeSecrets(layout))
	key, secret := layout.secret("app.pem"), layout.secret("webhook-secret")
	require.NoError(t, checkApp(nil, false))
	require.NoError(t, checkApp(&App{ID: 1, KeyFile: key, SecretFile: secret}, false))
	require.NoError(t, checkApp(&App{ID: 1, KeyFile: key}, true), "nothing is signed for who fetches")
	require.ErrorContains(t, checkApp(&App{ID: 1}, true), "needs --github-private-key-file. Generate")
	for says, app := range map[string]App{
		"positive number":               {KeyFile: key, SecretFile: secret},
		"--webhook-secret-file. Both":   {ID: 1, KeyFile: key},
		"reading --github-private-key":  {ID: 1, KeyFile: dir + "/none", SecretFile: secret},
		"is not PEM":                    {ID: 1, KeyFile: write("key", "hello"), SecretFile: secret},
		"reading --webhook-secret-file": {ID: 1, KeyFile: key, SecretFile: dir + "/none"},
		"is empty":                      {ID: 1, KeyFile: key, SecretFile: write("empty", " \n")},
	} {
		require.ErrorContains(t, checkApp(&app, false), says)
	}
}

func TestTakenAndBadAddresses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	layout := testLayout(t)
	_, err = chooseAddresses(layout, Options{Listen: listener.Addr().String()})
	require.ErrorContains(t, err, "--listen "+listener.Addr().String()+" cannot be used")
	require.ErrorContains(t, err, "choose another port")
	for _, bad := range []string{"8080", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:0", "127.0.0.1:99999"} {
		require.ErrorContains(t, checkAddress("--listen", bad), "such as 127.0.0.1:8080", bad)
	}
}

func TestAddressesStayTheSame(t *testing.T) {
	layout := testLayout(t)
	first, err := chooseAddresses(layout, Options{})
	require.NoError(t, err)
	second, err := chooseAddresses(layout, Options{})
	require.NoError(t, err)
	require.Equal(t, first, second)

	listener, err := net.Listen("tcp", first.Internal)
	require.NoError(t, err)
	defer listener.Close()
	third, err := chooseAddresses(layout, Options{})
	require.NoError(t, err)
	require.NotEqual(t, first.Internal, third.Internal, "somebody has taken it meanwhile")
	require.Equal(t, first.GitHub, third.GitHub)

	require.NoError(t, os.WriteFile(layout.portsFile(), []byte("{"), 0o600))
	_, err = chooseAddresses(layout, Options{})
	require.ErrorContains(t, err, "Remove it")
}

func TestBinaryPathMustFitIntoACommand(t *testing.T) {
	require.NoError(t, checkBinaryPath("/opt/bullpen-1.2/bin/bullpen"))
	for _, bad := range []string{"bullpen", "/home/Ada Lovelace/bullpen", "/opt/$(id)/bullpen"} {
		require.ErrorContains(t, checkBinaryPath(bad), "without spaces")
	}
}

func TestPlan_PodsStartTheAgentsOwnBinary(t *testing.T) {
	require.Contains(t, testSetting().controllerCommand().Args, "--agent-command=/opt/bullpen-agent")
}

func TestOptions_TheAgentIsBesideTheBinary(t *testing.T) {
	dir := t.TempDir()
	o := Options{StateDir: dir, Binary: filepath.Join(dir, "bullpen"), Assets: dir}
	_, err := o.withDefaults()
	require.ErrorContains(t, err, "bullpen-agent not found beside "+o.Binary+". Run `make build`")
	agent := filepath.Join(dir, "bullpen-agent")
	require.NoError(t, os.WriteFile(agent, nil, 0o600))
	_, err = findAgent(o.Binary)
	require.ErrorContains(t, err, agent+" is not executable. Run `make build`")
	require.NoError(t, os.Chmod(agent, 0o755)) //nolint:gosec // a program
	found, err := findAgent(o.Binary)
	require.NoError(t, err)
	require.Equal(t, agent, found)
}

func TestTokensAreRenewedByTheWallClock(t *testing.T) {
	end := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	require.False(t, dueForRenewal(end.Add(-renewEarly-time.Second), end))
	require.True(t, dueForRenewal(end.Add(-renewEarly), end))
	require.True(t, dueForRenewal(end.Add(time.Hour), end), "the machine slept")
}

func TestPlanGivesTheStandInItsSecretsByAFile(t *testing.T) {
	s := testSetting()
	require.NotContains(t, strings.Join(s.standInCommand().Args, " "), "--secrets-file")
	s.secretsFile = "/home/ada/secrets.env"
	require.Contains(t, s.standInCommand().Args, "--secrets-file=/home/ada/secrets.env")
}

func TestCheckSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets.env")
	require.NoError(t, os.WriteFile(file, []byte("A=b"), 0o600))
	got, err := CheckSecrets(file)
	require.NoError(t, err)
	require.Equal(t, file, got)
	require.NoError(t, os.WriteFile(file, []byte("hunter22"), 0o600))
	_, err = CheckSecrets(file)
	require.ErrorContains(t, err, "--secrets-file: reading the secrets in "+file+": line 1 is neither NAME=VALUE")
	require.NotContains(t, err.Error(), "hunter22")
	_, err = CheckSecrets("")
	require.NoError(t, err)
}
