package runner

import "syscall"

// ownGroup starts a script in a process group of its own, and has the kernel end it when the runner is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
