//go:build !linux

package pgserver

import "syscall"

// dieWithParent does nothing where the kernel offers no such signal: the next Start in the folder stops what a killed
// owner left running.
func dieWithParent(*syscall.SysProcAttr) {}
