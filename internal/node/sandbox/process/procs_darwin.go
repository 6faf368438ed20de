package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans has no counterpart here: a daemon that leaves its container's process group and carries no readable mark is not followed.
func adoptOrphans() {}

// killRest kills the process group of the container's main process. A group's id is not reused while the group has members.
func killRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killMarked kills every process whose environment carries the variable, and their kin, and returns how many there were. Only processes of
// this user are considered: this sandbox starts no others.
func killMarked(variable string) int {
	listed, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return 0
	}
	self := proc{pid: os.Getpid(), parent: os.Getppid(), group: syscall.Getpgrp()}
	user := uint32(os.Geteuid()) //nolint:gosec // a user's id is not negative
	var all []proc
	marked := map[int]bool{}
	for i := range listed {
		p := proc{pid: int(listed[i].Proc.P_pid), parent: int(listed[i].Eproc.Ppid), group: int(listed[i].Eproc.Pgid)}
		if listed[i].Eproc.Ucred.Uid != user || listed[i].Proc.P_stat == stateZombie {
			continue
		}
		all = append(all, p)
		answer, err := unix.SysctlRaw("kern.procargs2", p.pid)
		if err != nil {
			continue // not ours to read, or gone
		}
		for _, entry := range environOf(answer) {
			if carries(entry, variable) {
				marked[p.pid] = true
				break
			}
		}
	}
	killed := 0
	for _, pid := range kin(all, marked, self) {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// stateZombie is SZOMB of <sys/proc.h>: it has ended, and waits to be reaped by its parent.
const stateZombie = 5
