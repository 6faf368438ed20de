package pgserver

import "syscall"

// dieWithParent asks the kernel for a fast shutdown of the server when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
