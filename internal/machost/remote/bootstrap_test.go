package remote

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestBootstrap_GoesFromABareHostToDone(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Applied","step":"hostname"}'; say '{"phase":"Done","hash":"abc"}'`)
	var seen events
	result, err := Bootstrap(t.Context(), h.options(&seen))
	require.NoError(t, err)
	require.Equal(t, Result{HostKey: ssh.FingerprintSHA256(h.keys[0].PublicKey()), Hash: "abc",
		Report: machost.Report{Changed: []string{"hostname"}}}, result)
	require.Equal(t, 1, h.attempts())
	for _, stage := range []Stage{StageConnect, StageProbe, StageUpload, StageSudo} {
		require.Len(t, seen.of(stage, machost.PhaseApplied), 1, stage)
	}
	sent, err := machost.DecodePayload([]byte(h.read("state/payload")))
	require.NoError(t, err)
	require.Equal(t, password, sent.Secrets.Password.Reveal())
	require.Equal(t, kubeconfig, sent.Secrets.BootstrapKubeconfig.Reveal())
	require.Contains(t, h.read("state/applies"), "--session 192.0.2.7")

	// Again: nothing is uploaded, no password is sent.
	seen = events{}
	_, err = Bootstrap(t.Context(), h.options(&seen))
	require.NoError(t, err)
	require.Equal(t, 1, h.attempts())
	require.Len(t, seen.of(StageUpload, machost.PhaseUnchanged), 1)
	require.Len(t, seen.of(StageSudo, machost.PhaseUnchanged), 1)
	leftovers, err := filepath.Glob(h.path("home/.bullpen/.part-*"))
	require.NoError(t, err)
	require.Empty(t, leftovers)
}

func TestBootstrap_ReportsAFailedStep(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Failed","step":"auto-login","file":"/etc/kcpassword","message":"it is sealed","remedy":"Give the right one.","wrongPassword":true}'
say '{"phase":"Failed","message":"stopped"}'; exit 1`)
	var seen events
	result, err := Bootstrap(t.Context(), h.options(&seen))
	var step *machost.StepError
	require.ErrorAs(t, err, &step)
	require.ErrorIs(t, err, machost.ErrWrongPassword)
	require.EqualError(t, err, "step auto-login: /etc/kcpassword: it is sealed. Give the right one.")
	require.NotEmpty(t, result.HostKey)
	require.Empty(t, result.Hash)
}

func TestBootstrap_ReportsWhatWaitsForMachines(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Applied","step":"hostname"}'; say '{"phase":"Deferred","step":"egress"}'; say '{"phase":"Deferred"}'; exit 75`)
	result, err := Bootstrap(t.Context(), h.options(&events{}))
	require.ErrorIs(t, err, machost.ErrBusy)
	require.Equal(t, machost.Report{Changed: []string{"hostname"}, Deferred: []string{"egress"}}, result.Report)
}

func TestBootstrap_NODE3_HoldsDisruptiveChangesBackWhenTold(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	_, err := Bootstrap(t.Context(), o)
	require.NoError(t, err)
	require.NotContains(t, h.read("state/applies"), "--hold-disruptive")
	o.Hold = true
	_, err = Bootstrap(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, h.read("state/applies"), "--hold-disruptive")
}

func TestBootstrap_DoesNotTakeSilenceForSuccess(t *testing.T) {
	for name, script := range map[string]string{"nothing": "", "no end": `say '{"phase":"Applied","step":"hostname"}'`, "noise": "echo hello"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.apply(script)
			_, err := Bootstrap(t.Context(), h.options(&events{}))
			var stage *StageError
			require.ErrorAs(t, err, &stage)
			require.Equal(t, StageApply, stage.Stage)
		})
	}
}

func TestBootstrap_RefusesWhatIsNoMac(t *testing.T) {
	h := newHost(t)
	h.script("usr/bin/uname", "echo Linux x86_64")
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	var unsupported *UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.Equal(t, "Linux x86_64", unsupported.Found)
	require.Zero(t, h.attempts())
	require.NoDirExists(t, h.path("home/.bullpen"))
}

func TestBootstrap_SendsTheWrongPasswordOnce(t *testing.T) {
	h := newHost(t)
	h.write("state/password", "another")
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	var sudo *SudoError
	require.ErrorAs(t, err, &sudo)
	require.False(t, sudo.Missing || sudo.Unknown)
	require.Equal(t, 1, h.attempts())
	require.NotContains(t, err.Error(), password)
}

func TestBootstrap_SendsNoPasswordThatWouldBeTwo(t *testing.T) {
	for _, bad := range []string{"one\ntwo", "one\r", "a\x00b", strings.Repeat("x", maxPassword+1)} {
		h := newHost(t)
		o := h.options(&events{})
		o.Payload.Secrets.Password = machost.NewSecret(bad)
		_, err := Bootstrap(t.Context(), o)
		require.Error(t, err)
		require.NotContains(t, err.Error(), bad)
		accepted, _ := h.counts()
		require.Zero(t, accepted, "the host was reached with %q", bad)
	}
}

func TestBootstrap_NeverRepeatsThePasswordAfterADrop(t *testing.T) {
	h := newHost(t)
	h.handle(func(command string, conn net.Conn) bool {
		if !strings.Contains(command, " -S ") {
			return false
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		return true
	})
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	var sudo *SudoError
	require.ErrorAs(t, err, &sudo)
	require.True(t, sudo.Unknown)
	require.Equal(t, 1, h.ran(" -S "), "the password was sent again")
}

// A client that gets "unreachable" retries, and a host that drops every attempt would have its account locked.
func TestBootstrap_APasswordWithoutAnAnswerIsNoUnreachableHost(t *testing.T) {
	for name, end := range map[string]func(*host){
		"never back": func(h *host) { h.listener.Close(); h.cut() },
		"lost again and again": func(h *host) {
			h.mu.Lock()
			h.onExec = func(string, net.Conn) bool { h.cut(); return true }
			h.mu.Unlock()
			h.cut()
		},
		"hung": nil,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			h.onExec = func(command string, _ net.Conn) bool {
				if !strings.Contains(command, " -S ") {
					return false
				}
				if end == nil {
					await.OrEnd(t, over)
					return true
				}
				end(h)
				return true
			}
			o := h.options(&events{})
			o.Timing.Wait, o.Timing.Command = 300*time.Millisecond, 3*time.Second
			_, err := Bootstrap(t.Context(), o)
			var sudo *SudoError
			require.ErrorAs(t, err, &sudo)
			require.True(t, sudo.Unknown)
			require.Equal(t, 1, h.ran(" -S "))
		})
	}
}

func TestBootstrap_SendsThePasswordOfAnotherUserToNobody(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	o.Payload.Config.User = "runner"
	_, err := Bootstrap(t.Context(), o)
	var sudo *SudoError
	require.ErrorAs(t, err, &sudo)
	require.True(t, sudo.Missing)
	require.Zero(t, h.attempts())
}

func TestBootstrap_TellsAWrongPasswordFromAFailedGrant(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	h.script("program", "echo disk full >&2; exit 1")
	_, err := Bootstrap(t.Context(), o)
	var stage *StageError
	require.ErrorAs(t, err, &stage)
	require.Equal(t, StageSudo, stage.Stage)
	require.Contains(t, stage.Detail, "disk full")
	require.Equal(t, 1, h.attempts())
}

func TestBootstrap_APlanGrantsNothing(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	o.Plan = true
	_, err := Bootstrap(t.Context(), o)
	var sudo *SudoError
	require.ErrorAs(t, err, &sudo)
	require.Zero(t, h.attempts())
	h.write("state/nopasswd", "")
	_, err = Bootstrap(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, h.read("state/applies"), " --plan")
}

func TestBootstrap_NoticesADamagedProgram(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	_, err := Bootstrap(t.Context(), o)
	require.NoError(t, err)
	programs, err := filepath.Glob(h.path("home/.bullpen/bullpen-*"))
	require.NoError(t, err)
	require.Len(t, programs, 1)
	whole, err := os.ReadFile(programs[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(programs[0], whole[:len(whole)/2], 0o755))
	_, err = Bootstrap(t.Context(), o)
	require.NoError(t, err)
	again, err := os.ReadFile(programs[0])
	require.NoError(t, err)
	require.Equal(t, whole, again)
}

func TestBootstrap_GoesOnWhereADroppedConnectionWas(t *testing.T) {
	for _, part := range []string{"uname", "test -x", "cat > ", " -n /usr/bin/true", "host apply"} {
		t.Run(part, func(t *testing.T) {
			h := newHost(t)
			var dropped atomic.Int64
			h.handle(func(command string, conn net.Conn) bool {
				if dropped.Load() == 2 || !strings.Contains(command, part) {
					return false
				}
				dropped.Add(1)
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
				return true
			})
			var seen events
			_, err := Bootstrap(t.Context(), h.options(&seen))
			require.NoError(t, err)
			require.EqualValues(t, 2, dropped.Load())
			require.Equal(t, 1, h.attempts())
			var again int
			for _, e := range seen.of(StageConnect, machost.PhaseApplying) {
				if strings.Contains(e.Message, "was lost") {
					again++
				}
			}
			require.Equal(t, 2, again, "it shows")
		})
	}
}

func TestBootstrap_EndsAfterABoundedNumberOfDrops(t *testing.T) {
	h := newHost(t)
	h.handle(func(command string, conn net.Conn) bool {
		if !strings.Contains(command, "host apply") {
			return false
		}
		conn.Close()
		return true
	})
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	var lost *LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, StageApply, lost.Stage)
	require.Equal(t, 1+quick().Resumes, h.ran("host apply"))
}

func TestBootstrap_AppliesAgainWhenTheApplyWasKilled(t *testing.T) {
	h := newHost(t)
	h.apply(`if test "$(wc -l < ` + h.path("state/applies") + `)" -lt 2; then say '{"phase":"Applied","step":"hostname"}'; kill -9 $$; fi
say '{"phase":"Unchanged","step":"hostname"}'; say '{"phase":"Done","hash":"abc"}'`)
	result, err := Bootstrap(t.Context(), h.options(&events{}))
	require.NoError(t, err)
	require.Equal(t, 2, h.applies())
	require.Equal(t, []string{"hostname"}, result.Report.Changed, "what the first has changed")
}

func TestBootstrap_EndsAHungCommand(t *testing.T) {
	h := newHost(t)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	h.handle(func(command string, _ net.Conn) bool {
		if !strings.Contains(command, " -n /usr/bin/true") {
			return false
		}
		await.OrEnd(t, hung)
		return true
	})
	o := h.options(&events{})
	o.Timing.Command = 5 * time.Second // enough for the commands that do not hang
	_, err := Bootstrap(t.Context(), o)
	var stage *StageError
	require.ErrorAs(t, err, &stage)
	require.Equal(t, StageSudo, stage.Stage)
}

// Whether the host has refused the password is as unknown as after a lost connection.
func TestBootstrap_HasALimitAsAWhole(t *testing.T) {
	for part, limit := range map[string]time.Duration{"host apply": time.Second, " -S -p ": 5 * time.Second} { // the second is enough for what is before it
		t.Run(part, func(t *testing.T) {
			h := newHost(t)
			hung := make(chan struct{})
			t.Cleanup(func() { close(hung) })
			h.handle(func(command string, _ net.Conn) bool {
				if !strings.Contains(command, part) {
					return false
				}
				await.OrEnd(t, hung)
				return true
			})
			o := h.options(&events{})
			o.Timing.Whole = limit
			_, err := Bootstrap(t.Context(), o)
			require.ErrorContains(t, err, "timed out after "+limit.String())
			var sudo *SudoError
			require.Equal(t, part == " -S -p ", errors.As(err, &sudo) && sudo.Unknown, "%v", err)
		})
	}
}

func TestBootstrap_EndsASilentApply(t *testing.T) {
	h := newHost(t)
	h.apply(`cat >/dev/null`)
	o := h.options(&events{})
	o.Timing.Silence = 200 * time.Millisecond
	_, err := Bootstrap(t.Context(), o)
	var stage *StageError
	require.ErrorAs(t, err, &stage)
	require.Contains(t, err.Error(), "no output for")
}

func TestBootstrap_CancelEndsEverything(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Applying","step":"tart"}'; cat >/dev/null`)
	ctx, cancel := context.WithCancel(t.Context())
	o := h.options(&events{})
	o.Events = func(e machost.Event) {
		if e.Step == "tart" {
			cancel()
		}
	}
	_, err := Bootstrap(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBootstrap_WaitsForSSHButNotForEver(t *testing.T) {
	h := newHost(t)
	address := h.listener.Addr().String()
	h.listener.Close()
	o := h.options(&events{})
	o.Timing.Wait = 300 * time.Millisecond
	_, err := Bootstrap(t.Context(), o)
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable)

	o.Timing.Wait = 10 * time.Second
	var seen events
	waiting := make(chan struct{}, 100)
	o.Events = func(e machost.Event) {
		seen.add(e)
		if strings.Contains(e.Message, "waiting for SSH") {
			waiting <- struct{}{}
		}
	}
	ended := make(chan error, 1)
	go func() { _, err := Bootstrap(t.Context(), o); ended <- err }()
	await.Receive(t, waiting, "Bootstrap waits for the host")
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	h.listen(listener)
	require.NoError(t, await.Receive(t, ended, "Bootstrap returns"))
}

func TestBootstrap_SaysThatTheKeyIsRefused(t *testing.T) {
	h := newHost(t)
	o := h.options(&events{})
	o.Target.Key = newKey(t, "ed25519")
	_, err := Bootstrap(t.Context(), o)
	var auth *AuthError
	require.ErrorAs(t, err, &auth)
	accepted, _ := h.counts()
	require.Equal(t, 1, accepted, "it is no reason to wait")
}

func TestBootstrap_GivesNoPasswordToAServer(t *testing.T) {
	h := newHost(t)
	var asked atomic.Int64
	h.authenticate(func(c *ssh.ServerConfig) {
		c.PublicKeyCallback = nil
		c.PasswordCallback = func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { asked.Add(1); return nil, errors.New("no") }
		c.KeyboardInteractiveCallback = func(ssh.ConnMetadata, ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			asked.Add(1)
			return nil, errors.New("no")
		}
	})
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	var auth *AuthError
	require.ErrorAs(t, err, &auth)
	require.Zero(t, asked.Load())
}
