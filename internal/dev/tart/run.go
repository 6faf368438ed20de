//go:build unix

package tart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

func runFlags(f *pflag.FlagSet) {
	for _, name := range []string{
		"no-graphics", "serial", "no-audio", "no-clipboard", "recovery", "vnc", "vnc-experimental", "suspendable", "nested",
		"net-softnet", "net-host", "capture-system-keys",
	} {
		f.Bool(name, false, "")
	}
	for _, name := range []string{"serial-path", "root-disk-opts", "rosetta"} {
		f.String(name, "", "")
	}
	for _, name := range []string{"dir", "disk", "net-bridged", "net-softnet-allow", "net-softnet-block", "net-softnet-expose"} {
		f.StringArray(name, nil, "")
	}
}

// share is a directory of the host in the guest.
type share struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// parseShare reads [name:]path[:ro,tag=T] (Tart 4.2).
func parseShare(text string) (share, error) {
	var s share
	parts := strings.Split(text, ":")
	if last := len(parts) - 1; last > 0 {
		options := strings.Split(parts[last], ",")
		if options[0] == "ro" || strings.HasPrefix(options[0], "tag=") {
			for _, o := range options {
				s.ReadOnly = s.ReadOnly || o == "ro"
			}
			parts = parts[:last]
		}
	}
	s.Path = parts[len(parts)-1]
	if len(parts) > 1 {
		s.Name, s.Path = parts[0], strings.Join(parts[1:], ":")
	}
	path, err := filepath.Abs(s.Path)
	if err != nil {
		return s, err
	}
	s.Path = path
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return s, failed(codeFailed, "Error: directory %q to be shared does not exist", s.Path)
	}
	return s, nil
}

// machine is the process of `run`: it stands for the virtual machine, and the guest is its child.
type machine struct {
	*command
	name   string
	vm     vmDir
	config vmConfig
	spec   guestSpec
	dir    string // of the running guest, by which it is known when the VM's own directory has been replaced
}

// runRun stays in the foreground until the VM has ended. A guest that crashes is no failure of the command (Tart 4.1).
func runRun(ctx context.Context, c *command) error {
	m := &machine{command: c, name: c.args[0], vm: c.vm(c.args[0])}
	if err := m.validate(); err != nil {
		return err
	}
	if err := m.configure(ctx); err != nil {
		return err
	}
	// Signals before this have ended the process, as they do while Tart has no handlers yet (likely).
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)

	if c.rule.Effect != EffectUnlocked {
		lock, err := takeRecord(m.vm.config())
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return message("already-running", m.name)
		}
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	if m.config.OS == "darwin" {
		slot, err := c.slot(ctx, c.script, c.rule.Effect == EffectGhost)
		if err != nil {
			return err
		}
		defer slot.Close()
	}
	return m.live(signals)
}

// validate finds out what is wrong before the VM is touched. A VM that does not exist is a plain error here, and not the
// 2 of other commands (Tart 4.1).
func (m *machine) validate() error {
	if !m.vm.exists() {
		return failed(codeFailed, "Error: The file “%s” couldn’t be opened because there is no such file.", m.name)
	}
	networks := 0
	for _, flag := range []string{"net-softnet", "net-bridged", "net-host"} {
		if m.flags.Changed(flag) {
			networks++
		}
	}
	if networks > 1 {
		return usage("--net-bridged, --net-softnet and --net-host are mutually exclusive", "run <name>")
	}
	dirs, _ := m.flags.GetStringArray("dir")
	names := map[string]bool{}
	for _, text := range dirs {
		s, err := parseShare(text)
		if err != nil {
			return err
		}
		if len(dirs) > 1 && (s.Name == "" || names[s.Name]) {
			return failed(codeFailed, "Error: shared directories must have unique names if there are several of them: %q", text)
		}
		names[s.Name] = true
		m.spec.Shares = append(m.spec.Shares, s)
	}
	return nil
}

// configure is what happens before the lock is taken: until then neither `ip` nor `stop` sees the VM (Tart 4.2).
func (m *machine) configure(ctx context.Context) error {
	var err error
	if m.config, err = m.vm.read(); err != nil {
		return err
	}
	if session := m.sessionNow(); session != SessionAqua && m.config.OS == "darwin" {
		return message("session-host-key", "") // Tart 4.3: no GUI session
	}
	if err := m.repairMAC(); err != nil {
		return err
	}
	pause(ctx, m.script.Timing.Configure)
	return nil
}

// repairMAC gives the VM another address when a running one has the same, and says so on stdout (Tart 4.2).
func (m *machine) repairMAC() error {
	dirs, err := os.ReadDir(m.vms())
	if err != nil {
		return err
	}
	for _, f := range dirs {
		other := m.place.vm(f.Name())
		if other == m.vm {
			continue
		}
		config, err := other.read()
		if err != nil || config.MAC != m.config.MAC { // it may be half deleted
			continue
		}
		if state, err := other.state(); err != nil || state != stateRunning {
			continue
		}
		fmt.Fprintf(m.Stdout, "There is already a running VM with MAC address %s!\nResetting MAC address...\n", m.config.MAC)
		m.config.MAC = randomMAC()
		return m.vm.write(m.config)
	}
	return nil
}

// live starts the guest, and passes signals on until it has ended.
func (m *machine) live(signals <-chan os.Signal) error {
	if err := os.Remove(m.vm.saved()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	guest, stop, err := m.startGuest()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = guest.Wait() // however it ended, it has
		close(ended)
	}()

	var crash <-chan time.Time
	if m.rule.Effect == EffectCrash {
		crash = time.After(time.Duration(m.rule.After))
	}
	suspendable, _ := m.flags.GetBool("suspendable")
	for {
		select {
		case <-ended:
			return m.bury()
		case <-crash:
			// Tart 4.1: what the guest died of goes to stdout, and the exit code is 0.
			fmt.Fprintln(m.Stdout, `guest has stopped the virtual machine due to error: Error Domain=VZErrorDomain Code=1 "Internal Virtualization error."`)
			stop()
			<-ended
			return m.bury()
		case s := <-signals:
			switch {
			case s == syscall.SIGUSR2:
				_ = guest.Process.Signal(syscall.SIGTERM) // it may have ended this instant
			case s == syscall.SIGUSR1 && !suspendable:
				fmt.Fprintln(m.Stdout, "this VM cannot be suspended: it was not started with --suspendable")
			case m.rule.Effect == EffectIgnoreInterrupt && s == syscall.SIGINT:
			default:
				if s == syscall.SIGUSR1 {
					if err := os.WriteFile(m.vm.saved(), nil, 0o600); err != nil {
						return err
					}
				}
				stop()
				<-ended
				return m.bury()
			}
		}
	}
}

// bury removes what only the running guest needed. The control socket stays, without a listener.
func (m *machine) bury() error { return os.RemoveAll(m.dir) }

// startGuest starts the guest. stop ends it at once, and so does the end of this process.
func (m *machine) startGuest() (*exec.Cmd, func(), error) {
	dir, directory, err := reserve(context.Background(), m.guests(), m.name+"-")
	if err != nil {
		return nil, nil, err
	}
	defer directory.Close() // the guest inherits it, and with it the lock
	m.dir = dir
	m.spec.Dir, m.spec.Name, m.spec.Image = dir, m.name, m.config.Image
	m.spec.Boot, m.spec.Shutdown = m.script.Timing.Boot, m.script.Timing.Shutdown
	m.spec.Address = m.script.Timing.Address
	encoded, err := json.Marshal(m.spec)
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, guestSpecFile), encoded, 0o600); err != nil {
		return nil, nil, err
	}
	socket, err := m.listen()
	if err != nil {
		return nil, nil, err
	}
	defer socket.Close()
	life, held, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer life.Close()
	for _, attributes := range guestAttributes() {
		//nolint:noctx // it ends with this process
		guest := exec.Command(m.Self[0], append(append([]string{}, m.Self[1:]...), guestCommand, dir)...)
		guest.Env = []string{} // nothing of the host's is known inside
		guest.Stdout, guest.Stderr = m.Stdout, m.Stderr
		guest.ExtraFiles = []*os.File{life, socket, directory}
		guest.SysProcAttr = attributes
		if err = guest.Start(); err == nil {
			return guest, func() { held.Close() }, nil
		}
	}
	return nil, nil, err
}

// listen makes the control socket in the place of an earlier one.
func (m *machine) listen() (*os.File, error) {
	if err := os.Chdir(string(m.vm)); err != nil {
		return nil, err
	}
	if err := os.Remove(controlSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: controlSocket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	defer func() { _ = listener.Close() }()
	if m.rule.Effect == EffectDeadSocket {
		return os.Open(os.DevNull) // the guest has nothing to listen on (tart#1220)
	}
	return listener.File()
}
