package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// What counts as a file system that is nearly full: less than so many bytes, or than a part of one that is small; hardly any files more.
const (
	leastFree     = 256 << 20
	leastFreePart = 20 // one in so many
	leastFiles    = 100
	lookForRoom   = 5 * time.Second
)

// Space is what is left of a file system. TotalFiles is zero where files are not counted.
type Space struct {
	Free, Total           uint64 // bytes; what an ordinary user may still write
	FreeFiles, TotalFiles uint64
}

// shortage says in a sentence what a file system is short of; empty when a job can begin there.
func (s Space) shortage() string {
	switch {
	case s.Free < min(leastFree, s.Total/leastFreePart):
		return fmt.Sprintf("%d MiB of %d MiB are free", s.Free>>20, s.Total>>20)
	case s.TotalFiles > 0 && s.FreeFiles < min(leastFiles, s.TotalFiles):
		return fmt.Sprintf("%d of %d files are free", s.FreeFiles, s.TotalFiles)
	}
	return ""
}

func spaceOf(dir string) (Space, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Space{}, err
	}
	size := uint64(st.Bsize)
	return Space{Free: st.Bavail * size, Total: st.Blocks * size, FreeFiles: st.Ffree, TotalFiles: st.Files}, nil
}

// awaitRoom returns true when there is room for a job, and false when ctx ended. A runner on a full disk takes jobs to fail
// them, one after the other, and faster than any that has room. A disk that cannot be measured counts as having room.
func (p *poller) awaitRoom(ctx context.Context) bool {
	waited := false
	for ctx.Err() == nil {
		space, err := p.Space(p.files.dir())
		short := space.shortage()
		if err != nil || short == "" {
			if waited {
				p.Log.Info("disk space is available again: polling for jobs")
			}
			return true
		}
		if !waited {
			waited = true
			p.Log.Error("the disk is nearly full: not polling for jobs until space is free", "directory", p.files.dir(), "short", short)
		}
		if p.Sleep(ctx, lookForRoom) != nil {
			return false
		}
	}
	return false
}
