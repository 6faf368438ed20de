//go:build unix

package tart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Tart 4.1: 2 for what does not exist or does not run, 64 with a usage for bad arguments, 1 for the rest.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	missing := `the specified VM "none" does not exist`
	for _, args := range [][]string{
		{"get", "none"}, {"set", "none", "--cpu", "4"}, {"stop", "none"}, {"ip", "none"}, {"delete", "none"}, {"clone", "none", "x"},
		{"suspend", "none"}, {"exec", "none", "true"},
	} {
		m.fails(2, missing, args...)
	}
	m.fails(1, "is not a digest", "fqn", image)
	digest := "ghcr.io/org/macos@sha256:" + strings.Repeat("0", 64)
	require.Equal(t, digest+"\n", m.ok("fqn", digest), "a digest has a name before it is pulled")
	m.fails(2, "does not exist", "delete", image)
	m.fails(1, "Error: ", "run", "none")
	m.ok("clone", image, "a")
	m.fails(2, `VM "a" is not running`, "stop", "a")
	m.fails(2, `VM "a" is not running`, "suspend", "a")
	m.fails(1, "no IP address found, is your VM running?", "ip", "a")
	for _, args := range [][]string{
		{"clone", "a"}, {"clone", "a", "x/y"}, {"clone", "a", "b", "c"}, {"list", "--no-such-flag"}, {"no-such-command"}, {"prune"},
		{"prune", "--entries", "x", "--space-budget", "1"}, {"login", "ghcr.io"}, {"ip", "a", "--resolver", "x"}, {"set", "a", "--display", "x"},
		{"run", "a", "--net-softnet", "--net-host"}, {},
	} {
		m.fails(64, "Usage: tart", args...)
	}
	r := m.with([]string{"TART_HOME="}, "list")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.errors, "set TART_HOME")
	require.Equal(t, "2.28.6\n", m.ok("--version"))
}

// Tart 4.2: `list` has sizes as numbers, `get` as a string and no name; an image is listed by its tag and by its digest.
func TestJSON_HasTheShapesOfTart(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Images: map[string]devtart.Image{image: {SizeGB: 72, DiskGB: 90}}})
	m.ok("clone", image, "a")
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(m.ok("list", "--format", "json")), &list))
	require.Len(t, list, 3)
	for _, row := range list {
		require.ElementsMatch(t, []string{"Source", "Name", "Disk", "Size", "Accessed", "Running", "State"}, keys(row))
		require.InDelta(t, 72, row["Size"], 0)
		require.InDelta(t, 90, row["Disk"], 0)
		_, err := time.Parse(time.RFC3339, row["Accessed"].(string))
		require.NoError(t, err)
	}
	require.Equal(t, []any{"local", "OCI", "OCI"}, []any{list[0]["Source"], list[1]["Source"], list[2]["Source"]})
	require.Equal(t, image, list[1]["Name"])
	require.Contains(t, list[2]["Name"], "ghcr.io/org/macos@sha256:")
	require.Equal(t, list[2]["Name"].(string)+"\n", m.ok("fqn", image))
	require.Equal(t, "a\n", m.ok("fqn", "a"))

	var get map[string]any
	require.NoError(t, json.Unmarshal([]byte(m.ok("get", "a", "--format", "json")), &get))
	require.ElementsMatch(t, []string{"OS", "CPU", "Memory", "Disk", "DiskFormat", "Size", "Display", "Running", "State"}, keys(get))
	require.Equal(t, "72.000", get["Size"])

	require.Equal(t, "a\n", m.ok("list", "--source", "local", "--quiet"))
	require.Equal(t, 2, strings.Count(m.ok("list", "--source", "oci", "--quiet"), "\n"))
	m.ok("delete", image)
	require.Empty(t, m.ok("list", "--source", "oci", "--quiet"), "with the last tag goes what it led to")
}

func keys(row map[string]any) []string {
	var names []string
	for k := range row {
		names = append(names, k)
	}
	return names
}

// Tart 4.2: a clone has the identity of what it was made of, replaces a VM of its name, and pulls what is not there.
func TestClone_CopiesTheIdentityAndSilentlyReplaces(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	require.Len(t, calls(t, m, "pull"), 0)
	require.Contains(t, m.ok("pull", image), "already cached")
	m.ok("clone", "a", "b")
	require.Equal(t, m.identity("a"), m.identity("b"))
	m.ok("set", "b", "--random-mac")
	mac, serial := m.identity("a"), m.identity("b")
	require.NotEqual(t, mac[0], serial[0])
	require.Equal(t, mac[1], serial[1])
	m.ok("set", "b", "--random-serial", "--cpu", "6", "--memory", "9000", "--disk-size", "60")
	require.NotEqual(t, mac[1], m.identity("b")[1])
	m.ok("set", "b", "--display", "800x600")
	var get map[string]any
	require.NoError(t, json.Unmarshal([]byte(m.ok("get", "b", "--format", "json")), &get))
	require.Equal(t, []any{6.0, 9000.0, 60.0, "800x600"}, []any{get["CPU"], get["Memory"], get["Disk"], get["Display"]})
	m.fails(1, "should be larger than the current", "set", "b", "--disk-size", "50")
	m.fails(1, "at minimum", "set", "b", "--cpu", "1")
	m.fails(1, "at minimum", "set", "b", "--memory", "1")

	v := m.up("b")
	m.ok("clone", "a", "b")
	require.Equal(t, m.identity("a"), m.identity("b"), "the running VM was replaced without a word")
	require.Contains(t, m.ok("list", "--source", "local", "--format", "json"), `"stopped"`)
	require.NotContains(t, m.ok("list", "--source", "local", "--format", "json"), `"running"`, "and runs on, unknown")
	m.fails(2, "is not running", "stop", "b")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGINT))
	require.Zero(t, v.exit().code)
}

// identity is the MAC address and the serial number.
func (m *mac) identity(name string) [2]string {
	m.t.Helper()
	var config struct{ MacAddress, ECID string }
	data, err := os.ReadFile(filepath.Join(m.home, "vms", name, "config.json"))
	require.NoError(m.t, err)
	require.NoError(m.t, json.Unmarshal(data, &config))
	return [2]string{config.MacAddress, config.ECID}
}

func calls(t *testing.T, m *mac, command string) []devtart.Call {
	t.Helper()
	all, err := devtart.Calls(m.home)
	require.NoError(t, err)
	var found []devtart.Call
	for _, c := range all {
		if len(c.Args) > 0 && c.Args[0] == command {
			found = append(found, c)
		}
	}
	return found
}

// Tart 4.2: a pull waits for another of the same registry, and says so; a local name is nothing to pull, and no error.
func TestPull_LocksTheRegistry(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{
		Timing: devtart.Timing{Pull: devtart.Duration(time.Hour)},
		Images: map[string]devtart.Image{"ghcr.io/org/none:1": {Missing: true}},
	})
	require.Contains(t, m.ok("pull", "local"), "nothing to pull")
	m.fails(1, "code: 404", "pull", "ghcr.io/org/none:1")
	first := m.command(t.Context(), "pull", image)
	require.NoError(t, first.Start())
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(filepath.Join(m.home, "tmp"))
		return err == nil && len(entries) > 0
	}, patience, interval)
	m.script(devtart.Script{})
	second := m.command(t.Context(), "pull", "ghcr.io/org/other:1")
	out, err := second.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, second.Start())
	said := make([]byte, 64)
	require.Eventually(t, func() bool {
		n, err := out.Read(said)
		require.NoError(t, err)
		return strings.Contains(string(said[:n]), "waiting for lock...")
	}, patience, interval)
	require.Empty(t, m.ok("list", "--quiet"))
	entries, err := os.ReadDir(filepath.Join(m.home, "tmp"))
	require.NoError(t, err)
	require.NotEmpty(t, entries, "what is being pulled is locked, and not collected")
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())
	require.NoError(t, await.Call(t, second.Wait, "the second pull ends"), "a dead process holds no lock")
	m.ok("list")
	entries, err = os.ReadDir(filepath.Join(m.home, "tmp"))
	require.NoError(t, err)
	require.Empty(t, entries, "what a dead pull left is collected by the next command")
}

// Tart 4.2: the oldest images make room for a new one, unless that is switched off.
func TestPull_FullDisk(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{DiskGB: 70})
	m.ok("pull", "ghcr.io/org/one:1")
	m.ok("pull", "ghcr.io/org/two:1")
	r := m.with([]string{"TART_NO_AUTO_PRUNE=1"}, "pull", "ghcr.io/org/three:1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.errors, "No space left on device")
	m.ok("pull", "ghcr.io/org/three:1")
	list := m.ok("list", "--quiet")
	require.NotContains(t, list, "one:1")
	require.Contains(t, list, "two:1")
	m.ok("prune", "--space-budget", "30")
	require.NotContains(t, m.ok("list", "--quiet"), "two:1")
	m.ok("prune", "--older-than", "7")
	require.Contains(t, m.ok("list", "--quiet"), "three:1")
	m.ok("clone", "ghcr.io/org/three:1", "stopped")
	m.ok("clone", "ghcr.io/org/three:1", "running")
	v := m.up("running")
	m.ok("prune", "--entries", "vms", "--space-budget", "0")
	require.Equal(t, "running\n", m.ok("list", "--quiet", "--source", "local"), "a VM that runs is spared")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGINT))
	v.exit()
}

// Tart 4.2, 4.3: credentials come from the environment or the keychain, which may ask the user.
func TestRegistry_WantsCredentials(t *testing.T) {
	t.Parallel()
	private := map[string]devtart.Image{image: {Private: true}}
	m := newMac(t, devtart.Script{Images: private})
	m.fails(1, "AuthFailed", "pull", image)
	m.script(devtart.Script{Images: private, LockedKeychain: true})
	m.fails(1, "User interaction is not allowed", "pull", image)
	login := m.command(t.Context(), "login", "ghcr.io", "--username", "me", "--password-stdin")
	login.Stdin = strings.NewReader("secret")
	require.ErrorContains(t, login.Run(), "exit status 1")
	env := []string{"TART_REGISTRY_USERNAME=me", "TART_REGISTRY_PASSWORD=secret"}
	require.Equal(t, 1, m.with(append(env, "TART_REGISTRY_HOSTNAME=example.com"), "pull", image).code)
	require.Zero(t, m.with(env, "pull", image).code)

	m.script(devtart.Script{Images: private})
	m.ok("delete", image)
	login = m.command(t.Context(), "login", "ghcr.io", "--username", "me", "--password-stdin")
	login.Stdin = strings.NewReader("secret")
	require.NoError(t, login.Run())
	m.ok("pull", image)
	require.NoError(t, filepath.WalkDir(m.home, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "disk.img" {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), "secret", path)
		return err
	}))
}

// Tart 4.2: `delete` stops at the first VM that it cannot delete. Tart 4.3: one that lacks a file.
func TestDelete_StopsAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Rules: []devtart.Rule{{Command: "clone", Name: "corrupt", Effect: devtart.EffectCorrupt}}})
	for _, name := range []string{"a", "b", "corrupt"} {
		m.ok("clone", image, name)
	}
	m.fails(2, `"none"`, "delete", "none", "a")
	require.Equal(t, "a\nb\n", m.ok("list", "--quiet", "--source", "local"), "a VM without its files is not listed")
	m.fails(1, "VM is missing some of its files", "get", "corrupt")
	require.Equal(t, 1, m.run("corrupt").exit().code)
	m.ok("delete", "a", "corrupt")
	v := m.up("b")
	m.fails(1, `VM "b" is running`, "delete", "b")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGINT))
	v.exit()
	m.ok("delete", "b")
}

func TestRules_FireInOrderAndAreCounted(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Rules: []devtart.Rule{
		{Command: "get", Name: "a*", Skip: 1, Times: 2, Effect: devtart.EffectAnswer, Exit: 9, Stderr: "no", Stdout: "half"},
		{Command: "delete", Effect: devtart.EffectFailAfterwards, Message: "unknown"},
	}})
	m.ok("clone", image, "ab")
	m.ok("clone", image, "b")
	for _, want := range []int{0, 9, 9, 0} {
		require.Equal(t, want, m.tart("get", "ab").code)
		require.Zero(t, m.tart("get", "b").code)
	}
	m.fails(1, "something unprecedented", "delete", "b")
	require.Equal(t, "ab\n", m.ok("list", "--quiet", "--source", "local"), "it was done, and its answer was lost")
	require.Len(t, calls(t, m, "get"), 8)

	require.ErrorContains(t, devtart.Write(m.home, devtart.Script{Rules: []devtart.Rule{{Message: "none"}}}), "no message")
	require.NoError(t, os.WriteFile(filepath.Join(m.home, devtart.ScriptFile), []byte("{"), 0o600))
	m.fails(1, devtart.ScriptFile, "list")
}

func TestLaunchctl_SaysWhetherThereIsASession(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	require.Contains(t, m.ok("launchctl", "print", "gui/501"), "session = Aqua")
	m.script(devtart.Script{Session: devtart.SessionBackground})
	require.NotContains(t, m.ok("launchctl", "print", "gui/501"), "Aqua")
	m.script(devtart.Script{Session: devtart.SessionNone})
	m.fails(113, "Could not find domain", "launchctl", "print", "gui/501")
	m.ok("launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	m.fails(113, "Could not find domain", "launchctl", "print", "gui/501")
	m.script(devtart.Script{Session: devtart.SessionNone, LoginwindowRestores: true})
	m.ok("launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	require.Contains(t, m.ok("launchctl", "print", "gui/501"), "session = Aqua")
	m.fails(1, "knows print", "launchctl", "bootout", "gui/501")

	// Under its own name, it is that program.
	link := filepath.Join(t.TempDir(), "launchctl")
	require.NoError(t, os.Symlink(tart, link))
	cmd := m.command(t.Context(), "print", "gui/501")
	cmd.Path, cmd.Args[0] = link, link
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "session = Aqua")
}
