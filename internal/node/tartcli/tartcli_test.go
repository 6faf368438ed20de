//go:build unix

package tartcli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/tarttest"
)

const (
	patience = 20 * time.Second
	interval = 10 * time.Millisecond
	image    = "ghcr.io/org/macos:15"
)

// tart is the fake.
var tart string

func TestMain(m *testing.M) { os.Exit(tarttest.Main(m.Run, &tart)) }

// client of a fake, whose home directory a test may read.
type client struct {
	*tartcli.Client
	home string
}

func newClient(t *testing.T, script devtart.Script, env ...string) client {
	t.Helper()
	home := t.TempDir()
	require.NoError(t, devtart.Write(home, script))
	c, err := tartcli.New(tartcli.Options{
		Command: []string{tart}, Home: home, Env: env,
		Pause: func(ctx context.Context, d time.Duration) {
			if d >= time.Second { // between two checks of a pull
				<-ctx.Done()
			}
		},
	})
	require.NoError(t, err)
	return client{c, home}
}

func rescript(t *testing.T, c client, rules ...devtart.Rule) {
	t.Helper()
	require.NoError(t, devtart.Write(c.home, devtart.Script{Rules: rules}))
}

// fake runs the fake itself, for what the client has no method for.
func fake(t *testing.T, c client, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), tart, args...)
	cmd.Env = append(os.Environ(), "TART_HOME="+c.home)
	out, err := cmd.Output()
	require.NoError(t, err, "%v", args)
	return string(out)
}

// process is a VM's `run`, started as the client says. It ends with the test.
type process struct {
	*exec.Cmd
	log   string
	ended chan struct{}
}

func run(t *testing.T, c client, name string) *process {
	t.Helper()
	argv, env, err := c.RunCommand(name, tartcli.RunOptions{})
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(argv[0], argv[1:]...), log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	require.NoError(t, err)
	defer log.Close()
	p.Env, p.Stdout, p.Stderr, p.SysProcAttr = env, log, log, &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, p.Start())
	go func() {
		_ = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		await.Receive(t, p.ended, "the process ends")
	})
	return p
}

// exit waits for the end, and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(t, "the VM runs on")
	}
	return p.ProcessState.ExitCode()
}

// up is a VM whose guest answers.
func up(t *testing.T, c client, name string) *process {
	t.Helper()
	require.NoError(t, c.Clone(t.Context(), image, name))
	p := run(t, c, name)
	argv, env, err := c.ExecCommand(name, []string{"true"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		cmd := exec.CommandContext(await.Context(t), argv[0], argv[1:]...)
		cmd.Env = env
		return cmd.Run() == nil
	}, patience, interval)
	return p
}

func TestClient_LifeOfAVM(t *testing.T) {
	t.Parallel()
	c := newClient(t, devtart.Script{})
	ctx := t.Context()
	v, err := c.Version(ctx)
	require.NoError(t, err)
	require.True(t, v.AtLeast(2, 28, 6))
	require.False(t, v.AtLeast(2, 29, 0))

	require.NoError(t, c.Pull(ctx, image))
	digest, err := c.FQN(ctx, image)
	require.NoError(t, err)
	require.Regexp(t, `^ghcr\.io/org/macos@sha256:[0-9a-f]{64}$`, digest)
	require.NoError(t, c.Clone(ctx, digest, "a"))
	require.NoError(t, c.Set(ctx, "a", tartcli.Settings{CPU: 6, MemoryMB: 9216, RandomMAC: true, RandomSerial: true}))
	var got struct{ CPU, Memory int }
	require.NoError(t, json.Unmarshal([]byte(fake(t, c, "get", "a", "--format", "json")), &got))
	require.Equal(t, []int{6, 9216}, []int{got.CPU, got.Memory})

	vms, err := c.List(ctx)
	require.NoError(t, err)
	require.Len(t, vms, 3, "the VM, and the image by its tag and by its digest")
	require.Equal(t, []string{"a", image, digest}, []string{vms[0].Name, vms[1].Name, vms[2].Name})
	require.Equal(t, []bool{false, true, true}, []bool{vms[0].Image, vms[1].Image, vms[2].Image})
	require.InDelta(t, 30, vms[0].SizeGB, 0)
	require.Equal(t, tartcli.StateStopped, vms[0].State)

	p := up(t, c, "b")
	pid, err := c.Holder("b")
	require.NoError(t, err)
	require.Equal(t, p.Process.Pid, pid)
	require.NoError(t, c.Stop(ctx, "b", patience))
	require.Zero(t, p.exit(t))
	pid, err = c.Holder("b")
	require.NoError(t, err)
	require.Zero(t, pid)
	require.NoError(t, c.Delete(ctx, "a", "b"))
	_, err = c.Holder("b")
	require.ErrorIs(t, err, os.ErrNotExist)
	vms, err = c.List(ctx)
	require.NoError(t, err)
	require.Len(t, vms, 2, "the image stays")
}

// Each of Tart's messages is recognized, and all of them here: no other package matches the text of an error.
func TestClient_KnowsWhatEachMessageMeans(t *testing.T) {
	t.Parallel()
	want := map[string]tartcli.Kind{
		"not-found": tartcli.KindNotFound, "no-digest": tartcli.KindNotFound, "not-running": tartcli.KindNotRunning, "already-running": tartcli.KindRunning,
		"running": tartcli.KindRunning, "limit": tartcli.KindLimit, "limit-others": tartcli.KindLimit, "limit-old": tartcli.KindLimit,
		"no-ip": tartcli.KindNoAddress, "no-ip-running": tartcli.KindNoAddress, "no-guest-agent": tartcli.KindGuestUnreachable,
		"corrupt": tartcli.KindCorrupt, "not-terminated": tartcli.KindStuck, "auxiliary-storage": tartcli.KindStuck,
		"softnet": tartcli.KindSoftnet, "softnet-missing": tartcli.KindSoftnet, "softnet-ended": tartcli.KindSoftnet,
		"keychain": tartcli.KindKeychain, "session-key": tartcli.KindNoSession, "session-host-key": tartcli.KindNoSession,
		"no-space": tartcli.KindNoSpace, "image-missing": tartcli.KindImageMissing, "image-private": tartcli.KindUnauthorized,
		"network": tartcli.KindNetwork, "unknown": tartcli.KindUnknown, "list-race": tartcli.KindUnknown,
		"unexpected-vm": tartcli.KindUnknown, "bad-arguments": tartcli.KindUsage, "lock-timed-out": tartcli.KindUnknown,
	}
	require.Len(t, want, len(devtart.Messages), "a message was added")
	c := newClient(t, devtart.Script{})
	for name, kind := range want {
		rescript(t, c, devtart.Rule{Command: "clone", Effect: devtart.EffectAnswer, Message: name})
		err := c.Clone(t.Context(), image, "vm-of-ours")
		var failed *tartcli.Error
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, kind, failed.Kind, "%s: %s", name, failed.Message)
		require.Equal(t, devtart.Messages[name].Code, failed.Code)
		require.NotEmpty(t, failed.Message)
		require.Contains(t, err.Error(), "cloning "+image+" to vm-of-ours")
	}
	require.Equal(t, tartcli.Kind(""), tartcli.KindOf(nil))
	require.Equal(t, tartcli.KindUnknown, tartcli.KindOf(os.ErrExist))
}

// A hung Tart, even one whose child holds the output open, is given up; and so is one whose caller stops waiting.
func TestClient_BoundsEveryCall(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, devtart.Write(home, devtart.Script{Rules: []devtart.Rule{{Effect: devtart.EffectHang}}}))
	const short = 300 * time.Millisecond
	c, err := tartcli.New(tartcli.Options{
		Command: []string{tart}, Home: home,
		Timeouts: tartcli.Timeouts{Silence: short, Clone: short, Delete: short, Set: short, Stop: short, Query: short},
	})
	require.NoError(t, err)
	ctx := t.Context()
	calls := map[string]func() error{
		"version": func() error { _, err := c.Version(ctx); return err },
		"list":    func() error { _, err := c.List(ctx); return err },
		"pull":    func() error { return c.Pull(ctx, image) },
		"clone":   func() error { return c.Clone(ctx, image, "a") },
		"set":     func() error { return c.Set(ctx, "a", tartcli.Settings{CPU: 2}) },
		"stop":    func() error { return c.Stop(ctx, "a", 0) },
		"delete":  func() error { return c.Delete(ctx, "a") },
		"fqn":     func() error { _, err := c.FQN(ctx, image); return err },
	}
	type outcome struct {
		name string
		err  error
		took time.Duration
	}
	outcomes := make(chan outcome)
	for name, call := range calls {
		go func() {
			begun := time.Now()
			err := call()
			outcomes <- outcome{name, err, time.Since(begun)}
		}()
	}
	for range calls {
		o := await.Receive(t, outcomes, "the command returns")
		require.Less(t, o.took, 12*time.Second, "%s: the child that has the output open lives for 15 seconds", o.name)
		require.Equal(t, tartcli.KindTimeout, tartcli.KindOf(o.err), "%s: %v", o.name, o.err)
		require.ErrorIs(t, o.err, context.DeadlineExceeded)
	}

	soon, cancel := context.WithCancel(ctx)
	cancel()
	require.Equal(t, tartcli.KindCanceled, tartcli.KindOf(c.Delete(soon, "a")))
}

func TestClient_ListAsksAgainWhenItRacesADelete(t *testing.T) {
	t.Parallel()
	c := newClient(t, devtart.Script{Rules: []devtart.Rule{
		{Command: "list", Effect: devtart.EffectAnswer, Message: "list-race", Times: 1},
		{Command: "list", Effect: devtart.EffectAnswer, Stdout: `[{"Name":"a`, Times: 1},
	}})
	vms, err := c.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, vms)
	calls, err := devtart.Calls(c.home)
	require.NoError(t, err)
	require.Len(t, calls, 3)

	rescript(t, c, devtart.Rule{Command: "list", Effect: devtart.EffectAnswer, Stdout: "{}"})
	_, err = c.List(t.Context())
	require.Equal(t, tartcli.KindUnreadable, tartcli.KindOf(err))
	rescript(t, c, devtart.Rule{Effect: devtart.EffectAnswer, Stdout: "tart\n"})
	_, err = c.Version(t.Context())
	require.Equal(t, tartcli.KindUnreadable, tartcli.KindOf(err))
}

func TestClient_SaysThatThereIsNoTart(t *testing.T) {
	t.Parallel()
	c, err := tartcli.New(tartcli.Options{Command: []string{"no-such-program"}, Home: t.TempDir()})
	require.NoError(t, err)
	_, err = c.Version(t.Context())
	require.Equal(t, tartcli.KindNoProgram, tartcli.KindOf(err))
	file := filepath.Join(t.TempDir(), "tart")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	c, err = tartcli.New(tartcli.Options{Command: []string{file}, Home: t.TempDir()})
	require.NoError(t, err)
	_, err = c.List(t.Context())
	require.Equal(t, tartcli.KindNoProgram, tartcli.KindOf(err))
}

// Names come from pods: none may become an option of Tart, or lead out of its home.
func TestClient_RefusesNamesThatAreOptions(t *testing.T) {
	t.Parallel()
	c := newClient(t, devtart.Script{})
	for _, bad := range []string{"", "--all", "-f", "a\nb"} {
		require.Equal(t, tartcli.KindUsage, tartcli.KindOf(c.Delete(t.Context(), "fine", bad)), "%q", bad)
		require.Equal(t, tartcli.KindUsage, tartcli.KindOf(c.Clone(t.Context(), bad, "a")))
		_, _, err := c.ExecCommand(bad, []string{"true"})
		require.Equal(t, tartcli.KindUsage, tartcli.KindOf(err))
		_, _, err = c.RunCommand(bad, tartcli.RunOptions{})
		require.Equal(t, tartcli.KindUsage, tartcli.KindOf(err))
	}
	_, _, err := c.ExecCommand("a", nil)
	require.ErrorContains(t, err, "there is no command")
	require.Equal(t, tartcli.KindUsage, tartcli.KindOf(c.Pull(t.Context(), "local")))
	for _, bad := range []string{"..", "a/b", "../../etc"} {
		_, err := c.Holder(bad)
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrNotExist)
	}
	for _, s := range []tartcli.Share{{"", "/a", true}, {"a:b", "/a", true}, {"a", "relative", false}, {"a", "/x:ro", false}} {
		_, _, err := c.RunCommand("a", tartcli.RunOptions{Shares: []tartcli.Share{s}})
		require.Equal(t, tartcli.KindUsage, tartcli.KindOf(err), "%+v", s)
	}
	calls, err := devtart.Calls(c.home)
	require.NoError(t, err)
	require.Empty(t, calls, "Tart was not even called")
}

func TestClient_ShowsNoSecrets(t *testing.T) {
	t.Setenv("KUBECONFIG", "/secret/kubeconfig")
	c := newClient(t, devtart.Script{Rules: []devtart.Rule{
		{Command: "pull", Effect: devtart.EffectAnswer, Exit: 1, Stderr: "\n  denied for me:hunter2\nmore"},
	}}, "TART_REGISTRY_PASSWORD=hunter2", "TART_REGISTRY_USERNAME=me")
	err := c.Pull(t.Context(), image)
	require.ErrorContains(t, err, "denied for me:(secret) (Unknown, exit code 1)")
	_, env, err := c.RunCommand("a", tartcli.RunOptions{})
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG") }))

	calls, err := devtart.Calls(c.home)
	require.NoError(t, err)
	for _, call := range calls {
		require.NotContains(t, strings.Join(call.Args, " "), "hunter")
	}
}

// A running VM that ends says why in its log only, and with exit code 0 even then.
func TestRun_TheLogExplainsTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  devtart.Script
		kind    tartcli.Kind
		code    int
		message string
	}{
		"crash": {
			devtart.Script{Rules: []devtart.Rule{{Command: "run", Effect: devtart.EffectCrash}}}, tartcli.KindEnded, 0, "stopped the virtual machine due to error",
		},
		"third VM":   {devtart.Script{GhostSlots: 2}, tartcli.KindLimit, 1, "exceeds the system limit"},
		"no session": {devtart.Script{Session: devtart.SessionNone}, tartcli.KindNoSession, 1, "HostKey"},
		"corrupt":    {devtart.Script{Rules: []devtart.Rule{{Command: "clone", Effect: devtart.EffectCorrupt}}}, tartcli.KindCorrupt, 1, "missing some of its files"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, test.script)
			require.NoError(t, c.Clone(t.Context(), image, "a"))
			p := run(t, c, "a")
			code := p.exit(t)
			require.Equal(t, test.code, code)
			failed := c.ExplainRun("a", code, p.log)
			require.Equal(t, test.kind, failed.Kind, failed.Error())
			require.Contains(t, failed.Message, test.message)
		})
	}
	require.Equal(t, 1, run(t, newClient(t, devtart.Script{}), "missing").exit(t), "not the 2 of other commands: ask List")
}
