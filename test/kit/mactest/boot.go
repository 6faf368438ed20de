//go:build unix

package mactest

import (
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// Mac is a booted model Mac.
type Mac struct {
	*devmac.Mac
	t *testing.T
	// Root is the directory that the Mac lives in, for machost.Local and the flags --root and --remote-root.
	Root devmac.Root
	// User is who logs in, and Password that user's.
	User, Password string
}

// Option changes the Mac that is made.
type Option func(*devmac.Options)

// With changes anything.
func With(change func(*devmac.Options)) Option { return change }

// Password makes that the user's.
func Password(password string) Option {
	return func(o *devmac.Options) { o.Password = password }
}

// File writes a file over what macOS ships, before the Mac boots.
func File(path, content string, mode os.FileMode) Option {
	return func(o *devmac.Options) {
		if o.Files == nil {
			o.Files = map[string]devmac.File{}
		}
		o.Files[path] = devmac.File{Content: []byte(content), Mode: mode}
	}
}

// built is the directory of the executable, if any test needed it.
var built atomic.Pointer[string]

// Executable of the model, built once for a test binary.
var Executable = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fakemac")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	path := filepath.Join(dir, "fakemac")
	return path, gobuild.Build(path, "github.com/bullpen-ci/bullpen/test/kit/fakemac")
})

// Main runs the tests of a package and removes the executable after them: to be called by TestMain. Without it, the executable stays in the
// temporary directory.
func Main(run func() int) int {
	code := run()
	if dir := built.Load(); dir != nil {
		os.RemoveAll(*dir)
	}
	return code
}

// Install makes a Mac that is not booted: its files and its commands are there, but launchd is not.
func Install(t *testing.T, options ...Option) *Mac {
	t.Helper()
	executable, err := Executable()
	require.NoError(t, err)
	o := devmac.Options{Executable: executable, User: "ci", Password: devmac.DefaultPassword, Machine: devmac.Machine{LoginMillis: 30}}
	for _, change := range options {
		change(&o)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "mac")
	}
	root, err := devmac.Install(o.Dir, o)
	require.NoError(t, err)
	return &Mac{t: t, Root: root, User: o.User, Password: o.Password}
}

// Boot makes a Mac and boots it. It is shut down when the test ends, which fails if anything of it is left running.
func Boot(t *testing.T, options ...Option) *Mac {
	t.Helper()
	mac := Install(t, options...)
	mac.Boot()
	return mac
}

// Boot boots the Mac.
func (m *Mac) Boot() {
	m.t.Helper()
	booted, err := devmac.Boot(m.Root)
	require.NoError(m.t, err)
	m.Mac = booted
	m.t.Cleanup(func() {
		if err := booted.Shutdown(); err != nil {
			m.t.Error(err)
		}
		// Processes of an SSH session or of the test itself end a little later.
		deadline := time.Now().Add(5 * time.Second)
		for {
			left := booted.Leftovers()
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				m.t.Errorf("the model Mac is shut down, but these run: %q", left)
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	})
}

// Reboot shuts the Mac down and boots it again: the packet filter is as /etc/pf.conf says, jobs are restarted, and a user
// logs in.
func (m *Mac) Reboot() {
	m.t.Helper()
	require.NoError(m.t, m.Mac.Shutdown())
	m.Boot()
}

// Run runs one of the Mac's commands as a user, which must exit with 0, and returns its standard output.
func (m *Mac) Run(user, path string, args ...string) string {
	m.t.Helper()
	stdout, stderr, exit, err := m.Root.Run(m.t.Context(), user, "", path, args...)
	require.NoError(m.t, err)
	require.Zero(m.t, exit, "%s %v: %s", path, args, stderr)
	return stdout
}

// Try is Run for what may fail: standard output, standard error, exit code.
func (m *Mac) Try(user, stdin, path string, args ...string) (stdout, stderr string, exit int) {
	m.t.Helper()
	stdout, stderr, exit, err := m.Root.Run(m.t.Context(), user, stdin, path, args...)
	require.NoError(m.t, err)
	return stdout, stderr, exit
}

// Calls are the calls of the Mac's commands so far.
func (m *Mac) Calls() []devmac.Call {
	m.t.Helper()
	calls, err := m.Root.Calls()
	require.NoError(m.t, err)
	return calls
}

// Script makes commands do something else than usual, from now on.
func (m *Mac) Script(rules ...devmac.Rule) {
	m.t.Helper()
	require.NoError(m.t, m.Root.WriteScript(devmac.Script{Rules: rules}))
}

// Evaluate says what becomes of a connection.
func (m *Mac) Evaluate(flow devmac.Flow) devmac.Answer {
	m.t.Helper()
	answer, err := m.Root.Evaluate(flow)
	require.NoError(m.t, err)
	return answer
}

// Reaches reports whether a connection is let through: from and to are addresses, to with a port ("10.0.0.5:443", "[fd00::1]:22").
func (m *Mac) Reaches(from, to string) bool {
	m.t.Helper()
	target := netip.MustParseAddrPort(to)
	return m.Evaluate(devmac.Flow{From: netip.MustParseAddr(from), To: target.Addr(), Port: target.Port()}).Reached
}

// ReadFile reads a file of the Mac.
func (m *Mac) ReadFile(path string) string {
	m.t.Helper()
	content, err := os.ReadFile(m.Root.Path(path))
	require.NoError(m.t, err)
	return string(content)
}

// WriteFile writes a file of the Mac.
func (m *Mac) WriteFile(path, content string, mode os.FileMode) {
	m.t.Helper()
	require.NoError(m.t, m.Root.WriteFile(path, devmac.File{Content: []byte(content), Mode: mode}))
}

// AwaitSession waits until that user has an Aqua session; "" until there is none.
func (m *Mac) AwaitSession(user string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		now, err := m.Session()
		return err == nil && now == user
	}, 10*time.Second, 5*time.Millisecond, "the session of %q", user)
}
