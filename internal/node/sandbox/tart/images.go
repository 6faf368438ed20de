//go:build unix

package tart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
)

// CollectImages implements sandbox.ImageCollector. It removes golden bases that no pod on record was made from, the longest unused first,
// and the images that they came from; nothing that this state directory has not fetched (NODE-7).
func (s *Sandbox) CollectImages(ctx context.Context, want int64) (freed int64, err error) {
	all, err := s.goldens()
	if err != nil {
		return 0, err
	}
	records, err := s.records()
	if err != nil {
		return 0, err // whose image cannot be known is kept
	}
	used := map[string]bool{}
	for _, r := range records {
		used[r.Digest] = r.Exit == nil || used[r.Digest]
	}
	sizes := s.sizes(ctx)
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
	if s.images.busy(g.Digest) {
		return 0, nil // a pod is starting from it, or waits for it
	}
	unlock, err := s.images.lock(ctx, g.Digest)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := s.dropGolden(g); err != nil {
		return 0, err
	}
	freed := sizes[g.VM]
	fetched := s.fetchedFile(g.Digest)
	if _, err := os.Stat(fetched); err != nil {
		return 0, nil // NODE-7: the image was there before, and has the blocks
	}
	if _, cached := sizes[g.Image]; cached {
		if err := s.tart.Delete(ctx, g.Image); err != nil && tartcli.KindOf(err) != tartcli.KindNotFound {
			return freed, err
		}
		freed = max(freed, sizes[g.Image])
	}
	if err := os.Remove(fetched); err != nil {
		return freed, fmt.Errorf("forgetting an image that was removed: %w", err)
	}
	return freed, nil
}

// sweep removes the remains of a crash: half-deleted directories, and golden bases that were never whole.
func (s *Sandbox) sweep(ctx context.Context) {
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
		if g.Whole || s.images.busy(g.Digest) {
			continue
		}
		unlock, err := s.images.lock(ctx, g.Digest)
		if err != nil {
			return
		}
		if now, found := s.readGolden(g.Digest); found && !now.Whole {
			if err := s.dropGolden(now); err != nil {
				s.opts.Log.Warn("removing an incomplete golden base", "vm", g.VM, "error", err)
			}
		}
		unlock()
	}
}
