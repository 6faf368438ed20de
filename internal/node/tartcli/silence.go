//go:build unix

package tartcli

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// silenceChecks is how often a pull is checked until its silence has lasted too long.
const silenceChecks = 60

// sign is what a pull has brought so far: output, and files.
type sign struct {
	printed  int64
	blocks   int64
	modified time.Time
}

// silence counts in how many looks in a row a pull has brought nothing.
type silence struct {
	last  sign
	looks int
}

// tooLong takes one look.
func (s *silence) tooLong(now sign) bool {
	if now != s.last {
		*s = silence{last: now}
		return false
	}
	s.looks++
	return s.looks >= silenceChecks
}

// endSilent ends a pull that has brought nothing for a time. The whole of a pull has no bound: sizes of images and speeds of networks
// differ too much, and a pull that is ended may start from nothing. A pull that waits for another one's lock is not silent
// while that one brings something.
func (c *Client) endSilent(ctx context.Context, end context.CancelCauseFunc, limit time.Duration, printed func() int64) {
	var s silence
	for {
		c.opts.Pause(ctx, limit/silenceChecks)
		if ctx.Err() != nil {
			return
		}
		now := c.arrived()
		now.printed = printed()
		if s.tooLong(now) {
			end(fmt.Errorf("no output and no data for %s: %w", limit, context.DeadlineExceeded))
			return
		}
	}
}

// arrived is what lies in the directories for unfinished VMs and for images.
func (c *Client) arrived() sign {
	var all sign
	for _, dir := range []string{"tmp", "cache"} {
		_ = filepath.WalkDir(filepath.Join(c.opts.Home, dir), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // Tart moves files meanwhile
			}
			info, err := entry.Info()
			if err != nil {
				return nil //nolint:nilerr // as above
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				all.blocks += stat.Blocks
			}
			if info.ModTime().After(all.modified) {
				all.modified = info.ModTime()
			}
			return nil
		})
	}
	return all
}
