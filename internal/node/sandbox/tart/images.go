//go:build unix

package tart

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
)

// CollectImages implements sandbox.ImageCollector. It removes images without a golden base, then golden bases that no pod on record was
// made from, the longest unused first, and the images that they came from; nothing that this state directory has not fetched (NODE-7).
func (s *Sandbox) CollectImages(ctx context.Context, want int64) (freed int64, err error) {
	unnoted := s.endFetches(ctx)
	all, err := s.goldens()
	if err != nil {
		return 0, err
	}
	used, err := s.used()
	if err != nil {
		return 0, err
	}
	sizes := s.sizes(ctx)
	fetched := s.fetched()
	for _, image := range unnoted { // the disk is too full for a mark
		fetched[image] = time.Time{}
	}
	for _, image := range baseless(fetched, all, used, s.opts.Now()) {
		if freed >= want || ctx.Err() != nil {
			break
		}
		got, dropErr := s.collectImage(ctx, image, sizes)
		freed += got
		err = errors.Join(err, dropErr)
	}
	for _, g := range collectable(all, used) {
		if freed >= want || ctx.Err() != nil {
			break
		}
		got, dropErr := s.collect(ctx, g, sizes)
		freed += got
		err = errors.Join(err, dropErr)
	}
	return freed, err
}

// used are the digests whose machines may still run. An error means that images must be kept.
func (s *Sandbox) used() (map[string]bool, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, r := range records {
		used[r.Digest] = r.Exit == nil || used[r.Digest]
	}
	return used, nil
}

// lockUnused takes the lock of a digest that no pod uses. Pods may have begun to use it since the collection began, which takes minutes.
func (s *Sandbox) lockUnused(digest string) (unlock func(), unused bool, err error) {
	unlock, free := s.images.tryLock(digest)
	if !free {
		return nil, false, nil // a pod is starting from it, or waits for it
	}
	used, err := s.used()
	if err != nil || used[digest] {
		unlock()
		return nil, false, err
	}
	return unlock, true, nil
}

// collectable orders what may go. It is pure.
func collectable(all []golden, used map[string]bool) []golden {
	var free []golden
	for _, g := range all {
		if !used[g.Digest] {
			free = append(free, g)
		}
	}
	slices.SortStableFunc(free, func(a, b golden) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Digest, b.Digest)) })
	return free
}

// sizes are those of machines and images, in bytes; nothing when Tart does not say.
func (s *Sandbox) sizes(ctx context.Context) map[string]int64 {
	sizes := map[string]int64{}
	list, err := s.tart.List(ctx)
	if err != nil {
		s.opts.Log.Warn("reading the size of images", "error", err)
	}
	for _, vm := range list {
		sizes[vm.Name] = int64(vm.SizeGB * 1e9)
	}
	return sizes
}

// collect removes one golden base, and its image if that was fetched for it. Their blocks are shared, so the larger of the two is what is freed.
func (s *Sandbox) collect(ctx context.Context, g golden, sizes map[string]int64) (int64, error) {
	unlock, unused, err := s.lockUnused(g.Digest)
	if err != nil || !unused {
		return 0, err
	}
	defer unlock()
	if err := s.dropGolden(g); err != nil {
		return 0, err
	}
	if _, err := os.Stat(s.fetchedFile(g.Image)); err != nil {
		return 0, nil // NODE-7: the image was there before, and has the blocks
	}
	if err := s.deleteFetched(ctx, g.Image); err != nil {
		return sizes[g.VM], err
	}
	return max(sizes[g.VM], sizes[g.Image]), nil
}

// collectImage removes an image without a golden base.
func (s *Sandbox) collectImage(ctx context.Context, image string, sizes map[string]int64) (int64, error) {
	unlock, unused, err := s.lockUnused(digestOf(image))
	if err != nil || !unused {
		return 0, err
	}
	defer unlock()
	if _, based := s.readGolden(digestOf(image)); based {
		return 0, nil // since a moment ago
	}
	if err := s.deleteFetched(ctx, image); err != nil {
		return 0, err
	}
	return sizes[image], nil
}

// sweep removes the remains of a crash: half-deleted directories, pulls on record, and golden bases that were never whole.
func (s *Sandbox) sweep(ctx context.Context) {
	s.endFetches(ctx)
	gone, _ := os.ReadDir(s.goneDir())
	for _, e := range gone {
		if err := process.RemoveAll(filepath.Join(s.goneDir(), e.Name())); err != nil {
			s.opts.Log.Warn("removing leftovers of a pod", "pod", e.Name(), "error", err)
		}
	}
	all, err := s.goldens()
	if err != nil {
		s.opts.Log.Warn("searching for incomplete golden bases", "error", err)
	}
	for _, g := range all {
		if g.Whole {
			continue
		}
		unlock, free := s.images.tryLock(g.Digest)
		if !free {
			continue
		}
		if now, found := s.readGolden(g.Digest); found && !now.Whole {
			if err := s.dropGolden(now); err != nil {
				s.opts.Log.Warn("removing an incomplete golden base", "vm", g.VM, "error", err)
			}
		}
		unlock()
	}
}
