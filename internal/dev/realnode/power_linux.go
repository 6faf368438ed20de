package realnode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

// checkPower reports programs that are missing on this machine for a node that shuts down gracefully. The error is ErrUnsupported.
func checkPower() error {
	for _, program := range []string{dbusProgram, logindProgram} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w:\n  %s is missing (scripts/prerequisites.sh node installs Debian's dbus and systemd)", ErrUnsupported, program)
		}
	}
	return nil
}

// The names that systemd-logind has on the bus, and that it expects of systemd: org.freedesktop.login1(5), org.freedesktop.systemd1(5).
const (
	loginName    = "org.freedesktop.login1"
	loginPath    = dbus.ObjectPath("/org/freedesktop/login1")
	managerName  = "org.freedesktop.systemd1"
	managerPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	powerOffUnit = "poweroff.target"
	powerOffPath = dbus.ObjectPath("/org/freedesktop/systemd1/unit/poweroff_2etarget")
	jobPath      = dbus.ObjectPath("/org/freedesktop/systemd1/job/1")
)

// power is systemd's part of a shutdown: systemd-logind has it start poweroff.target once nothing delays the shutdown any more.
type power struct {
	conn *dbus.Conn
	once sync.Once
	off  chan struct{} // closed when the node is to be switched off
}

func (n *Node) bus() (*dbus.Conn, error) {
	conn, err := dbus.Connect(fmt.Sprintf("unix:path=/proc/%d/root%s", n.init.PID(), busSocket))
	if err != nil {
		return nil, fmt.Errorf("connecting to D-Bus of node %s: %w", n.layout.name, err)
	}
	return conn, nil
}

// askBus reports whether a program is at the node's bus.
func (n *Node) askBus(program string) error {
	conn, err := n.bus()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if program != Logind {
		return nil
	}
	var has bool
	if err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, loginName).Store(&has); err != nil {
		return fmt.Errorf("asking D-Bus for %s: %w", loginName, err)
	}
	if !has {
		return fmt.Errorf("%s is not at the bus", loginName)
	}
	return nil
}

func (n *Node) servePower() (*power, error) {
	conn, err := n.bus()
	if err != nil {
		return nil, err
	}
	p := &power{conn: conn, off: make(chan struct{})}
	if err := p.export(); err != nil {
		return nil, errors.Join(fmt.Errorf("taking systemd's part on D-Bus of node %s: %w", n.layout.name, err), conn.Close())
	}
	return p, nil
}

func (p *power) export() error {
	if err := p.conn.Export(manager{p}, managerPath, managerName+".Manager"); err != nil {
		return err
	}
	loaded := prop.Map{managerName + ".Unit": {"LoadState": {Value: "loaded"}}}
	if _, err := prop.Export(p.conn, powerOffPath, loaded); err != nil {
		return err
	}
	got, err := p.conn.RequestName(managerName, dbus.NameFlagDoNotQueue)
	if err == nil && got != dbus.RequestNameReplyPrimaryOwner {
		err = fmt.Errorf("%s has an owner", managerName)
	}
	return err
}

func (p *power) close() { _ = p.conn.Close() }

// manager has the methods of org.freedesktop.systemd1.Manager that systemd-logind calls.
type manager struct{ power *power }

// Subscribe is called by systemd-logind when it starts.
func (manager) Subscribe() *dbus.Error { return nil }

// StartUnit starts poweroff.target.
func (m manager) StartUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) {
	if name != powerOffUnit {
		return "", dbus.MakeFailedError(fmt.Errorf("unit %s: this node has only %s", name, powerOffUnit))
	}
	m.power.once.Do(func() { close(m.power.off) })
	return jobPath, nil
}

// PowerOff shuts the node down as `systemctl poweroff` does, and returns when it is off: systemd-logind announces the shutdown, and the kubelet
// delays it until its pods have ended or the grace period has passed. Only a node with a ShutdownGracePeriod can. Boot starts it again.
func (n *Node) PowerOff(ctx context.Context) error {
	if n.power == nil {
		return fmt.Errorf("shutting node %s down: it was started without a ShutdownGracePeriod", n.layout.name)
	}
	conn, err := n.bus()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	const interactive = false
	if err := conn.Object(loginName, loginPath).CallWithContext(ctx, loginName+".Manager.PowerOff", 0, interactive).Err; err != nil {
		return fmt.Errorf("shutting node %s down: %w", n.layout.name, err)
	}
	select {
	case <-n.power.off:
		n.Kill(ctx)
		return nil
	case <-n.Done():
		return fmt.Errorf("shutting node %s down: %w", n.layout.name, errNodeEnded)
	case <-ctx.Done():
		return fmt.Errorf("shutting node %s down: %w", n.layout.name, context.Cause(ctx))
	}
}

// Mirror has the node pull images of a registry from an address by HTTP, without TLS.
func (n *Node) Mirror(registry string, at netip.AddrPort) error {
	dir := filepath.Join(n.dir, "registries", registry)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("naming a mirror of %s: %w", registry, err)
	}
	text := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", at)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("naming a mirror of %s: %w", registry, err)
	}
	return nil
}
