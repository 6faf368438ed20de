package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// virtualMachine is a guest with its two shares.
type virtualMachine struct {
	t       *testing.T
	options GuestOptions
}

func newVirtualMachine(t *testing.T, spec guestshare.Spec) virtualMachine {
	t.Helper()
	shares := filepath.Join(t.TempDir(), "My Shared Files")
	for _, share := range []string{guestshare.ShareBullpen, guestshare.ShareStatus} {
		require.NoError(t, os.MkdirAll(filepath.Join(shares, share), 0o700))
	}
	require.NoError(t, guestshare.WriteJSON(filepath.Join(shares, guestshare.ShareBullpen, guestshare.FileSpec), spec))
	return virtualMachine{t, GuestOptions{
		Shares: shares, Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=/home"}, Beat: 5 * time.Millisecond, LookEvery: time.Millisecond,
	}}
}

func (v virtualMachine) status() string {
	return filepath.Join(v.options.Shares, guestshare.ShareStatus)
}

func (v virtualMachine) report(name string) guestshare.Report {
	v.t.Helper()
	report, found, err := guestshare.ReadReport(v.status(), name)
	require.NoError(v.t, err)
	require.True(v.t, found)
	return report
}

func (v virtualMachine) log() string {
	text, _ := guestshare.Read(v.status(), guestshare.FileLog)
	return string(text)
}

func (v virtualMachine) terminate() {
	require.NoError(v.t, guestshare.Write(filepath.Join(v.options.Shares, guestshare.ShareBullpen, guestshare.FileTerminate), nil))
}

func shell(script string) guestshare.Spec {
	return guestshare.Spec{Placeholder: "@guest@", Command: []string{"sh", "-c", script}, Env: []string{"HOME=@guest@/work", "WHO=me"}}
}

func TestGuest_RunsTheCommandOnceAndReportsItsEnd(t *testing.T) {
	v := newVirtualMachine(t, shell(`echo "$WHO in $PWD"; test -e @guest@/shared/guest.json && test -d @guest@/status || exit 9; echo oops >&2; exit 3`))
	require.NoError(t, Guest(t.Context(), v.options))
	report := v.report(guestshare.FileExit)
	require.Equal(t, int32(3), report.Code)
	require.Zero(t, report.Signal)
	require.False(t, report.FinishedAt.Before(report.StartedAt))
	own := v.options.withDefaults().Dir
	require.Equal(t, "me in "+own+"/work\noops\n", v.log(), "output and error, the guest's paths, the pod's environment")
	require.NotContains(t, own, " ", "not all that a job runs can bear a space in a path")
	_, alive := guestshare.Heartbeat(v.status(), time.Now())
	require.True(t, alive)
	times, err := guestshare.Read(v.status(), guestshare.FileLogTimes)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(times), " "+lengthOf(v.log())+"\n"), "the log's end is noted: %s", times)

	require.ErrorIs(t, Guest(t.Context(), v.options), ErrGuestBegun)
	require.Equal(t, "me in "+own+"/work\noops\n", v.log(), "it never runs again")
}

func lengthOf(text string) string {
	digits := []byte{}
	for n := len(text); n > 0; n /= 10 {
		digits = append([]byte{byte('0' + n%10)}, digits...)
	}
	return string(digits)
}

func TestGuest_OfManyAgentsOneRunsTheCommand(t *testing.T) {
	v := newVirtualMachine(t, shell("echo ran"))
	var wg sync.WaitGroup
	var ran atomic.Int32
	for range 8 {
		wg.Go(func() {
			switch err := Guest(t.Context(), v.options); {
			case err == nil:
				ran.Add(1)
			case !errors.Is(err, ErrGuestBegun):
				t.Errorf("running: %v", err)
			}
		})
	}
	await.Return(t, wg.Wait, "the guests return")
	require.Equal(t, int32(1), ran.Load())
	require.Equal(t, "ran\n", v.log())
}

func TestGuest_PassesAnOrderToEndOn(t *testing.T) {
	v := newVirtualMachine(t, shell("echo up; exec sleep 1000"))
	done := make(chan error, 1)
	go func() { done <- Guest(t.Context(), v.options) }()
	require.Eventually(t, func() bool { return v.log() != "" }, 20*time.Second, time.Millisecond)
	v.terminate()
	require.NoError(t, await.Receive(t, done, "the agent returns"))
	report := v.report(guestshare.FileExit)
	require.Equal(t, int32(15), report.Signal)
	require.Equal(t, int32(143), report.Code)
}

func TestGuest_EndsWithItsContextAsWithAnOrder(t *testing.T) {
	v := newVirtualMachine(t, shell("trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Guest(ctx, v.options) }()
	require.Eventually(t, func() bool { return v.log() != "" }, 20*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, await.Receive(t, done, "the agent returns"))
	require.Equal(t, int32(4), v.report(guestshare.FileExit).Code, "the command may take its leave")
}

func TestGuest_DoesNotStartWhatIsToEnd(t *testing.T) {
	v := newVirtualMachine(t, shell("echo ran"))
	v.terminate()
	require.NoError(t, Guest(t.Context(), v.options))
	require.Equal(t, int32(143), v.report(guestshare.FileExit).Code)
	require.Empty(t, v.log())
}

func TestGuest_ReportsACommandThatCannotBeStarted(t *testing.T) {
	for _, program := range []string{"no-such-program", "/no/such/program"} {
		v := newVirtualMachine(t, guestshare.Spec{Command: []string{program}})
		require.NoError(t, Guest(t.Context(), v.options))
		report := v.report(guestshare.FileExit)
		require.Equal(t, int32(128), report.Code)
		require.Equal(t, guestshare.ReasonStartError, report.Reason)
		require.Contains(t, report.Message, program)
	}
}

func TestGuest_SaysWhatIsMissing(t *testing.T) {
	v := newVirtualMachine(t, guestshare.Spec{})
	require.ErrorContains(t, Guest(t.Context(), v.options), "guest.json is invalid")
	require.NoError(t, os.Remove(filepath.Join(v.options.Shares, guestshare.ShareBullpen, guestshare.FileSpec)))
	require.ErrorContains(t, Guest(t.Context(), v.options), "the host shares it as bullpen")
	require.ErrorContains(t, DetachGuest(t.Context(), v.options, []string{"true"}), "the host shares it as bullpen")
}

func TestGuestExec_ReportsTheCommandsOwnCode(t *testing.T) {
	v := newVirtualMachine(t, shell("true"))
	require.NoError(t, Guest(t.Context(), v.options))
	var out, errs bytes.Buffer
	run := func(id, script string) error {
		return GuestExec(t.Context(), GuestExecOptions{
			GuestOptions: v.options, ID: id, Command: []string{"sh", "-c", script},
			Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs,
		})
	}
	require.NoError(t, run("a1", "cat; echo $WHO >&2"))
	require.Equal(t, "in", out.String())
	require.Equal(t, "me\n", errs.String())
	require.Zero(t, v.report(guestshare.FileExec("a1")).Code)
	require.Equal(t, 2, code(t, run("b2", "test -d @guest@/work && exit 2")))
	require.Equal(t, int32(2), v.report(guestshare.FileExec("b2")).Code)
	require.NoError(t, guestshare.Write(filepath.Join(v.options.Shares, guestshare.ShareBullpen, guestshare.FileExecEnd("c3")), nil))
	require.Equal(t, 137, code(t, run("c3", "sleep 1000 & wait")), "the host may end it")
	require.ErrorContains(t, run("../x", "true"), "lower-case letters and digits")
}

// A job may restart its guest, which empties the directory for temporary files. Images may start our agent at boot.
func TestGuest_RunsNothingInAGuestThatWasStartedAgain(t *testing.T) {
	v := newVirtualMachine(t, shell("echo once"))
	require.NoError(t, Guest(t.Context(), v.options))
	require.NoError(t, os.RemoveAll(v.options.withDefaults().Dir))
	require.ErrorIs(t, Guest(t.Context(), v.options), ErrGuestBegun)
	require.Equal(t, "once\n", v.log())
}

// The host's disk may be full when the command ends.
func TestGuest_ReportsUntilTheReportIsThere(t *testing.T) {
	v := newVirtualMachine(t, shell("exit 3"))
	inTheWay := filepath.Join(v.status(), guestshare.FileExit)
	require.NoError(t, os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
	tried := make(chan struct{}, 100)
	v.options.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if strings.Contains(string(line), "retrying") {
			tried <- struct{}{}
		}
	}), nil))
	done := make(chan error, 1)
	go func() { done <- Guest(t.Context(), v.options) }()
	await.Receive(t, tried, "another attempt to write fails")
	await.Receive(t, tried, "another attempt to write fails")
	require.NoError(t, os.RemoveAll(inTheWay))
	require.NoError(t, await.Receive(t, done, "the agent returns"))
	require.Equal(t, int32(3), v.report(guestshare.FileExit).Code)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func TestDetachGuest_ReturnsWhenTheAgentRuns(t *testing.T) {
	v := newVirtualMachine(t, shell("echo up; exec sleep 1000"))
	argv := []string{"env", modeEnv + "=guest " + v.options.Shares, os.Args[0]}
	for range 2 { // the second changes nothing
		require.NoError(t, DetachGuest(t.Context(), v.options, argv))
		_, alive := guestshare.Heartbeat(v.status(), time.Now())
		require.True(t, alive)
	}
	v.terminate()
	require.Eventually(t, func() bool {
		_, found, _ := guestshare.ReadReport(v.status(), guestshare.FileExit)
		return found
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, int32(15), v.report(guestshare.FileExit).Signal)

	broken := newVirtualMachine(t, shell("true"))
	require.ErrorContains(t, DetachGuest(t.Context(), broken.options, []string{"false"}), guestshare.FileGuestLog)
}

// In a guest the shared directory is read-only and the signs have a directory of their own.
func TestStatusDirectory_HoldsAllThatTheSupervisorWrites(t *testing.T) {
	c := newContainer(t, "exit 3")
	c.options.StatusDir = t.TempDir()
	before := func() []string { return names(t, c.dir) }
	c.start()
	idle := filesIn(c.options.JITFile, c.options.StatusDir).idle
	require.Eventually(t, func() bool { return exists(idle) }, 20*time.Second, time.Millisecond)
	require.Empty(t, before(), "nothing is written into the shared directory")
	require.NoError(t, Ready(c.options.JITFile, c.options.StatusDir))
	c.stage(jitText)
	require.Equal(t, 3, code(t, await.Receive(t, c.ended, "the supervisor returns")))
	require.Equal(t, []string{"jitconfig"}, before(), "the configuration is the host's to remove")
	require.Equal(t, []string{"jitconfig.taken", "job-started.sh", "runner.jobless"}, names(t, c.options.StatusDir))
	require.ErrorContains(t, Supervise(t.Context(), c.options), "already used in this pod")

	p := newPod(t, newDispatcher(t))
	p.options.StatusDir = c.options.StatusDir
	require.NoError(t, Poll(t.Context(), p.options), "an answer was taken: it asks for no other")
	require.ErrorContains(t, Poll(t.Context(), PollOptions{
		URL: p.options.URL, TokenFile: p.options.TokenFile, JITFile: p.options.JITFile, StatusDir: "/no/such",
	}), "the status directory /no/such")
}

func TestPoll_WaitsForTheSignInTheStatusDirectory(t *testing.T) {
	p := newPod(t, newDispatcher(t, reply(200, jitReply)))
	p.options.StatusDir = t.TempDir()
	done := make(chan error, 1)
	go func() { done <- Poll(t.Context(), p.options) }()
	time.AfterFunc(10*time.Millisecond, func() { touch(filepath.Join(p.options.StatusDir, "runner.idle")) })
	require.NoError(t, await.Receive(t, done, "the agent returns"))
	staged, err := os.ReadFile(p.options.JITFile)
	require.NoError(t, err)
	require.Equal(t, jitText, string(staged))
}

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
