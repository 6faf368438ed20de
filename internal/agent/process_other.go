//go:build !linux

package agent

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}

// seesWorkers says whether workerRuns can tell.
const seesWorkers = false

// workerRuns cannot tell here: the hook's marker is the only sign.
func workerRuns(int) bool { return false }

// reapOrphans is for containers, which are Linux's.
func reapOrphans(int) {}
