//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// SSHD is a genuine OpenSSH server whose sessions are the Mac's, behind a Front.
type SSHD struct {
	*Front
	// User to log in as, and the files with the private key that may and the server's host key (.pub beside it).
	User, KeyFile, HostKeyFile string

	root    Root
	dir     string
	port    int
	command *exec.Cmd
	ended   chan struct{} // closed when the command has
}

// nssWrappers are where Debian has the library by which sshd knows a user that this machine lacks.
var nssWrappers = []string{"/usr/lib/x86_64-linux-gnu/libnss_wrapper.so", "/usr/lib/aarch64-linux-gnu/libnss_wrapper.so", "/usr/lib64/libnss_wrapper.so", "/usr/lib/libnss_wrapper.so"}

// StartSSHD starts an OpenSSH server for the Mac. Its keys, configuration and log lie in a directory beside the root. It
// ends with the context or with this process.
func (r Root) StartSSHD(ctx context.Context, dir string, port int, user string, source netip.Addr) (*SSHD, error) {
	s := &SSHD{User: user, KeyFile: filepath.Join(dir, "id_ed25519"), HostKeyFile: filepath.Join(dir, "host_key"), root: r, dir: dir}
	for _, key := range []string{s.KeyFile, s.HostKeyFile} {
		if err := makeKey(ctx, key); err != nil {
			return nil, err
		}
	}
	authorized, err := os.ReadFile(s.KeyFile + ".pub")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "authorized_keys"), authorized, 0o600); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if s.Front, err = r.ListenSSH(ctx, port, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), source); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// makeKey makes a key, unless there is one from before.
func makeKey(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	output, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "model-mac", "-f", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("making an SSH key (is openssh-client installed?): %w\n%s", err, output)
	}
	return nil
}

// findSSHD is Debian's, or wherever the path has one.
func findSSHD() (string, error) {
	for _, path := range append([]string{"/usr/sbin/sshd"}, filepath.SplitList(os.Getenv("PATH"))...) {
		if !strings.HasSuffix(path, "/sshd") {
			path = filepath.Join(path, "sshd")
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no sshd: run scripts/prerequisites.sh sshd, or install openssh-server")
}

// start starts sshd on a free port, and waits until it listens.
func (s *SSHD) start(ctx context.Context) error {
	sshd, err := findSSHD()
	if err != nil {
		return err
	}
	environment, err := s.accounts()
	if err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // its privilege separation requires it
			return err
		}
	}
	for range 5 { // another process may take the port in between
		if s.port == 0 {
			if s.port, err = freePort(ctx); err != nil {
				return err
			}
		}
		if err = s.startAt(ctx, sshd, environment); err == nil {
			return nil
		}
		s.port = 0
	}
	return err
}

func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// accounts are what sshd takes this machine's for: the Mac's users, with this user's rights.
func (s *SSHD) accounts() ([]string, error) {
	uid, gid := os.Getuid(), os.Getgid()
	text := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n", s.User, uid, gid, s.root.Path("/Users/"+s.User))
	group := fmt.Sprintf("wheel:x:%d:\nnogroup:x:65534:\n", gid)
	passwd, groups := filepath.Join(s.dir, "passwd"), filepath.Join(s.dir, "group")
	if err := errors.Join(os.WriteFile(passwd, []byte(text), 0o644), os.WriteFile(groups, []byte(group), 0o644)); err != nil {
		return nil, err
	}
	for _, library := range nssWrappers {
		if _, err := os.Stat(library); err == nil {
			return []string{"LD_PRELOAD=" + library, "NSS_WRAPPER_PASSWD=" + passwd, "NSS_WRAPPER_GROUP=" + groups, "PATH=/usr/bin:/bin"}, nil
		}
	}
	return nil, errors.New("there is no libnss_wrapper, by which sshd knows the Mac's users: run scripts/prerequisites.sh sshd, or install libnss-wrapper")
}

func (s *SSHD) startAt(ctx context.Context, sshd string, environment []string) error {
	config := fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 1000
MaxSessions 100
PrintMotd no
ForceCommand %s ssh-session %s
`, s.port, s.HostKeyFile, filepath.Join(s.dir, "authorized_keys"), s.root.Path("/usr/libexec/"+internalName), s.User)
	file := filepath.Join(s.dir, "sshd_config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "sshd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	//nolint:noctx // Close ends it with its sessions, and so does the end of this process
	s.command = exec.Command(sshd, "-D", "-e", "-f", file)
	s.command.Env, s.command.Stderr = environment, log
	started := make(chan error, 1)
	s.ended = make(chan struct{})
	go runAttached(s.command, started, s.ended)
	if err := <-started; err != nil {
		s.command = nil
		return err
	}
	if err := s.await(ctx); err != nil {
		s.stop()
		return err
	}
	return nil
}

// await returns when sshd listens, or has ended.
func (s *SSHD) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.ended:
			state := s.command.ProcessState
			s.command = nil
			said, _ := os.ReadFile(filepath.Join(s.dir, "sshd.log"))
			return fmt.Errorf("sshd has ended before it listened: %s\n%s", state, said)
		case <-ctx.Done():
			return fmt.Errorf("waiting for sshd: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop ends sshd with its sessions.
func (s *SSHD) stop() {
	if s.command != nil {
		killTree(s.command.Process.Pid)
		<-s.ended
		s.command = nil
	}
}

// Close ends the server and all sessions.
func (s *SSHD) Close() {
	s.Front.Close()
	s.stop()
}

// RotateHostKey gives the server another host key, as a reinstalled Mac has. Open connections stay so.
func (s *SSHD) RotateHostKey(ctx context.Context) error {
	if err := errors.Join(os.Remove(s.HostKeyFile), os.Remove(s.HostKeyFile+".pub"), makeKey(ctx, s.HostKeyFile)); err != nil {
		return err
	}
	if s.command != nil {
		_ = s.command.Process.Kill() // it alone: sessions are processes of their own
		<-s.ended
		s.command = nil
	}
	return s.start(ctx) // at the same port, that the front knows
}

// Fingerprint is the host key's, as ssh shows it: SHA256:….
func (s *SSHD) Fingerprint(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "ssh-keygen", "-l", "-f", s.HostKeyFile+".pub").Output()
	fields := strings.Fields(string(output))
	if err != nil || len(fields) < 2 {
		return "", fmt.Errorf("reading the host key's fingerprint: %w", err)
	}
	return fields[1], nil
}

// Log is what the server has said.
func (s *SSHD) Log() string {
	said, _ := os.ReadFile(filepath.Join(s.dir, "sshd.log"))
	return string(said)
}
