package mac

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant that loses its own, as launchd is.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// childAttributes make a child end with this process.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// detached keeps a terminal's Ctrl-C from ending launchd before its parent has said goodbye.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
