//go:build !linux

package runner

import "syscall"

// ownGroup starts a script in a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
