//go:build unix && !linux

package mac

import "syscall"

func adoptOrphans() {}

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
