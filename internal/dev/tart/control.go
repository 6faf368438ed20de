//go:build unix

package tart

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// pollInterval is how often `stop` and `ip --wait` look (Tart 4.2).
const pollInterval = Duration(100 * time.Millisecond)

func stopFlags(f *pflag.FlagSet) { f.UintP("timeout", "t", 30, "") }

// runningPID is who runs the VM; the code is 2 for a VM that does not exist and for one that does not run (Tart 4.1).
func (c *command) runningPID(name string) (int, error) {
	pid, err := holder(c.vm(name).config())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, message("not-found", name)
	}
	if err == nil && pid == 0 {
		return 0, message("not-running", name)
	}
	return pid, err
}

// runStop interrupts the process that runs the VM, checks every 100 ms whether that has helped, and finally kills it
// without waiting for it (Tart 4.2).
func runStop(ctx context.Context, c *command) error {
	name := c.args[0]
	pid, err := c.runningPID(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		return failed(codeFailed, "Error: failed to interrupt the process %d: %v", pid, err)
	}
	timeout, _ := c.flags.GetUint("timeout")
	deadline := time.Now().Add(time.Duration(timeout) * time.Second)
	for time.Now().Before(deadline) {
		now, err := holder(c.vm(name).config())
		if errors.Is(err, fs.ErrNotExist) || err == nil && now != pid {
			return nil
		}
		if err != nil {
			return err
		}
		pause(ctx, pollInterval)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return message("not-terminated", name)
	}
	return nil
}

func runSuspend(_ context.Context, c *command) error {
	pid, err := c.runningPID(c.args[0])
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGUSR1)
}

func ipFlags(f *pflag.FlagSet) {
	f.Uint("wait", 0, "")
	f.String("resolver", "dhcp", "")
}

// runIP finds the lease of a running VM (Tart 4.2). The address is one of vmnet's, and leads nowhere.
func runIP(ctx context.Context, c *command) error {
	name := c.args[0]
	vm := c.vm(name)
	if !vm.exists() {
		return message("not-found", name)
	}
	config, err := vm.read()
	if err != nil {
		return err
	}
	switch resolver, _ := c.flags.GetString("resolver"); resolver {
	case "dhcp", "arp", "agent":
	default:
		return usage("The value '"+resolver+"' is invalid for '--resolver <resolver>'", "ip <name>")
	}
	wait, _ := c.flags.GetUint("wait")
	deadline := time.Now().Add(time.Duration(wait) * time.Second)
	for {
		pid, err := holder(vm.config())
		if err != nil {
			return err
		}
		if pid != 0 && c.leased(vm) {
			sum := sha256.Sum256([]byte(config.MAC))
			fmt.Fprintf(c.Stdout, "192.168.%d.%d\n", 64+int(sum[0])%4, 2+int(sum[1])%253)
			return nil
		}
		if !time.Now().Before(deadline) {
			if pid == 0 {
				return message("no-ip-running", name)
			}
			return message("no-ip", name)
		}
		pause(ctx, pollInterval)
	}
}

// leased reports whether the guest has come so far. The control socket is made when the VM starts.
func (c *command) leased(vm vmDir) bool {
	info, err := os.Lstat(vm.control())
	return err == nil && time.Since(info.ModTime()) >= time.Duration(c.script.Timing.Address)
}
