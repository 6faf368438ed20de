package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// host is a minimal SSH server whose commands really run, in a directory with scripts for uname, sudo and the program: for behaviour that a
// real server and the model of a Mac cannot show. The tests with those are in model_test.go.
type host struct {
	t        *testing.T
	root     string
	listener net.Listener
	client   ssh.Signer // the key that may log in

	mu       sync.Mutex
	keys     []ssh.Signer
	commands []string
	accepted int
	offered  int               // how often a client came as far as naming a key
	conns    map[net.Conn]bool // all that are open
	onExec   func(command string, conn net.Conn) (handled bool)
	methods  func(*ssh.ServerConfig)
	tasks    sync.WaitGroup
}

const password = `pa"ss'wörd \$HOME`

func newHost(t *testing.T) *host {
	h := &host{t: t, root: t.TempDir(), client: newKey(t, "ed25519"), keys: []ssh.Signer{newKey(t, "ed25519")}, conns: map[net.Conn]bool{}}
	for _, dir := range []string{"usr/bin", "home", "state"} {
		require.NoError(t, os.MkdirAll(filepath.Join(h.root, dir), 0o755))
	}
	h.script("usr/bin/uname", `echo Darwin arm64`)
	h.script("usr/bin/sudo", `echo "$*" >> `+h.path("state/argv")+`
case "$1" in
-n) shift; test -e `+h.path("state/nopasswd")+` || { echo "sudo: a password is required" >&2; exit 1; }; exec "$@";;
-S) IFS= read -r given; echo attempt >> `+h.path("state/attempts")+`
    test "$given" = "$(cat `+h.path("state/password")+`)" || { echo "Sorry, try again." >&2; exit 1; }
    test "$2" = -p && shift 3; exec "$@";;
esac; exit 2`)
	h.write("state/password", password)
	h.apply(`say '{"phase":"Done","hash":"abc"}'`)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.listen(listener)
	t.Cleanup(func() {
		h.mu.Lock()
		h.listener.Close()
		h.mu.Unlock()
		h.cut()
		await.Return(t, h.tasks.Wait, "the host's tasks end")
	})
	return h
}

// program is what gets uploaded: it stands for bullpen.
func (h *host) program() string {
	path := h.path("program")
	if _, err := os.Stat(path); err != nil {
		h.script("program", `say() { printf '%s\n' "$1"; }
case "$1 $2" in
"host grant-sudo") touch `+h.path("state/nopasswd")+`;;
"host apply") echo "$*" >> `+h.path("state/applies")+`; IFS= read -r payload; printf '%s' "$payload" > `+h.path("state/payload")+`; . `+h.path("state/apply.sh")+`;;
*) exit 64;; esac`)
	}
	return path
}

// apply is what `bullpen host apply` does after it has read the payload.
func (h *host) apply(script string) { h.write("state/apply.sh", script+"\n") }

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) script(name, body string) {
	require.NoError(h.t, os.WriteFile(h.path(name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

func (h *host) write(name, content string) {
	require.NoError(h.t, os.WriteFile(h.path(name), []byte(content), 0o644))
}

func (h *host) read(name string) string {
	content, err := os.ReadFile(h.path(name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(h.t, err)
	}
	return string(content)
}

// attempts is how often sudo was given a password.
func (h *host) attempts() int { return strings.Count(h.read("state/attempts"), "attempt") }

// applies is how often an apply was begun.
func (h *host) applies() int { return strings.Count(h.read("state/applies"), "\n") }

func (h *host) setKeys(keys ...ssh.Signer) { h.set(func() { h.keys = keys }) }

// set changes the server's behaviour while it runs.
func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// handle is asked about each command first; true says that it has dealt with it.
func (h *host) handle(on func(command string, conn net.Conn) bool) { h.set(func() { h.onExec = on }) }

// authenticate changes how clients log in.
func (h *host) authenticate(change func(*ssh.ServerConfig)) { h.set(func() { h.methods = change }) }

func (h *host) counts() (accepted, offered int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accepted, h.offered
}

func (h *host) ran(part string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, command := range h.commands {
		if strings.Contains(command, part) {
			n++
		}
	}
	return n
}

// cut ends every connection.
func (h *host) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for conn := range h.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

func (h *host) listen(listener net.Listener) {
	h.set(func() { h.listener = listener })
	h.tasks.Go(func() { h.serve(listener) })
}

func (h *host) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.accepted++
		h.conns[conn] = true
		config := h.config()
		h.mu.Unlock()
		h.tasks.Go(func() {
			h.connection(conn, config)
			conn.Close()
			h.mu.Lock()
			delete(h.conns, conn)
			h.mu.Unlock()
		})
	}
}

func (h *host) config() *ssh.ServerConfig {
	client := h.client
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		h.mu.Lock()
		h.offered++
		h.mu.Unlock()
		if string(key.Marshal()) != string(client.PublicKey().Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	for _, key := range h.keys {
		config.AddHostKey(key)
	}
	if h.methods != nil {
		h.methods(config)
	}
	return config
}

func (h *host) connection(conn net.Conn, config *ssh.ServerConfig) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer server.Close()
	h.tasks.Go(func() { ssh.DiscardRequests(requests) })
	for channel := range channels {
		session, requests, err := channel.Accept()
		if err != nil {
			return
		}
		h.tasks.Go(func() {
			for request := range requests {
				if request.Type != "exec" {
					_ = request.Reply(false, nil)
					continue
				}
				var exec struct{ Command string }
				_ = ssh.Unmarshal(request.Payload, &exec)
				_ = request.Reply(true, nil)
				h.tasks.Go(func() { h.exec(conn, session, exec.Command) })
			}
		})
	}
}

func (h *host) exec(conn net.Conn, session ssh.Channel, line string) {
	defer session.Close()
	h.mu.Lock()
	h.commands = append(h.commands, line)
	on := h.onExec
	h.mu.Unlock()
	if on != nil && on(line, conn) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Env = []string{"HOME=" + h.path("home"), "PATH=/usr/bin:/bin", "SSH_CONNECTION=192.0.2.7 50000 192.0.2.8 22"}
	cmd.Stdout, cmd.Stderr = session, session.Stderr()
	cmd.WaitDelay = 100 * time.Millisecond
	stdin, _ := cmd.StdinPipe()
	if cmd.Start() != nil {
		return
	}
	h.tasks.Go(func() {
		_, _ = io.Copy(stdin, session)
		stdin.Close()
	})
	_ = cmd.Wait() // bounded: the cleanup of the host, which waits for this, has a bound
	code := cmd.ProcessState.ExitCode()
	if code < 0 {
		_, _ = session.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal string
			Core   bool
			Text   string
			Lang   string
		}{Signal: "KILL"}))
		return
	}
	_, _ = session.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func newKey(t *testing.T, kind string) ssh.Signer {
	t.Helper()
	var key any
	var err error
	switch kind {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ecdsa384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ecdsa521":
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = fmt.Errorf("no such kind %s", kind)
	}
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return signer
}

// events collects what Bootstrap tells.
type events struct {
	mu  sync.Mutex
	all []machost.Event
}

func (e *events) add(event machost.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) of(step string, phase machost.Phase) (found []machost.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Step == step && event.Phase == phase {
			found = append(found, event)
		}
	}
	return found
}

// quick is for a host on this machine.
func quick() Timing {
	return Timing{Wait: 5 * time.Second, Dial: 5 * time.Second, KeepAlive: 5 * time.Second, Command: 10 * time.Second, Upload: 20 * time.Second,
		Apply: 30 * time.Second, Silence: 20 * time.Second, Resumes: 3, Backoff: 10 * time.Millisecond}
}

// options are those of a bootstrap that succeeds.
func (h *host) options(seen *events) Options {
	return Options{
		Target: Target{Address: h.listener.Addr().String(), User: "ci", Key: h.client, HostKey: ssh.FingerprintSHA256(h.keys[0].PublicKey())},
		Payload: machost.Payload{Config: machost.Config{User: "ci"}, Secrets: machost.Secrets{
			Password: machost.NewSecret(password), BootstrapKubeconfig: machost.NewSecret(kubeconfig)}},
		Binary: h.program(), RemoteRoot: h.root, Events: seen.add, Timing: quick(),
	}
}

const kubeconfig = "apiVersion: v1\nkind: Config\nusers:\n- name: \"ci\"\n  user:\n    token: \"bootstrap.tökén'with-odd\\u0022content\"\n"
