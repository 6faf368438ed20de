package node

import (
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func memoryTotal() (uint64, error) { return unix.SysctlUint64("hw.memsize") }

// macOS has no figure that means what pressure means here: it compresses and swaps long before.
func memoryFree() (uint64, bool) { return 0, false }

func pidsUsed() (used, limit int, ok bool) { return 0, 0, false }

func fillHostIDs(info *corev1.NodeSystemInfo) {
	info.MachineID, _ = unix.Sysctl("kern.uuid")
	info.BootID, _ = unix.Sysctl("kern.bootsessionuuid")
}
