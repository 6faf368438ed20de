package controlplane

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the child when its owner dies, however it dies.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }

// startStamp identifies the process that has this pid now, by its start time in clock ticks since boot and the boot.
// The error is os.ErrNotExist when there is no such process.
func startStamp(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("reading the start of process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
	_, rest, found := cutLast(string(data), ") ")
	fields := strings.Fields(rest)
	const state, startTime = 0, 19 // fields 3 and 22 of proc(5), which counts from 1
	if !found || len(fields) <= startTime {
		return "", fmt.Errorf("reading the start of process %d: unexpected format of its stat file", pid)
	}
	if fields[state] == "Z" { // dead, and only waiting for its parent to notice
		return "", fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[startTime], nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}
