//go:build unix

package mac

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// runDf is `df -Pk PATH…`: of the file system that the root lies on, whose size is what a test gives it.
func runDf(_ context.Context, c *call) error {
	fmt.Fprintln(c.Stdout, "Filesystem 1024-blocks Used Available Capacity  Mounted on")
	var problem error
	shown := 0
	for _, path := range c.Args {
		if strings.HasPrefix(path, "-") {
			continue
		}
		shown++
		if _, err := os.Stat(c.root.Path(path)); err != nil {
			problem = failed(1, "df: %s: %s", path, reason(err))
			continue
		}
		if err := c.showDisk(path); err != nil {
			return err
		}
	}
	if shown == 0 {
		return c.showDisk("/")
	}
	return problem
}

func (c *call) showDisk(path string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(c.root.Path(path), &disk); err != nil {
		return err
	}
	block := uint64(disk.Bsize)
	total, free := disk.Blocks*block>>10, disk.Bavail*block>>10
	fmt.Fprintf(c.Stdout, "/dev/disk3s1s1 %d %d %d %d%% /\n", total, total-free, free, (total-free)*100/max(total, 1))
	return nil
}
