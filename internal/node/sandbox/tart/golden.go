//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
)

// golden is a virtual machine that never runs: the base of an image, from which each runner is cloned without copying anything.
type golden struct {
	Owner  string `json:"owner"`
	Digest string `json:"digest"`
	Image  string `json:"image"` // by digest
	VM     string `json:"vm"`
	// Whole indicates that it was created without an error. Otherwise it is created again.
	Whole bool      `json:"whole"`
	Used  time.Time `json:"used"`
}

func (s *Sandbox) goldenFile(digest string) string {
	return filepath.Join(s.goldensDir(), digestKey(digest)+".json")
}

func (s *Sandbox) saveGolden(g golden) error {
	if err := writeJSON(s.goldenFile(g.Digest), g); err != nil {
		return fmt.Errorf("recording the golden base: %w", err)
	}
	return nil
}

// goldens are those on record that carry our mark.
func (s *Sandbox) goldens() ([]golden, error) {
	entries, err := os.ReadDir(s.goldensDir())
	if err != nil {
		return nil, fmt.Errorf("listing golden bases: %w", err)
	}
	var all []golden
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var g golden
		if found, err := readJSON(filepath.Join(s.goldensDir(), e.Name()), &g); err != nil || !found {
			continue // cut short by a power failure: it is made again
		}
		if g.Owner == s.owner && carriesMark(s.owner, g.VM) {
			all = append(all, g)
		}
	}
	return all, nil
}

// create clones the pod's machine from the golden base of its image and gives it its shape.
func (s *Sandbox) create(ctx context.Context, r record, m machine, policy corev1.PullPolicy) error {
	image, err := s.pull(ctx, r.UID, r.Image, policy)
	if err != nil {
		return s.verdict(r, stepPull, err)
	}
	if r, err = s.update(r.UID, func(r *record) { r.Digest = digestOf(image) }); err != nil {
		return err
	}
	if err := s.cloneGolden(ctx, r, image); err != nil {
		return s.verdict(r, stepClone, err)
	}
	s.opts.reached("cloned")
	// Clones of one machine must not share its address and serial number.
	err = s.tart.Set(ctx, r.VM, tartcli.Settings{CPU: int(m.cpus), MemoryMB: m.memoryMB, RandomMAC: true, RandomSerial: true})
	if err != nil {
		return s.verdict(r, stepSet, err)
	}
	s.opts.reached("set")
	return nil
}

// pull ensures that an image is present and returns its name by digest. Of several pods with one image one pulls and the others wait; no
// other pod waits (NODE-6). The pull continues when the pod that asked first is gone; that pod receives its progress.
func (s *Sandbox) pull(ctx context.Context, podUID, image string, policy corev1.PullPolicy) (string, error) {
	if digestOf(image) != "" && s.goldenWhole(digestOf(image)) {
		return image, nil
	}
	return s.flight(ctx, "pull "+string(policy)+" "+image, func(ctx context.Context) (string, error) {
		unlock, err := s.images.lock(ctx, image)
		if err != nil {
			return "", err
		}
		defer unlock()
		if before, present := s.present(ctx, image); present && policy != corev1.PullAlways {
			return before, nil
		}
		began := s.opts.Now()
		s.news(podUID, "Pulling", "pulling image "+image)
		if err := s.fetch(ctx, image); err != nil {
			return "", err
		}
		s.news(podUID, "Pulled", fmt.Sprintf("image %s was pulled in %s", image, s.opts.Now().Sub(began).Round(time.Millisecond)))
		named, err := s.tart.FQN(ctx, image)
		if err == nil && digestOf(named) == "" {
			err = fmt.Errorf("tart fqn %s: the output %q has no digest", image, clip(named, 200))
		}
		return named, err
	})
}

// present is the name by digest of an image from which a machine can be cloned. Tart's name alone does not show that: it names a digest
// that it has never pulled.
func (s *Sandbox) present(ctx context.Context, image string) (string, bool) {
	named, err := s.tart.FQN(ctx, image)
	if err != nil || digestOf(named) == "" {
		return "", false
	}
	if s.goldenWhole(digestOf(named)) {
		return named, true
	}
	listed, err := s.listed(ctx, named)
	return named, err == nil && listed
}

// listed reports whether an image, by digest, is in Tart's cache.
func (s *Sandbox) listed(ctx context.Context, image string) (bool, error) {
	list, err := s.tart.List(ctx)
	return slices.ContainsFunc(list, func(vm tartcli.VM) bool { return vm.Image && vm.Name == image }), err
}

// requireListed fails when an image is gone since it was pulled: cloning would pull it, in the time of a copy and without a mark. The pod starts
// again, and pulls.
func (s *Sandbox) requireListed(ctx context.Context, image string) error {
	listed, err := s.listed(ctx, image)
	if err == nil && !listed {
		err = &tartcli.Error{Operation: "cloning " + image, Kind: tartcli.KindNotFound, Code: -1, Err: errors.New("the image was deleted after its pull")}
	}
	return err
}

// withSpace tries again, once, when the disk is full and images could be removed.
func (s *Sandbox) withSpace(ctx context.Context, do func() error) error {
	err := do()
	if tartcli.KindOf(err) != tartcli.KindNoSpace {
		return err
	}
	freed, collectErr := s.CollectImages(ctx, spaceForImage)
	s.opts.Log.Warn("the disk is full; removed unused images", "freed", freed, "error", collectErr)
	if freed == 0 {
		return err
	}
	return do()
}

// spaceForImage is how much is freed for an image that does not fit, in bytes: more than any of Cirrus Labs' public ones has.
const spaceForImage = 150 << 30

func (s *Sandbox) readGolden(digest string) (golden, bool) {
	var g golden
	found, err := readJSON(s.goldenFile(digest), &g)
	return g, err == nil && found && g.Owner == s.owner && g.Digest == digest && g.VM == goldenName(s.owner, digest)
}

func (s *Sandbox) goldenWhole(digest string) bool {
	g, found := s.readGolden(digest)
	return found && g.Whole
}

// cloneGolden clones the pod's machine, making the golden base first where it is not. Pods of the same image wait for each other, others do not.
func (s *Sandbox) cloneGolden(ctx context.Context, r record, image string) error {
	digest := digestOf(image)
	unlock, err := s.images.lock(ctx, digest)
	if err != nil {
		return err
	}
	defer unlock()
	g, found := s.readGolden(digest)
	if !found {
		g = golden{Owner: s.owner, Digest: digest, VM: goldenName(s.owner, digest)}
	}
	g.Image, g.Used = image, s.opts.Now().UTC()
	if err := s.saveGolden(g); err != nil {
		return err
	}
	if !g.Whole {
		s.opts.reached("golden-recorded")
		if err := s.requireListed(ctx, image); err != nil {
			return errors.Join(err, s.dropGolden(g))
		}
		if err := s.withSpace(ctx, func() error { return s.tart.Clone(ctx, image, g.VM) }); err != nil {
			return errors.Join(err, s.dropGolden(g))
		}
		s.opts.reached("golden-cloned")
		g.Whole = true
		if err := s.saveGolden(g); err != nil {
			return err
		}
		s.opts.reached("golden-whole")
	}
	if err := s.withSpace(ctx, func() error { return s.tart.Clone(ctx, g.VM, r.VM) }); err != nil {
		if ctx.Err() != nil {
			return err // it is the pod that is gone
		}
		return errors.Join(err, s.dropGolden(g))
	}
	return nil
}

// dropGolden removes a golden base and then its record. The caller holds the digest's lock.
func (s *Sandbox) dropGolden(g golden) error {
	g.Whole = false
	if err := s.saveGolden(g); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), deleteTimeout)
	defer cancel()
	if err := s.deleteVM(ctx, g.VM); err != nil {
		return err
	}
	if err := os.Remove(s.goldenFile(g.Digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting the golden base: %w", err)
	}
	return nil
}

// flights are tasks that several pods wait for.
type flights struct {
	mu    sync.Mutex
	aloft map[string]*flight
}

type flight struct {
	done  chan struct{}
	value string
	err   error
}

// flight does work once for all who ask for the same key while it is under way. It belongs to the sandbox: who waits may leave.
func (s *Sandbox) flight(ctx context.Context, key string, work func(context.Context) (string, error)) (string, error) {
	s.flights.mu.Lock()
	f := s.flights.aloft[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		if s.flights.aloft == nil {
			s.flights.aloft = map[string]*flight{}
		}
		s.flights.aloft[key] = f
		started := s.background(func() {
			f.value, f.err = work(s.ctx)
			s.flights.mu.Lock()
			delete(s.flights.aloft, key)
			s.flights.mu.Unlock()
			close(f.done)
		})
		if !started {
			delete(s.flights.aloft, key)
			s.flights.mu.Unlock()
			return "", errClosed
		}
	}
	s.flights.mu.Unlock()
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// errClosed reports that the agent is about to end.
var errClosed = errors.New("the node agent is shutting down")

// background runs f in a goroutine that Close waits for; false once that has been called.
func (s *Sandbox) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Go(f)
	return true
}
