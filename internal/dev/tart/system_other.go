//go:build unix && !linux

package tart

import (
	"errors"
	"syscall"
)

// adoptOrphans: only Linux lets a process adopt. A daemon of the guest may outlive it.
func adoptOrphans() {}

// killChildren kills what was started, with its process groups.
func killChildren(known []int) {
	for _, pid := range known {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

func guestAttributes() []*syscall.SysProcAttr { return []*syscall.SysProcAttr{{Setsid: true}} }

func ownMounts() error { return errors.New("mounts of one process are a thing of Linux") }

func bindShare(string, string, bool) error { return errors.ErrUnsupported }
