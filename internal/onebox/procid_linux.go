package onebox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends, so that nothing of ours outlives a
// `kill -9` of its owner. Runner pods are not children in this sense: they survive their node agent (NODE-3).
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }

// startStamp tells the process that has this pid now from any other that had or will have it. The error is
// os.ErrNotExist when there is none, or only a dead one that waits to be reaped.
func startStamp(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("looking at process %d: %w", pid, err)
	}
	// After the program's name, which is in parentheses and may itself hold some, come state (field 3) … start (22).
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("looking at process %d: its stat file has %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
