//go:build unix

package tart

import (
	"context"
	"fmt"
	"os"
)

// virtualMachine is the process of macOS's framework that runs for each virtual machine, of whatever program.
const virtualMachine = "/System/Library/Frameworks/Virtualization.framework/Versions/A/XPCServices/com.apple.Virtualization.VirtualMachine.xpc/Contents/MacOS/com.apple.Virtualization.VirtualMachine"

// runPs is the fake of `ps -axww -o command=`: the processes of the host's virtual machines, those of other users included. Any arguments.
func runPs(_ context.Context, c *command) error {
	fmt.Fprintln(c.Stdout, "/sbin/launchd")
	dirs, _ := os.ReadDir(c.vms())
	for _, f := range dirs {
		if pid, err := holder(c.vm(f.Name()).config()); err == nil && pid != 0 { // likely: one without its lock is rare
			fmt.Fprintf(c.Stdout, "/opt/homebrew/bin/tart run %s --no-graphics\n%s\n", f.Name(), virtualMachine)
		}
	}
	for range c.script.OtherMachines {
		fmt.Fprintln(c.Stdout, virtualMachine)
	}
	return nil
}
