package remote

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

func TestMain(m *testing.M) {
	os.Exit(mactest.Main(func() int {
		defer func() {
			if dir := built.Load(); dir != nil {
				os.RemoveAll(*dir)
			}
		}()
		return m.Run()
	}))
}

// built is the directory of the bullpen binary, if a test needed it.
var built atomic.Pointer[string]

// bullpen is the program itself, which a model Mac accepts in place of one for Macs.
var bullpen = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bullpen")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	path := filepath.Join(dir, "bullpen")
	return path, gobuild.Build(path, "github.com/bullpen-ci/bullpen/cmd/bullpen", "-tags", "production")
})

// model is a bare model Mac behind a real SSH server.
type model struct {
	*mactest.Mac
	ssh     *mactest.SSH
	seen    events
	config  machost.Config
	secrets machost.Secrets
	said    strings.Builder // errors and results, in each way in which they print
}

func newModel(t *testing.T) *model {
	t.Helper()
	t.Parallel() // most of it is waiting
	mac := mactest.Boot(t, mactest.Password(password))
	m := &model{Mac: mac, ssh: mac.SSH(t),
		config: machost.Config{User: "ci", Hostname: "mac-1", Node: machost.Node{Off: true}},
		secrets: machost.Secrets{
			Password: machost.NewSecret(password), BootstrapKubeconfig: machost.NewSecret(kubeconfig)},
	}
	t.Cleanup(func() { require.Empty(t, m.leaks(t), "secrets of the test are where none may be found") }) // of every test
	return m
}

// bootstrap remembers all that it returns.
func (m *model) bootstrap(t *testing.T, o Options) (Result, error) {
	t.Helper()
	result, err := Bootstrap(t.Context(), o)
	fmt.Fprintf(&m.said, "%v %+v %#v %s\n%v %+v %#v %s\n%+v %#v\n", err, err, err, encoded(t, err), result, result, result, encoded(t, result), o.Payload, o.Payload)
	return result, err
}

func (m *model) options(t *testing.T) Options {
	t.Helper()
	binary, err := bullpen()
	require.NoError(t, err)
	key, err := ssh.ParsePrivateKey(m.ssh.PrivateKey)
	require.NoError(t, err)
	return Options{
		Target:  Target{Address: m.ssh.Address, User: "ci", Key: key, HostKey: m.ssh.HostKey()},
		Payload: machost.Payload{Config: m.config, Secrets: m.secrets},
		Binary:  binary, RemoteRoot: string(m.Root), Events: m.seen.add,
		Timing: Timing{Wait: 20 * time.Second, Dial: 10 * time.Second, KeepAlive: 10 * time.Second, Command: 30 * time.Second, Upload: time.Minute,
			Apply: 3 * time.Minute, Silence: 2 * time.Minute, Confirm: 5 * time.Second, Resumes: 4, Backoff: 20 * time.Millisecond},
	}
}

// passwords is how often sudo was given one.
func (m *model) passwords() (n int) {
	for _, call := range m.Calls() {
		if call.Name == "sudo" && len(call.Args) > 0 && call.Args[0] == "-S" {
			n++
		}
	}
	return n
}

// await calls act once, when that event comes.
func (m *model) await(step string, phase machost.Phase, act func()) func(machost.Event) {
	var once sync.Once
	return func(e machost.Event) {
		m.seen.add(e)
		if e.Phase == phase && (e.Step == step || phase == machost.PhaseConfirm) {
			once.Do(act)
		}
	}
}

func TestModel_HOST1_FromABareMacToNothingToDo(t *testing.T) {
	deep.Only(t, "TestCommandLine_FromABareMacToNothingToDo")
	m := newModel(t)
	m.config.SSH.AllowFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	o := m.options(t)
	first, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.NotEmpty(t, first.Report.Changed)
	require.NotEmpty(t, first.Hash)
	require.Equal(t, m.ssh.HostKey(), first.HostKey)
	require.Equal(t, 1, m.passwords())
	m.AwaitSession("ci")
	require.Len(t, m.seen.of("", machost.PhaseConfirm), 2, "the question, and that it was answered")

	o.Payload.Secrets = machost.Secrets{} // all of it is set up
	m.seen = events{}
	second, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.Empty(t, second.Report.Changed)
	require.Equal(t, first.Hash, second.Hash)
	require.Equal(t, 1, m.passwords())
	require.Len(t, m.seen.of(StageUpload, machost.PhaseUnchanged), 1)

	o.Plan = true
	m.seen = events{}
	plan, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.Empty(t, plan.Report.Changed)
	require.Equal(t, "nothing to do", m.seen.of("", machost.PhaseDone)[0].Message)

	m.Reboot()
	o.Plan = false
	third, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.Empty(t, third.Report.Changed)
}

func TestModel_AWrongPasswordIsTriedOnce(t *testing.T) {
	m := newModel(t)
	m.secrets.Password = machost.NewSecret("not this one")
	_, err := m.bootstrap(t, m.options(t))
	var sudo *SudoError
	require.ErrorAs(t, err, &sudo)
	require.False(t, sudo.Missing || sudo.Unknown)
	require.Contains(t, sudo.Detail, "1 incorrect password attempt")
	require.Equal(t, 1, m.passwords())
	_, stderr, exit := m.Try("ci", password+"\n", "/usr/bin/sudo", "-S", "-p", "", "/usr/bin/true")
	require.Zero(t, exit, "the account is locked: %s", stderr)
}

// HOST-7: who would be shut out is refused before anything has changed.
func TestModel_HOST7_AGuardThatWouldLockUsOutIsRefused(t *testing.T) {
	deep.Only(t, "TestSSHGuard_HOST7_RefusesToShutOutWhoAsks of internal/machost/steps")
	m := newModel(t)
	m.config.SSH.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	_, err := m.bootstrap(t, m.options(t))
	var step *machost.StepError
	require.ErrorAs(t, err, &step)
	require.Equal(t, "ssh-guard", step.Step)
	require.True(t, m.Reaches("10.0.0.9", "10.0.0.21:22"))
	require.True(t, m.Reaches("203.0.113.1", "10.0.0.21:22"), "the guard is in force")
}

// HOST-7: the session is let in, but new connections come from elsewhere, as behind a NAT with several addresses. The host takes it back.
func TestModel_HOST7_AGuardThatIsNotConfirmedIsTakenBack(t *testing.T) {
	m := newModel(t)
	m.config.SSH.AllowFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}
	o := m.options(t)
	elsewhere, shut := netip.MustParseAddr("203.0.113.1"), false
	o.Events = m.await("", machost.PhaseConfirm, func() {
		m.ssh.SetSource(elsewhere)
		shut = !m.Reaches(elsewhere.String(), "10.0.0.21:22")
	})
	o.Timing.Dial, o.Timing.Confirm = time.Second, 2*time.Second
	_, err := m.bootstrap(t, o)
	var step *machost.StepError
	require.ErrorAs(t, err, &step)
	require.Equal(t, "ssh-guard", step.Step)
	require.True(t, shut, "the guard was never in force")
	require.True(t, m.Reaches(elsewhere.String(), "10.0.0.21:22"), "the way in is closed")
	m.Reboot()
	require.True(t, m.Reaches(elsewhere.String(), "10.0.0.21:22"), "the way in is closed after a restart")
}

// HOST-7: the connection drops in the very moment in which the guard is in force and not confirmed. The next attempt succeeds.
func TestModel_HOST7_ADropWhileTheGuardIsUnconfirmed(t *testing.T) {
	m := newModel(t)
	m.config.SSH.AllowFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	o := m.options(t)
	o.Events = m.await("", machost.PhaseConfirm, m.ssh.Cut)
	result, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.Contains(t, result.Report.Changed, "ssh-guard")
	require.True(t, m.Reaches("10.0.0.9", "10.0.0.21:22"))
	require.False(t, m.Reaches("203.0.113.1", "10.0.0.21:22"))
}

func TestModel_HOST6_AHostKeyThatChangesMidBootstrapGetsNothing(t *testing.T) {
	m := newModel(t)
	o := m.options(t)
	was := o.Target.HostKey
	o.Target.HostKey = ""
	o.Events = m.await(StageUpload, machost.PhaseApplied, func() {
		m.ssh.NewHostKey()
		m.ssh.Cut()
	})
	result, err := m.bootstrap(t, o)
	var changed *HostKeyError
	require.ErrorAs(t, err, &changed)
	require.True(t, changed.Changed)
	require.Equal(t, was, result.HostKey)
	require.Zero(t, m.passwords())
}

func TestModel_ResumesAfterADropAnywhere(t *testing.T) {
	drops := []int64{40, 3000, 1 << 20} // in the handshake, among the first commands, in the program that is sent
	if deep.Enabled() {
		drops = []int64{1, 40, 1500, 3000, 4200, 6000, 8000, 1 << 20, 20 << 20}
	}
	for _, after := range drops {
		t.Run(strconv.FormatInt(after, 10)+" bytes", func(t *testing.T) {
			m := newModel(t)
			o := m.options(t)
			o.Target.Address = cutting(t, m.ssh.Address, after)
			_, err := m.bootstrap(t, o)
			require.NoError(t, err)
			require.Equal(t, 1, m.passwords())
			plan := m.options(t)
			plan.Plan = true
			result, err := m.bootstrap(t, plan)
			require.NoError(t, err)
			require.Empty(t, result.Report.Changed)
			parts, err := filepath.Glob(m.Root.Path("/Users/ci/.bullpen/.part-*"))
			require.NoError(t, err)
			require.Empty(t, parts)
		})
	}
}

// cutting passes connections on, and cuts the first three after that many bytes from the client.
func cutting(t *testing.T, target string, after int64) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var pumps sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	pumps.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { client.Close(); server.Close() })
			limit := int64(1) << 62
			if n < 3 {
				limit = after
			}
			both := func() {
				_ = client.(*net.TCPConn).SetLinger(0)
				client.Close()
				server.Close()
			}
			pumps.Go(func() { pump(server, client, limit); both() })
			pumps.Go(func() { pump(client, server, 1<<62); both() })
		}
	})
	t.Cleanup(func() { listener.Close(); cancel(); await.Return(t, pumps.Wait, "the pumps end") })
	return listener.Addr().String()
}

func pump(to, from net.Conn, limit int64) {
	buffer := make([]byte, 32<<10)
	for limit > 0 {
		n, err := from.Read(buffer[:min(int64(len(buffer)), limit)])
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
		limit -= int64(n)
	}
}

func TestModel_AppliesAgainWhenTheApplyWasKilled(t *testing.T) {
	m := newModel(t)
	o := m.options(t)
	var killed int
	o.Events = m.await("hostname", machost.PhaseApplied, func() { killed = m.killApply(t) })
	result, err := m.bootstrap(t, o)
	require.NoError(t, err)
	require.Positive(t, killed)
	require.Contains(t, result.Report.Changed, "hostname")
	require.NotEmpty(t, result.Hash)
	require.Equal(t, 1, m.passwords())
}

// killApply kills `bullpen host apply` on the Mac, and returns how many processes that were.
func (m *model) killApply(t *testing.T) (n int) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range all {
		text, err := os.ReadFile(file)
		words := strings.Split(string(text), "\x00")
		if err != nil || !strings.HasPrefix(words[0], string(m.Root)) || !strings.Contains(string(text), "\x00host\x00apply\x00") || strings.HasSuffix(words[0], "/sudo") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		n++
	}
	return n
}

func TestModel_EndsAHungSudo(t *testing.T) {
	m := newModel(t)
	m.Script(devmac.Rule{Command: "sudo", Effect: devmac.EffectHang, Times: 1})
	o := m.options(t)
	o.Timing.Command = 2 * time.Second
	_, err := m.bootstrap(t, o)
	var stage *StageError
	require.ErrorAs(t, err, &stage)
	require.Equal(t, StageSudo, stage.Stage)
	require.ErrorContains(t, err, "timed out after 2s")
	for _, call := range m.Calls() { // the model's hung sudo is ours to end
		if pid, _, ok := strings.Cut(call.ID, "-"); ok && call.Name == "sudo" && !call.Ended {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}
