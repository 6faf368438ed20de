package guard_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestExec_RunsAStep(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	got := c.run(client.Process{
		Argv: []string{"bash", "-c", `echo "$0|$1|$GREETING|$HOME|$PWD|$(umask)|$(id -u):$(id -G)"; echo to-stderr >&2; exit 3`, "a b", "'c'"},
		Env:  []string{"GREETING=hello\nworld", "PATH=/usr/bin:/bin"}, Dir: "/home",
	})
	require.Equal(t, result{client.Exit{Code: 3}, "a b|'c'|hello\nworld|/root|/home|0002|0:0\n", "to-stderr\n"}, got)
	require.Equal(t, "builder 1500 1600 44 63 1001 1600 /home/builder",
		orderGroups(c.run(client.Process{Argv: []string{"sh", "-c", "echo $(id -un) $(id -u) $(id -g) $(id -G) $HOME"}, User: "builder"}).stdout),
		"the groups of the image, and the pod's fsGroup")
	require.Equal(t, "7:8\n", c.run(client.Process{Argv: []string{"sh", "-c", "echo $(id -u):$(id -g)"}, User: "7:8"}).stdout)
	require.Equal(t, client.Exit{Code: 143, Signal: 15}, c.sh("kill -TERM $$").Exit)
	require.Equal(t, client.Exit{Code: 0}, c.run(client.Process{Argv: []string{"true"}}).Exit)
}

// orderGroups sorts nothing but the group 1001, which the kernel lists in order.
func orderGroups(line string) string {
	fields := strings.Fields(line)
	user, groups, home := fields[:3], fields[3:len(fields)-1], fields[len(fields)-1]
	var sorted []string
	for _, want := range []string{"44", "63", "1001", "1600"} {
		for _, have := range groups {
			if have == want {
				sorted = append(sorted, have)
			}
		}
	}
	return strings.Join(append(append(user, sorted...), home), " ")
}

func TestExec_SaysWhyACommandWasNotStarted(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	write := func(name, content string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(c.at(name), []byte(content), mode))
	}
	write("tmp/plain", "text", 0o644)
	write("tmp/noloader", "#!/nope/sh\n", 0o755)
	write("tmp/noformat", "not a program", 0o755)
	for name, row := range map[string]struct {
		process client.Process
		code    int
		text    string
	}{
		"missing":      {client.Process{Argv: []string{"nope"}}, 127, "nope: command not found in PATH (/usr/local/sbin:"},
		"missing path": {client.Process{Argv: []string{"/nope"}}, 127, "/nope: command not found"},
		"plain":        {client.Process{Argv: []string{"/tmp/plain"}}, 126, "/tmp/plain: it is not an executable file"},
		"plain in PATH": {client.Process{Argv: []string{"plain"}, Env: []string{"PATH=/tmp"}}, 126,
			"plain: /tmp/plain is not an executable file"},
		"directory":        {client.Process{Argv: []string{"/tmp"}}, 126, "/tmp: it is not an executable file"},
		"interpreter":      {client.Process{Argv: []string{"/tmp/noloader"}}, 127, "/tmp/noloader: the file is there, but not the interpreter"},
		"format":           {client.Process{Argv: []string{"/tmp/noformat"}}, 126, "/tmp/noformat: it is not a program for linux/"},
		"working dir":      {client.Process{Argv: []string{"true"}, Dir: "/nope"}, 126, "working directory /nope: no such file"},
		"working dir file": {client.Process{Argv: []string{"true"}, Dir: "/etc/passwd"}, 126, "it is not a directory"},
		"user":             {client.Process{Argv: []string{"true"}, User: "nobody"}, 126, `user "nobody" is not in the image's /etc/passwd`},
		"group":            {client.Process{Argv: []string{"true"}, User: "0:nogroup"}, 126, `group "nogroup" is not in the image's /etc/group`},
		"too long":         {client.Process{Argv: []string{"true", strings.Repeat("x", 1<<20)}}, 126, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.run(row.process)
			require.Equal(t, row.code, got.Code)
			require.Contains(t, got.Text, row.text)
		})
	}
	require.Equal(t, 0, c.run(client.Process{Argv: []string{"true"}, Dir: "/made/here", MakeDir: true}).Code)
	require.Equal(t, "script\n", func() string {
		write("home/run", "#!/bin/sh\necho script", 0o755)
		return c.run(client.Process{Argv: []string{"./run"}, Dir: "/home"}).stdout
	}())
}

func TestExec_PassesStandardInputOn(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	sent := bytes.Repeat([]byte("0123456789abcdef"), 50_000) // more than pipes and frames hold
	var received bytes.Buffer
	exit, err := c.Exec(await.Context(t), client.Process{Argv: []string{"cat"}}, client.Streams{Stdin: bytes.NewReader(sent), Stdout: &received})
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code)
	require.True(t, bytes.Equal(sent, received.Bytes()))
	// A process that does not read it ends all the same.
	exit, err = c.Exec(await.Context(t), client.Process{Argv: []string{"true"}}, client.Streams{Stdin: endless{}})
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code)
	require.Empty(t, c.run(client.Process{Argv: []string{"cat"}}).stdout, "without one it is empty")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// ignoring leaves processes behind that ignore signals: a child, one in a session of its own, and an orphan in one. Their number is in
// the file /tmp/up when they run.
const ignoring = `trap '' TERM INT HUP
sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' &
setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' &
sh -c 'setsid sh -c "trap \"\" TERM INT HUP; while :; do sleep 1; done" & exit' 
sleep 0.1; echo up > /tmp/up
while :; do sleep 1; done`

func TestExec_CancellationKillsTheWholeTree(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	require.Equal(t, 0, c.sh("setsid sleep 600 >/dev/null 2>&1 & echo $! > /tmp/daemon").Code)
	require.Eventually(t, func() bool { return c.processes() == 1 }, await.Limit, 5*time.Millisecond, "the daemon of an earlier step")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		_, err := c.Exec(ctx, shell(ignoring), client.Streams{})
		returned <- err
	}()
	c.await("tmp/up")
	require.GreaterOrEqual(t, c.processes(), 5)
	cancel()
	require.ErrorIs(t, await.Receive(t, returned, "Exec returns"), context.Canceled)
	require.Eventually(t, func() bool { return c.processes() == 1 }, await.Limit, 5*time.Millisecond, "only the daemon is left")
	require.Equal(t, 0, c.sh("kill -0 $(cat /tmp/daemon)").Code, "a daemon that an earlier step has left is not of this one")
}

func TestExec_AKilledClientIsACancellation(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.add("job")
	cmd := startClient(t, p.socket("job"), "sh", "-c", ignoring)
	c.await("tmp/up")
	require.NoError(t, cmd.Process.Kill())
	c.requireEmpty()
}

func TestExec_SignalsReachTheProcessGroup(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	signals := make(chan syscall.Signal, 1)
	type ended struct {
		exit client.Exit
		err  error
	}
	returned := make(chan ended, 1)
	go func() {
		exit, err := c.Exec(t.Context(), shell(`trap 'echo got > /tmp/got; exit 9' TERM
sh -c 'trap "sleep 0.2; echo child > /tmp/child; exit" TERM; echo up > /tmp/child-up; while :; do sleep 0.05; done' &
setsid sh -c 'trap "" INT TERM; while :; do sleep 1; done' &
until [ -s /tmp/child-up ]; do sleep 0.05; done; echo up > /tmp/up; while :; do sleep 0.05; done`), client.Streams{Signals: signals})
		returned <- ended{exit, err}
	}()
	c.await("tmp/up")
	signals <- syscall.SIGTERM
	got := await.Receive(t, returned, "the process ends")
	require.NoError(t, got.err)
	require.Equal(t, 9, got.exit.Code)
	require.Equal(t, "got", c.await("tmp/got"))
	require.Equal(t, "child", c.await("tmp/child"))
	c.requireEmpty()
}

func TestExec_ADaemonHoldsNoStep(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	start := time.Now()
	got := c.sh(`(while :; do echo tick; sleep 0.02; done) & head -c 50000 /dev/zero | tr '\0' x; echo; echo last`)
	require.Less(t, time.Since(start), 20*time.Second, "it returns two seconds after the process")
	require.Equal(t, 0, got.Code)
	require.Equal(t, 50000, strings.Count(got.stdout, "x"))
	require.Contains(t, got.stdout, "\nlast\n")
	require.Positive(t, c.processes(), "the daemon lives on")
	// It is not ended by writing either.
	before := c.processes()
	require.Equal(t, 0, c.sh("sleep 0.3").Code)
	require.Equal(t, before, c.processes())
}

func TestExec_TheRestOfAPipelineIsNotLost(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	got := c.run(client.Process{Argv: []string{"bash", "-c", `exec > >(sleep 0.3; tr a-z A-Z); echo late`}})
	require.Equal(t, result{Exit: client.Exit{}, stdout: "LATE\n"}, got)
}

// slow takes its time, so that the guard and the process have to wait.
type slow struct {
	taken int
	gate  chan struct{} // closed when it takes everything at once
}

func (s *slow) Write(p []byte) (int, error) {
	if s.taken += len(p); s.taken > 1<<20 {
		<-s.gate // bounded: the test closes it
	}
	return len(p), nil
}

func TestExec_AProcessWaitsForItsReader(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	reader := &slow{gate: make(chan struct{})}
	returned := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), shell(`for i in $(seq 64); do head -c 1048576 /dev/zero; echo $i > /tmp/written; done`), client.Streams{Stdout: reader})
		returned <- err
	}()
	written := c.await("tmp/written")
	require.Never(t, func() bool { return c.await("tmp/written") > "8" && len(c.await("tmp/written")) > 1 }, 300*time.Millisecond, 20*time.Millisecond)
	require.NotEqual(t, "64", written)
	close(reader.gate)
	require.NoError(t, await.Receive(t, returned, "the process ends when its output is read"))
	require.Equal(t, 64<<20, reader.taken)
	require.Less(t, c.peak(), guardMemory)
}

// guardMemory is what a guard may use at most, in bytes: most of it is the program itself.
const guardMemory = 40 << 20

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func TestExec_MuchOutputTakesLittleMemory(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	size := outputSize()
	var got counter
	exit, err := c.Exec(await.Context(t), client.Process{Argv: []string{"head", "-c", size.text, "/dev/zero"}}, client.Streams{Stdout: &got})
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code)
	require.Equal(t, size.bytes, got.n)
	require.Less(t, c.peak(), guardMemory)
}

func TestExec_AGuardThatIsKilledFailsTheStep(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	returned := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), shell("echo up > /tmp/up; sleep 600"), client.Streams{Stdout: io.Discard})
		returned <- err
	}()
	c.await("tmp/up")
	require.NoError(t, c.cmd.Process.Kill())
	require.ErrorIs(t, await.Receive(t, returned, "Exec returns"), client.ErrLost)
	await.Receive(t, c.done, "its socket is closed, too")
	_, err := c.Exec(t.Context(), shell("true"), client.Streams{})
	require.ErrorIs(t, err, client.ErrAbsent)
}

func TestExec_AForkBombIsEnded(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		// At most 150 processes of this user. Each ends soon after it has started others, in sessions of their own.
		_, err := c.Exec(ctx, client.Process{User: "47113", Argv: []string{"bash", "-c", `ulimit -u 150; trap '' TERM
bomb() { trap '' TERM; while :; do setsid bash -c "$BOMB" & sleep 0.01; done; }
export BOMB="$(declare -f bomb); bomb"; echo up > /tmp/up; bomb`}}, client.Streams{})
		returned <- err
	}()
	c.await("tmp/up")
	require.Eventually(t, func() bool { return c.processes() > 60 }, await.Limit, 20*time.Millisecond)
	cancel()
	require.ErrorIs(t, await.Receive(t, returned, "Exec returns"), context.Canceled)
	c.requireEmpty()
	require.Equal(t, "on\n", c.sh("echo on").stdout)
}
