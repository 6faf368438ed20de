//go:build unix

package tartcli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// maxPull is how long a pull may take in all, so that a pull that brings signs and never ends, ends: 100 GB at 10 Mbit/s take less.
const maxPull = 24 * time.Hour

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

// endSilent ends a pull that has brought nothing for a time. The bound of a whole pull is generous: sizes of images and speeds of networks
// differ, and a pull that is ended may start from nothing. A pull that waits for another one's lock is not silent
// while that one brings something.
func (c *Client) endSilent(ctx context.Context, end context.CancelCauseFunc, limit time.Duration, printed func() int64) {
	var s silence
	for waited := time.Duration(0); ; waited += limit / silenceChecks {
		c.opts.Pause(ctx, limit/silenceChecks)
		if ctx.Err() != nil {
			return
		}
		if waited >= maxPull {
			end(fmt.Errorf("not complete after %s: %w", maxPull, context.DeadlineExceeded))
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

// pullDir is the name that Tart gives the directory of an unfinished pull. A clone's is a UUID.
var pullDir = regexp.MustCompile(`^[0-9a-f]{32}$`)

// arrived measures the directories of unfinished pulls and of images. Clones that are made or removed in the meantime do not count.
func (c *Client) arrived() sign {
	var all sign
	all.add(filepath.Join(c.opts.Home, "cache"))
	all.modified = time.Time{} // Tart changes it when it clones an image
	tmp := filepath.Join(c.opts.Home, "tmp")
	entries, _ := os.ReadDir(tmp) // none before the first
	for _, e := range entries {
		if pullDir.MatchString(e.Name()) {
			all.add(filepath.Join(tmp, e.Name()))
		}
	}
	return all
}

// add counts what lies below a directory.
func (s *sign) add(dir string) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // Tart moves files at the same time
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			s.blocks += stat.Blocks
		}
		if info.ModTime().After(s.modified) {
			s.modified = info.ModTime()
		}
		return nil
	})
}
