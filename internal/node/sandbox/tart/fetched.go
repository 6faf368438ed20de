//go:build unix

package tart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
)

// fetch is a pull on record from before it begins: what it brings to the machine may be removed again (NODE-7), also if this agent is
// killed, or the disk is full, before that is noted.
type fetch struct {
	Image  string   `json:"image"`            // as the pod has it
	Before []string `json:"before,omitempty"` // the images that were here, by digest
}

func (s *Sandbox) fetchingFile(image string) string {
	return filepath.Join(s.fetchingDir(), fileKey(image))
}

// fetchedFile is the mark of an image, by digest, that this state directory brought to the machine. Its content is the image.
func (s *Sandbox) fetchedFile(image string) string {
	return filepath.Join(s.fetchedDir(), fileKey(image))
}

func fileKey(image string) string {
	sum := sha256.Sum256([]byte(image))
	return hex.EncodeToString(sum[:16])
}

// fetch pulls an image. The caller holds the lock of its reference.
func (s *Sandbox) fetch(ctx context.Context, image string) error {
	f, err := s.beginFetch(ctx, image)
	if err != nil {
		return err
	}
	err = s.withSpace(ctx, func() error { return s.tart.Pull(ctx, image) })
	if err == nil {
		s.opts.reached("pulled")
	}
	if _, endErr := s.endFetch(ctx, f); endErr != nil && ctx.Err() == nil {
		s.opts.Log.Warn("recording an image that was fetched; trying again later", "image", image, "error", endErr)
	}
	return err
}

func (s *Sandbox) beginFetch(ctx context.Context, image string) (fetch, error) {
	var f fetch
	if found, err := readJSON(s.fetchingFile(image), &f); err == nil && found {
		return f, nil // what an earlier one has brought is not noted yet
	}
	list, err := s.tart.List(ctx)
	if err != nil {
		return f, err
	}
	f = fetch{Image: image}
	for _, vm := range list {
		if vm.Image && digestOf(vm.Name) != "" {
			f.Before = append(f.Before, vm.Name)
		}
	}
	if err := writeJSON(s.fetchingFile(image), f); err != nil {
		return f, fmt.Errorf("recording an image to fetch: %w", err)
	}
	return f, nil
}

// endFetch notes the image that a pull has brought, and returns it, also if it cannot be noted. The caller holds the lock of its reference.
func (s *Sandbox) endFetch(ctx context.Context, f fetch) (string, error) {
	named, err := s.tart.FQN(ctx, f.Image)
	if err != nil && tartcli.KindOf(err) != tartcli.KindNotFound {
		return "", err
	}
	// A pull that failed may still have a name. Without the image its record ends: what a person pulls later is not ours (NODE-7).
	brought := digestOf(named) != "" && !slices.Contains(f.Before, named)
	if brought {
		if brought, err = s.listed(ctx, named); err != nil {
			return "", err
		}
	}
	if !brought {
		named = ""
	} else if err := writeJSON(s.fetchedFile(named), named); err != nil {
		return named, err
	}
	if err := os.Remove(s.fetchingFile(f.Image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return named, err
	}
	return named, nil
}

// endFetches ends what earlier pulls have left on record, and returns the images that could not be noted. It skips a pull that is under way,
// which may take hours.
func (s *Sandbox) endFetches(ctx context.Context) []string {
	var unnoted []string
	for file := range visible(s.fetchingDir()) {
		var f fetch
		if found, err := readJSON(file, &f); err != nil || !found {
			continue
		}
		unlock, free := s.images.tryLock(f.Image)
		if !free {
			continue
		}
		if _, err := os.Stat(file); err == nil {
			image, err := s.endFetch(ctx, f)
			if err != nil && ctx.Err() == nil {
				s.opts.Log.Warn("recording an image that was fetched; trying again later", "image", f.Image, "error", err)
			}
			if err != nil && image != "" {
				unnoted = append(unnoted, image)
			}
		}
		unlock()
	}
	return unnoted
}

// fetched are the images that this state directory brought to the machine, and when it did.
func (s *Sandbox) fetched() map[string]time.Time {
	all := map[string]time.Time{}
	for file := range visible(s.fetchedDir()) {
		var image string
		info, err := os.Stat(file)
		if found, readErr := readJSON(file, &image); err == nil && readErr == nil && found {
			all[image] = info.ModTime()
		}
	}
	return all
}

// visible are the files of a directory, without unfinished ones.
func visible(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		entries, _ := os.ReadDir(dir) // none before the first
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") && !yield(filepath.Join(dir, e.Name())) {
				return
			}
		}
	}
}

// startTime is how long an image that was fetched just now is kept for the pod that asked for it and has not named it yet.
const startTime = 10 * time.Minute

// baseless are the fetched images from which there is no base, and that no pod uses: a base may be removed without its image, and a pod that
// asked for an image may be gone when it arrives. It is pure.
func baseless(fetched map[string]time.Time, bases []golden, used map[string]bool, now time.Time) []string {
	var free []string
	for image, since := range fetched {
		based := slices.ContainsFunc(bases, func(g golden) bool { return g.Digest == digestOf(image) })
		if !based && !used[digestOf(image)] && now.Sub(since) >= startTime {
			free = append(free, image)
		}
	}
	slices.Sort(free)
	return free
}

// deleteFetched removes an image, and then its mark. NODE-7: one that was here before has none. The caller holds the digest's lock.
func (s *Sandbox) deleteFetched(ctx context.Context, image string) error {
	if err := s.tart.Delete(ctx, image); err != nil && tartcli.KindOf(err) != tartcli.KindNotFound {
		return err
	}
	if err := os.Remove(s.fetchedFile(image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting an image that was removed: %w", err)
	}
	return nil
}
