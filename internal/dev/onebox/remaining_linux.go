package onebox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func seeProcesses() ([]seenProcess, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes that remain: %w", err)
	}
	split := func(pid, file string) []string {
		data, err := os.ReadFile(filepath.Join("/proc", pid, file))
		if err != nil || len(data) == 0 {
			return nil // gone, or not ours to read
		}
		return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	}
	var all []seenProcess
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			all = append(all, seenProcess{pid: pid, args: split(entry.Name(), "cmdline"), env: split(entry.Name(), "environ")})
		}
	}
	return all, nil
}
