package node

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func memoryTotal() (uint64, error) {
	if total, ok := meminfo("MemTotal:"); ok {
		return total, nil
	}
	return 0, errors.New("no MemTotal in /proc/meminfo")
}

func memoryFree() (uint64, bool) { return meminfo("MemAvailable:") }

func meminfo(key string) (uint64, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), key); ok {
			var kib uint64
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

func pidsUsed() (used, limit int, ok bool) {
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0, 0, false
	}
	if _, err := fmt.Sscan(string(text), &limit); err != nil {
		return 0, 0, false
	}
	text, err = os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, 0, false
	}
	var load string
	var runnable int
	_, err = fmt.Sscanf(string(text), "%s %s %s %d/%d", &load, &load, &load, &runnable, &used)
	return used, limit, err == nil
}

func fillHostIDs(info *corev1.NodeSystemInfo) {
	info.MachineID = firstLine("/etc/machine-id")
	info.BootID = firstLine("/proc/sys/kernel/random/boot_id")
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
