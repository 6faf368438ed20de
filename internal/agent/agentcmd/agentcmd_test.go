package agentcmd

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const envMain = "BULLPEN_TEST_AGENT_MAIN"

// TestMain is the program itself when a test starts it as that.
func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(Main(context.Background(), Program{Name: "bullpen-agent"}, "v1.2.3", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// start runs the program to its end.
func start(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), os.Args[0], args...)
	command.Env = append([]string{envMain + "=1", "PATH=" + os.Getenv("PATH")}, env...)
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	errs, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	said, err := io.ReadAll(errs)
	require.NoError(t, err)
	var exit *exec.ExitError
	if err := await.Call(t, command.Wait, "the program exits"); err != nil {
		require.ErrorAs(t, err, &exit)
		code = exit.ExitCode()
	}
	return string(text), string(said), code
}

// Exit 0 of a poller means that it has delivered a response, so a mistyped command must fail.
func TestMain_FailsUnlessTheCommandIsKnown(t *testing.T) {
	for wrong, says := range map[string][]string{
		"missing subcommand: buildkit, container-hook, courier, dockerfile, guard, guest, idle, install, pause, poll, ready, run": {},
		`unknown command "pol": use one of buildkit, container-hook`:                                                              {"pol"},
		`poll takes no arguments, got "again"`:                                                                                    {"poll", "again"},
		"flag provided but not defined":                                                                                           {"poll", "--nothing"},
		"install requires --to":                                                                                                   {"install"},
		"exec requires --id":                                                                                                      {"guest", "exec", "--", "true"},
		"exec requires a command after --":                                                                                        {"guest", "exec", "--id", "1"},
		`guest takes no arguments, got "exe"`:                                                                                     {"guest", "exe"},
		"no shared directory: set $BULLPEN_SHARED_DIR":                                                                            {"ready"},
		"--jit-file and --static exclude each other":                                                                              {"run", "--jit-file", "/f", "--static", "--", "true"},
		"--static and --registration-dir belong together: give both or neither":                                                   {"run", "--static", "--status-dir", "/d", "--", "true"},
	} {
		stdout, stderr, code := start(t, nil, says...)
		require.Equal(t, 1, code, says)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "bullpen-agent: ")
		require.Contains(t, stderr, wrong, says)
	}
}

func TestMain_ShowsVersionAndHelp(t *testing.T) {
	stdout, _, code := start(t, nil, "--version")
	require.Zero(t, code)
	require.Equal(t, "bullpen-agent version v1.2.3\n", stdout)
	stdout, _, code = start(t, nil, "--help")
	require.Zero(t, code)
	for _, c := range Commands(Program{Name: "bullpen-agent"}) {
		require.Contains(t, stdout, c.Short)
		help, stderr, code := start(t, nil, c.Name(), "--help")
		require.Zero(t, code, stderr)
		require.Contains(t, help, "bullpen-agent "+c.Name())
		if c.Name() != "pause" { // it has none
			require.Contains(t, help, "--", "its flags")
		}
	}
}

// The init container's command, then the probe's, from the copy that it has made.
func TestMain_InstallsItselfAndAnswersTheProbe(t *testing.T) {
	dir := t.TempDir()
	installed := filepath.Join(dir, "bullpen-agent")
	_, stderr, code := start(t, nil, "install", "--to", installed)
	require.Zero(t, code, stderr)
	shared := podenv.SharedDir + "=" + dir
	_, stderr, code = start(t, []string{shared}, "ready")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "bullpen-agent: not ready")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "runner.jobless"), nil, 0o600))
	command := exec.CommandContext(await.Context(t), installed, "ready")
	command.Env = []string{envMain + "=1", shared}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Empty(t, output)
	_, _, code = start(t, nil, "ready", "--status-dir", dir)
	require.Zero(t, code, "a status directory is enough")
}

// docker buildx finds its builder (checked with docker buildx by TestBuildKit_NET7_JOB2_OnAKubelet).
func TestMain_InstallsABuilder(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "buildx")
	for range 2 {
		_, stderr, code := start(t, nil, "install", "--to", filepath.Join(dir, "agent"), "--buildx-config", config, "--buildkit-host", "unix:///run/b.sock")
		require.Zero(t, code, stderr)
	}
	text, err := os.ReadFile(filepath.Join(config, "instances", "bullpen"))
	require.NoError(t, err)
	require.JSONEq(t, `{"Name": "bullpen", "Driver": "remote", "Nodes": [{"Name": "bullpen0", "Endpoint": "unix:///run/b.sock"}]}`, string(text))
}

// The supervisor's exit code is the runner's, and what is behind -- is the runner's alone.
func TestMain_ExitsWithTheRunnersCode(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, podenv.FileJIT), []byte("configuration"), 0o600))
	_, stderr, code := start(t, nil, "run", "--shared-dir", dir, "--", "sh", "-c", "exit 7")
	require.Equal(t, 7, code, stderr)
}

// What the runner writes, such as the files that a step's outputs go into, is also a job container's to change, which may have another user.
func TestRun_TheRunnerSharesItsFilesWithJobContainers(t *testing.T) {
	for key, want := range map[string]string{"": "0022\n", "a key": "0002\n"} { // without a key the job builds images at most
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, podenv.FileJIT), []byte("configuration"), 0o600))
		stdout, stderr, code := start(t, []string{courier.EnvPublicKey + "=" + key}, "run", "--shared-dir", dir, "--job-dir", shortDir(t), "--", "sh", "-c", "umask")
		require.Zero(t, code, stderr)
		require.Equal(t, want, stdout)
	}
}

// shortDir has a path that is short enough for a socket in it, which has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "j")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The pods that keep images on nodes run until they are deleted, and end at once then.
func TestPause_RunsUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	pause, done := pauseCommand("bullpen-agent").Define(flag.NewFlagSet("pause", flag.ContinueOnError)), make(chan error, 1)
	go func() { done <- pause(ctx, nil) }()
	select {
	case err := <-done:
		t.Fatalf("it has exited: %v", err)
	default:
	}
	stop()
	require.NoError(t, await.Result(done, "pause exits"))
}

func TestCheck_CountsArguments(t *testing.T) {
	none := func(string) bool { return false }
	c := Command{Use: "x --to FILE", Required: []string{"to"}}
	require.ErrorContains(t, c.Check(none, nil), "x requires --to")
	require.NoError(t, c.Check(func(name string) bool { return name == "to" }, nil))
	some := Command{Use: "y", Args: SomeArgs}
	require.Error(t, some.Check(none, nil))
	require.NoError(t, some.Check(none, []string{"a"}))
	anything := Command{Use: "z", Args: AnyArgs}
	require.NoError(t, errors.Join(anything.Check(none, nil), anything.Check(none, []string{"a"})))
}
