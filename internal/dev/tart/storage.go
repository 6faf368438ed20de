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

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// reference is the name of an image in a registry. A local VM's has no slash (Tart 4.2).
type reference struct {
	repository  string // host and path
	tag, digest string // one of them
}

func parseReference(name string) (reference, bool) {
	if !strings.Contains(name, "/") {
		return reference{}, false
	}
	if repository, digest, found := strings.Cut(name, "@"); found {
		return reference{repository: repository, digest: digest}, true
	}
	r := reference{repository: name, tag: "latest"}
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		r.repository, r.tag = name[:at], name[at+1:]
	}
	return r, true
}

func (r reference) host() string {
	host, _, _ := strings.Cut(r.repository, "/")
	return host
}

// directory is where an image lies: a directory by its digest, or a link to that by its tag, so that it is listed twice (Tart 4.2).
func (p place) dir(r reference) vmDir {
	last := r.digest
	if last == "" {
		last = r.tag
	}
	return vmDir(filepath.Join(p.images(), filepath.FromSlash(r.repository), last))
}

// explicitly marks a digest that was pulled explicitly, and so stays when no tag refers to it.
const explicitly = ".explicitly-pulled"

func pullFlags(f *pflag.FlagSet) {
	f.Bool("insecure", false, "")
	f.Int("concurrency", 4, "")
	f.Bool("deduplicate", false, "")
}

// runPull: a local name is a no-op with exit 0 (Tart 4.2).
func runPull(ctx context.Context, c *command) error {
	r, remote := parseReference(c.args[0])
	if !remote {
		fmt.Fprintf(c.Stdout, "\"%s\" is a local image, nothing to pull here!\n", c.args[0])
		return nil
	}
	return c.pull(ctx, c.args[0], r)
}

// pull fetches an image, with the lock of its registry's host held (Tart 4.2).
func (c *command) pull(ctx context.Context, name string, r reference) error {
	image := c.script.image(name)
	host := filepath.Join(c.images(), r.host())
	if err := os.MkdirAll(host, 0o700); err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, "pulling manifest...")
	switch {
	case image.Missing:
		return message("image-missing", name)
	case image.Private:
		if err := c.authenticate(name, r); err != nil {
			return err
		}
	}
	lock, err := lockFile(ctx, host, func() { fmt.Fprintln(c.Stdout, "waiting for lock...") })
	if err != nil {
		return err
	}
	defer lock.Close()
	digest := r.digest
	if digest == "" {
		if digest = image.Digest; digest == "" {
			digest = hashOf(name)
		}
	}
	byDigest := c.dir(reference{repository: r.repository, digest: digest})
	if c.corruptible == "" {
		c.corruptible = byDigest
	}
	if !byDigest.exists() {
		if err := c.makeRoom(image.SizeGB); err != nil {
			return err
		}
		fmt.Fprintf(c.Stdout, "pulling disk (%d GB compressed)...\n", image.SizeGB)
		if err := c.assemble(ctx, byDigest, c.script.Timing.Pull, func(dir vmDir) error { return dir.create(newConfig(image, digest)) }); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(c.Stdout, "image is already cached and linked!")
	}
	if r.tag == "" {
		return os.WriteFile(filepath.Join(string(byDigest), explicitly), nil, 0o600)
	}
	return c.link(c.dir(r), digest)
}

// assemble makes a VM's files in the directory for unfinished ones, and then puts them in their place, whatever is there.
func (c *command) assemble(ctx context.Context, to vmDir, takes Duration, fill func(vmDir) error) error {
	dir, lock, err := reserve(ctx, c.tmp(), "")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := fill(vmDir(dir)); err != nil {
		_ = os.RemoveAll(dir)
		return err
	}
	pause(ctx, takes)
	if c.rule.Effect == EffectCorrupt && to == c.corruptible {
		if err := os.Remove(vmDir(dir).nvram()); err != nil {
			return err
		}
	}
	return c.replace(dir, string(to))
}

// replace silently overwrites what is there, a running VM included: that continues to run, unlisted (Tart 4.2).
func (c *command) replace(dir, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	former := dir + ".former"
	if err := os.Rename(to, former); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return os.RemoveAll(former)
}

func (c *command) link(tag vmDir, digest string) error {
	made := filepath.Join(c.tmp(), "link-"+randomSerial())
	if err := os.Symlink(digest, made); err != nil {
		return err
	}
	return os.Rename(made, string(tag))
}

func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// makeRoom removes least recently used images when the disk is too full, unless TART_NO_AUTO_PRUNE is set (Tart 4.2).
func (c *command) makeRoom(size int) error {
	if c.script.DiskGB == 0 {
		return nil
	}
	images, err := c.cached()
	if err != nil {
		return err
	}
	used := 0
	for _, i := range images {
		used += i.config.Image.SizeGB
	}
	if os.Getenv("TART_NO_AUTO_PRUNE") == "" {
		for _, i := range images { // oldest first
			if used+size <= c.script.DiskGB {
				break
			}
			if err := c.removeImage(i.ref); err != nil {
				return err
			}
			used -= i.config.Image.SizeGB
		}
	}
	if used+size > c.script.DiskGB {
		return message("no-space", "")
	}
	return nil
}

// cachedImage is an image by its digest.
type cachedImage struct {
	ref      reference
	config   vmConfig
	accessed time.Time
}

// cached are the images, the one that was used the longest ago first.
func (c *command) cached() ([]cachedImage, error) {
	var found []cachedImage
	err := filepath.WalkDir(c.images(), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in between
		}
		if err != nil || !entry.IsDir() || !strings.HasPrefix(entry.Name(), "sha256:") {
			return err
		}
		repository, err := filepath.Rel(c.images(), filepath.Dir(path))
		if err != nil {
			return err
		}
		config, err := vmDir(path).read()
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found = append(found, cachedImage{
			ref: reference{repository: filepath.ToSlash(repository), digest: entry.Name()}, config: config, accessed: info.ModTime(),
		})
		return filepath.SkipDir
	})
	slices.SortFunc(found, func(a, b cachedImage) int { return a.accessed.Compare(b.accessed) })
	return found, err
}

// tags are the tags that lead to a digest.
func (c *command) tags(r reference) []reference {
	dir := filepath.Dir(string(c.dir(r)))
	entries, _ := os.ReadDir(dir) // none if it is gone
	var tags []reference
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == r.digest {
			tags = append(tags, reference{repository: r.repository, tag: e.Name()})
		}
	}
	return tags
}

// removeImage removes a digest and the tags that lead to it; or a tag, and with the last one the digest, unless that was
// pulled explicitly.
func (c *command) removeImage(r reference) error {
	dir := c.dir(r)
	if r.digest != "" {
		for _, tag := range c.tags(r) {
			if err := os.Remove(string(c.dir(tag))); err != nil {
				return err
			}
		}
		return os.RemoveAll(string(dir))
	}
	digest, err := os.Readlink(string(dir))
	if err != nil {
		return err
	}
	if err := os.Remove(string(dir)); err != nil {
		return err
	}
	rest := reference{repository: r.repository, digest: digest}
	if _, err := os.Stat(filepath.Join(string(c.dir(rest)), explicitly)); err == nil || len(c.tags(rest)) > 0 {
		return nil
	}
	return os.RemoveAll(string(c.dir(rest)))
}

func cloneFlags(f *pflag.FlagSet) {
	pullFlags(f)
	f.Uint("prune-limit", 100, "")
	f.Bool("stacked", false, "")
}

// runClone pulls an image that is not cached, and then, with a lock over the Tart home, makes a copy that silently replaces
// what has its name (Tart 4.2).
func runClone(ctx context.Context, c *command) error {
	source, name := c.args[0], c.args[1]
	if strings.Contains(name, "/") {
		return usage("<new-name> should be a local name", "clone <source-name> <new-name>")
	}
	c.corruptible = c.vm(name)
	from := c.vm(source)
	if r, remote := parseReference(source); remote {
		from = c.dir(r)
		if !from.exists() {
			if err := c.pull(ctx, source, r); err != nil {
				return err
			}
		}
	}
	if !from.exists() {
		return message("not-found", source)
	}
	lock, err := lockFile(ctx, string(c.place), nil)
	if err != nil {
		return err
	}
	defer lock.Close()
	now := time.Now()
	_ = os.Chtimes(string(from), now, now) // when it was used last
	return c.assemble(ctx, c.vm(name), c.script.Timing.Clone, func(dir vmDir) error { return dir.copyFrom(from) })
}

// runDelete stops at the first VM that cannot be deleted (Tart 4.2).
func runDelete(_ context.Context, c *command) error {
	for _, name := range c.args {
		if r, remote := parseReference(name); remote {
			if !c.dir(r).exists() {
				return message("not-found", name)
			}
			if err := c.removeImage(r); err != nil {
				return err
			}
			continue
		}
		if err := c.deleteVM(name); err != nil {
			return err
		}
	}
	return nil
}

// deleteVM refuses a VM that is locked; one that runs without its lock loses its files, and runs on.
func (c *command) deleteVM(name string) error {
	vm := c.vm(name)
	if !vm.exists() {
		return message("not-found", name)
	}
	lock, err := takeRecord(vm.config())
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return message("running", name)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(string(vm))
}

// runFQN takes the digest from the image's path, and does not check that anything is there: it names a digest that was never pulled.
func runFQN(_ context.Context, c *command) error {
	name := c.args[0]
	r, remote := parseReference(name)
	if !remote {
		fmt.Fprintln(c.Stdout, name)
		return nil
	}
	digest := filepath.Base(string(c.dir(r)))
	if to, err := os.Readlink(string(c.dir(r))); err == nil {
		digest = to
	}
	if !strings.HasPrefix(digest, "sha256:") {
		return message("no-digest", r.repository+":"+r.tag)
	}
	fmt.Fprintf(c.Stdout, "%s@%s\n", r.repository, digest)
	return nil
}

func loginFlags(f *pflag.FlagSet) {
	f.String("username", "", "")
	f.Bool("password-stdin", false, "")
	f.Bool("insecure", false, "")
	f.Bool("no-validate", false, "")
}
