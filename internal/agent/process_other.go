//go:build !linux

package agent

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}

// seesWorkers reports whether workerRuns can tell.
const seesWorkers = false

// workerRuns cannot tell here: the hook's marker is the only sign.
func workerRuns(int) bool { return false }

// hookRunByWorker cannot tell: there is no /proc.
func (files) hookRunByWorker() bool { return false }

// listenerOf cannot tell either.
func listenerOf(int) int { return 0 }

// reapOrphans is for containers, which are Linux's.
func reapOrphans(int) {}
