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
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func print(key ssh.Signer) string { return ssh.FingerprintSHA256(key.PublicKey()) }

func TestHostKey_EveryTypeCanBePinned(t *testing.T) {
	all := map[string]ssh.Signer{}
	for _, kind := range []string{"ed25519", "ecdsa256", "ecdsa384", "ecdsa521", "rsa"} {
		all[kind] = newKey(t, kind)
	}
	for kind, key := range all {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			h.setKeys(all["ed25519"], all["ecdsa256"], all["ecdsa384"], all["ecdsa521"], all["rsa"])
			o := h.options(&events{})
			o.Target.HostKey = print(key)
			result, err := Bootstrap(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, print(key), result.HostKey)
		})
	}
}

func TestHostKey_APinThatNoKeyFitsIsRefused(t *testing.T) {
	h := newHost(t)
	others := []ssh.Signer{newKey(t, "ed25519"), newKey(t, "rsa")}
	h.setKeys(others...)
	o := h.options(&events{})
	o.Target.HostKey = print(newKey(t, "ed25519"))
	result, err := Bootstrap(t.Context(), o)
	var wrong *HostKeyError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, []string{o.Target.HostKey}, wrong.Want)
	require.Equal(t, []string{print(others[0]), print(others[1])}, wrong.Got)
	require.False(t, wrong.Unknown() || wrong.Changed)
	require.Empty(t, result.HostKey)
	_, offered := h.counts()
	require.Zero(t, offered, "a key of the user's was offered to another host")
}

func TestHostKey_APinMustBeAFingerprint(t *testing.T) {
	h := newHost(t)
	for _, bad := range []string{"SHA256:short", "MD5:00:11", print(h.keys[0]) + "=", "ssh-ed25519 AAAA"} {
		o := h.options(&events{})
		o.Target.HostKey = bad
		_, err := Bootstrap(t.Context(), o)
		require.ErrorContains(t, err, "not a fingerprint", bad)
	}
}

// The first key that was seen is held to for the whole bootstrap: over each connection, and whatever other types the host has then.
func TestHostKey_HOST6_AChangeMidBootstrapGetsNothing(t *testing.T) {
	for _, part := range []string{"uname", "cat > ", " -S ", " -n /usr/bin/true", "host apply"} {
		for kind, pinned := range map[string]bool{"ed25519": false, "rsa": true} {
			t.Run(part+" "+kind, func(t *testing.T) {
				h := newHost(t)
				first := h.keys[0]
				var before atomic.Int64
				h.handle(func(command string, conn net.Conn) bool {
					if !strings.Contains(command, part) {
						return false
					}
					h.setKeys(newKey(t, kind))
					_, offered := h.counts()
					before.Store(int64(offered))
					conn.Close()
					return true
				})
				var seen events
				o := h.options(&seen)
				if !pinned {
					o.Target.HostKey = ""
				}
				result, err := Bootstrap(t.Context(), o)
				var wrong *HostKeyError
				require.ErrorAs(t, err, &wrong)
				require.True(t, wrong.Changed)
				require.Equal(t, []string{print(first)}, wrong.Want)
				require.Equal(t, print(first), result.HostKey, "it is reported with a failure, too")
				require.Equal(t, 1, h.ran(part), "a command was sent to another host")
				_, after := h.counts()
				require.EqualValues(t, before.Load(), after, "a key of the user's was offered to another host")
			})
		}
	}
}

func TestHostKey_KnownHosts(t *testing.T) {
	h := newHost(t)
	address := h.listener.Addr().String()
	ed, rsa := h.keys[0], newKey(t, "rsa")
	h.setKeys(ed, rsa)
	file := func(keys ...ssh.Signer) string {
		name := filepath.Join(t.TempDir(), "known_hosts")
		for _, key := range keys {
			require.NoError(t, AddKnownHost(name, address, key.PublicKey()))
		}
		return name
	}
	try := func(name string, trust func(string, ssh.PublicKey) error) (Result, error) {
		o := h.options(&events{})
		o.Target.HostKey, o.Target.KnownHosts, o.Target.Trust = "", name, trust
		return Bootstrap(t.Context(), o)
	}
	var wrong *HostKeyError

	result, err := try(file(ed), nil)
	require.NoError(t, err)
	require.Equal(t, print(ed), result.HostKey)
	result, err = try(file(rsa), nil)
	require.NoError(t, err)
	require.Equal(t, print(rsa), result.HostKey, "the key that is known was asked for, although another is preferred")

	// Known by a type that the host no longer has: no other type is accepted, and confirm is not called.
	_, err = try(file(newKey(t, "ecdsa256")), func(string, ssh.PublicKey) error { t.Error("asked"); return nil })
	require.ErrorAs(t, err, &wrong)
	require.False(t, wrong.Unknown())
	require.Empty(t, wrong.Got)
	_, err = try(file(newKey(t, "ed25519")), func(string, ssh.PublicKey) error { t.Error("asked"); return nil })
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, []string{print(ed)}, wrong.Got)

	_, err = try(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorAs(t, err, &wrong)
	require.True(t, wrong.Unknown())
	no := errors.New("no")
	_, err = try(file(), func(string, ssh.PublicKey) error { return no })
	require.ErrorIs(t, err, no)
	var asked []string
	result, err = try(file(), func(_ string, key ssh.PublicKey) error {
		asked = append(asked, ssh.FingerprintSHA256(key))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{result.HostKey}, asked, "once")

	revoked := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(revoked, []byte("@revoked * "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(ed.PublicKey())))+"\n"), 0o600))
	_, err = try(revoked, func(string, ssh.PublicKey) error { return nil })
	require.ErrorAs(t, err, &wrong)
	require.True(t, wrong.Revoked)
}

func TestAddKnownHost_KeepsWhatIsThere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "new", "known_hosts")
	key := newKey(t, "ed25519").PublicKey()
	require.NoError(t, AddKnownHost(name, "mac-1.example:2222", key))
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.WriteFile(name, []byte("# no end"), 0o600))
	require.NoError(t, AddKnownHost(name, "mac-1.example:2222", key))
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "# no end\n[mac-1.example]:2222 "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))+"\n", string(content))
	_, err = knownhosts.New(name)
	require.NoError(t, err)
}

// A peer that vanished without a word is noticed by signs of life, not by TCP.
func TestConnection_NoticesADeadPeer(t *testing.T) {
	h := newHost(t)
	wall := newWall(t, h.listener.Addr().String())
	h.apply(`say '{"phase":"Applying","step":"tart"}'; cat > /dev/null`)
	var seen events
	o := h.options(&seen)
	o.Target.Address = wall.Addr().String()
	o.Timing.KeepAlive, o.Timing.Resumes, o.Timing.Dial, o.Timing.Wait = 50*time.Millisecond, -1, 200*time.Millisecond, 300*time.Millisecond
	o.Events = func(e machost.Event) {
		seen.add(e)
		if e.Step == "tart" {
			wall.silent.Store(true)
		}
	}
	began := time.Now()
	_, err := Bootstrap(t.Context(), o)
	var lost *LostError
	require.ErrorAs(t, err, &lost)
	require.ErrorIs(t, err, errSilent)
	require.Less(t, time.Since(began), 10*time.Second)
}

// wall passes connections on, until it drops everything without notice.
type wall struct {
	net.Listener
	silent atomic.Bool
}

func newWall(t *testing.T, target string) *wall {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wall{Listener: listener}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); listener.Close() })
	pass := func(to, from net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if w.silent.Load() {
				<-ctx.Done()
			}
			if err != nil {
				to.Close()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
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
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return w
}

// HOST-7: what an apply asks for is a connection of its own, with all that one takes.
func TestConfirm_HOST7_IsANewConnection(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Confirm","step":"ssh-guard","token":"t-1"}'; IFS= read -r answer; test "$answer" = "confirm t-1" || exit 3
say '{"phase":"Done","hash":"abc"}'`)
	_, err := Bootstrap(t.Context(), h.options(&events{}))
	require.NoError(t, err)
	accepted, _ := h.counts()
	require.Equal(t, 2, accepted)
	require.Equal(t, 1, h.ran("exit 0"))
}

func TestConfirm_HOST7_NoNewConnectionNoConfirmation(t *testing.T) {
	for name, lock := range map[string]func(h *host){
		"another key": func(h *host) { h.setKeys(newKey(t, "ed25519")) },
		"no login":    func(h *host) { h.set(func() { h.client = newKey(t, "ed25519") }) },
		"no command":  func(h *host) { h.handle(func(string, net.Conn) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.apply(`say '{"phase":"Confirm","step":"ssh-guard","token":"t-1"}'; answer=$(bash -c 'read -t 1 -r a; printf %s "$a"'); say "{\"phase\":\"Failed\",\"step\":\"ssh-guard\",\"message\":\"answer: $answer\"}"; exit 1`)
			var seen events
			o := h.options(&seen)
			o.Events = func(e machost.Event) {
				seen.add(e)
				if e.Token != "" {
					lock(h)
				}
			}
			_, err := Bootstrap(t.Context(), o)
			var step *machost.StepError
			require.ErrorAs(t, err, &step)
			require.EqualError(t, step.Err, "answer:", "it was confirmed")
		})
	}
}

// HOST-7: a guard that shuts us out cuts the connection that asked for it, too. The host takes it back; we do not try for ever.
func TestConfirm_HOST7_AGuardThatCutsTheConnectionIsNotTriedForEver(t *testing.T) {
	h := newHost(t)
	h.apply(`say '{"phase":"Confirm","token":"t-1"}'; cat > /dev/null`)
	o := h.options(&events{})
	o.Timing.Resumes = 5
	o.Events = func(e machost.Event) {
		if e.Token != "" {
			h.cut()
		}
	}
	_, err := Bootstrap(t.Context(), o)
	var lost *LostError
	require.ErrorAs(t, err, &lost)
	require.ErrorIs(t, err, errShutOut)
	require.Equal(t, 2, h.ran("host apply"))
}
