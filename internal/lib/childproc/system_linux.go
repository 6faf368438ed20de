package childproc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel signal the child when the thread that started it ends.
func dieWithParent(attributes *syscall.SysProcAttr, signal syscall.Signal) {
	attributes.Pdeathsig = signal
}

// startStamp distinguishes the process that has this PID now from earlier and later ones, by its start in clock
// ticks since boot and the boot. The error is fs.ErrNotExist when there is none, or only a zombie.
func startStamp(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("inspecting process %d: %w", pid, err)
	}
	// After the program's name, which is in parentheses and may itself hold some, come state (field 3) … start (22).
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("inspecting process %d: its stat file has %d fields", pid, len(fields))
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
