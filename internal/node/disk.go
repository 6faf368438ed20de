package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// The thresholds of a disk that fills up, in multiples of the reserve (Options.MinDiskFree), below which is DiskPressure. Images are
// removed before the node reports that, and until there is some space to spare.
const (
	clearTimes   = 1.2 // so much is free, and DiskPressure ends: it does not come and go
	collectTimes = 1.5 // less, and unused images go
	roomTimes    = 2.5 // until so much is free, or the least and half of the rest if that is less
)

// How long a removal of images may take, and how long the next one waits when the last had nothing to give.
const (
	collectTimeout = 10 * time.Minute
	collectPause   = 5 * time.Minute
)

// DiskSpace returns the bytes free for ordinary users, and the size in bytes, of the file system that holds a directory.
type DiskSpace func(dir string) (free, total uint64, err error)

// disks are the directories whose file systems the node needs: its own and, if that is another one, the images'.
func (a *Agent) disks() []string {
	dirs := []string{a.opts.StateDir}
	if located, ok := a.opts.Sandbox.(sandbox.ImageLocator); ok && !sameDisk(located.ImagesDir(), a.opts.StateDir) {
		dirs = append(dirs, located.ImagesDir())
	}
	return dirs
}

func sameDisk(a, b string) bool {
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	if errors.Join(err, err2) != nil {
		return a == b
	}
	x, ok := one.Sys().(*syscall.Stat_t)
	y, ok2 := other.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Dev == y.Dev
}

// diskShort says in a sentence which of the node's disks is nearly full; empty when none is. Short reports whether one was when last asked.
func (a *Agent) diskShort(short bool) string {
	times := 1.0
	if short {
		times = clearTimes
	}
	for _, dir := range a.disks() {
		free, total, err := a.opts.DiskSpace(dir)
		if err == nil && total > 0 && float64(free) < times*a.opts.MinDiskFree.of(total) {
			return fmt.Sprintf("%d MiB of %d MiB are free on the disk of %s, %s required", free>>20, total>>20, dir, a.opts.MinDiskFree)
		}
	}
	return ""
}

// imagesDir is the directory of the images; the state directory if the back end does not name one.
func (a *Agent) imagesDir() string {
	if located, ok := a.opts.Sandbox.(sandbox.ImageLocator); ok {
		return located.ImagesDir()
	}
	return a.opts.StateDir
}

// toCollect is how many bytes of images should go; 0 when there is room.
func (a *Agent) toCollect() int64 {
	free, total, err := a.opts.DiskSpace(a.imagesDir())
	least := a.opts.MinDiskFree.of(total)
	if err != nil || float64(free) >= collectTimes*least {
		return 0
	}
	room := min(roomTimes*least, (least+float64(total))/2)
	return max(0, int64(room)-int64(free)) //nolint:gosec // no disk has 8 EiB
}

// collectImages has the back end remove unused images whenever the disk fills up. It does nothing else: no pod is ever ended for room.
func (a *Agent) collectImages(ctx context.Context, images sandbox.ImageCollector) {
	tick := a.opts.Clock.NewTicker(a.opts.StatusInterval)
	defer tick.Stop()
	var notBefore time.Time
	for {
		if want := a.toCollect(); want > 0 && !a.opts.Clock.Now().Before(notBefore) {
			if !a.collectOnce(ctx, images, want) {
				notBefore = a.opts.Clock.Now().Add(collectPause)
			}
			a.kickNode() // the shortage may be over
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// collectOnce reports whether trying again soon makes sense.
func (a *Agent) collectOnce(ctx context.Context, images sandbox.ImageCollector, want int64) bool {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	began := a.opts.Clock.Now()
	freed, err := images.CollectImages(ctx, want)
	a.metrics.operation("collect-images", err, a.opts.Clock.Since(began))
	a.metrics.freed.Add(float64(max(freed, 0)))
	where := a.imagesDir()
	if freed > 0 {
		a.nodeEvent(corev1.EventTypeNormal, "ImagesRemoved", fmt.Sprintf("removed unused images: freed %d MiB of %d MiB needed on the disk of %s", freed>>20, want>>20, where))
	}
	switch {
	case err != nil:
		a.opts.Log.Warn("removing unused images failed, retrying", "in", collectPause, "freed", freed, "error", err)
		a.nodeEvent(corev1.EventTypeWarning, "ImageGCFailed", "removing unused images: "+err.Error())
		return false
	case a.toCollect() > 0:
		a.nodeEvent(corev1.EventTypeWarning, "FreeDiskSpaceFailed", fmt.Sprintf(
			"%d MiB more should be free on the disk of %s, and no unused images are left. Runners continue; below %s free, no new ones are scheduled here. Remove other files from the disk",
			a.toCollect()>>20, where, a.opts.MinDiskFree))
		return freed > 0
	}
	return true
}
