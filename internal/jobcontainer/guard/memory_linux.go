package guard

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// memoryFiles have the number of processes of the container that the kernel has killed for memory, of cgroups v2 and v1. The kernel prefers
// children to the guard, which then lives on: the container's status does not say OOMKilled.
var memoryFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// memoryKills is that number; 0 where it cannot be read.
func memoryKills() int {
	for _, name := range memoryFiles {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		content, _ := io.ReadAll(io.LimitReader(file, 4096)) // what was read is enough, or is not
		_ = file.Close()
		for line := range strings.Lines(string(content)) {
			if value, found := strings.CutPrefix(line, "oom_kill "); found {
				kills, _ := strconv.Atoi(strings.TrimSpace(value)) // 0 for what is no number
				return kills
			}
		}
	}
	return 0
}
