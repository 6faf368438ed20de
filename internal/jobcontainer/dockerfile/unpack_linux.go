package dockerfile

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Unpack writes the files of an image's layers, the lowest first, into an empty directory, and removes the layers' files. It makes that
// directory the root of this process, in which it must be the last that happens: links in an image lead nowhere else.
func Unpack(dir string, layers []string) error {
	var files []*os.File
	for _, layer := range layers {
		file, err := os.Open(layer)
		if err != nil {
			return fmt.Errorf("unpacking the image: %w", err)
		}
		defer func() { _ = file.Close() }()
		files = append(files, file)
	}
	for _, layer := range layers { // the disk is free again when the file is closed; one layer may occur twice
		if err := os.Remove(layer); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unpacking the image: %w", err)
		}
	}
	if err := syscall.Chroot(dir); err != nil {
		return fmt.Errorf("unpacking the image: changing the root to %s: %w", dir, err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("unpacking the image: %w", err)
	}
	syscall.Umask(0)
	for i, file := range files {
		if err := newLayer("/").apply(tar.NewReader(file)); err != nil {
			return fmt.Errorf("unpacking layer %d of the image: %w", i+1, err)
		}
		_ = file.Close()
	}
	return nil
}

// Names of whiteouts (OCI image-spec 1.1).
const (
	whiteout       = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutOther  = ".wh..wh." // of the file system AUFS itself
)

// layer is one that is being applied.
type layer struct {
	root  string
	made  map[string]bool // what this layer has, and the directories above: its whiteouts are for what was there before
	times []stamp         // of directories, which change while files are made in them
}

type stamp struct {
	path string
	at   time.Time
}

func newLayer(root string) *layer { return &layer{root: root, made: map[string]bool{}} }

func (l *layer) apply(files *tar.Reader) error {
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := l.entry(header, files); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(l.times) {
		if err := os.Chtimes(s.path, s.at, s.at); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err // others were replaced in this layer
		}
	}
	return nil
}

// path is that of an entry on disk.
func (l *layer) path(name string) string { return filepath.Join(l.root, path.Clean("/"+name)) }

func (l *layer) entry(header *tar.Header, content io.Reader) error {
	file := l.path(header.Name)
	dir, base := filepath.Split(file)
	dir = filepath.Clean(dir)
	switch {
	case base == whiteoutOpaque:
		return l.removeLower(dir)
	case strings.HasPrefix(base, whiteoutOther):
		return nil
	case strings.HasPrefix(base, whiteout):
		return l.remove(filepath.Join(dir, strings.TrimPrefix(base, whiteout)))
	}
	if file == filepath.Clean(l.root) { // a layer may have the root directory itself
		return l.attributes(file, header)
	}
	if err := makeParents(dir, maxLinks); err != nil {
		return err
	}
	l.make(file)
	return l.write(file, header, content)
}

// maxLinks bounds the links that a path leads through, as Linux does.
const maxLinks = 40

// makeParents makes a directory. Where the path leads through a link whose target is not there, it makes that.
func makeParents(dir string, links int) error {
	err := os.MkdirAll(dir, 0o755) //nolint:gosec // a directory of an image, as Docker makes it
	if err == nil || links == 0 || !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeParents(parent, links); err != nil {
			return err
		}
	}
	target, readErr := os.Readlink(dir)
	if readErr != nil {
		if again := os.Mkdir(dir, 0o755); again == nil || errors.Is(again, fs.ErrExist) && isDirectory(dir) { //nolint:gosec // see above
			return nil
		}
		return err
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(dir), target)
	}
	return makeParents(target, links-1)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// make records what is in this layer.
func (l *layer) make(file string) {
	for ; len(file) > len(l.root) && !l.made[file]; file = filepath.Dir(file) {
		l.made[file] = true
	}
}

// remove removes what was at a path before this layer.
func (l *layer) remove(file string) error {
	if l.made[file] {
		return l.removeLower(file)
	}
	return os.RemoveAll(file)
}

// removeLower empties a directory of what was there before this layer.
func (l *layer) removeLower(dir string) error {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // there is nothing to hide
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// write makes one file in place of what is there. A directory stays, with its content.
func (l *layer) write(file string, header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeLink && l.path(header.Linkname) == file {
		return nil
	}
	before, err := os.Lstat(file)
	if err == nil && !(before.IsDir() && header.Typeflag == tar.TypeDir) {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(file, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // attributes follow
			return err
		}
	case tar.TypeReg:
		if err := writeFile(file, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := os.Symlink(header.Linkname, file); err != nil {
			return err
		}
	case tar.TypeLink: // its attributes are those of the file
		return os.Link(l.path(header.Linkname), file)
	case tar.TypeFifo:
		if err := unix.Mkfifo(file, 0o644); err != nil {
			return &fs.PathError{Op: "mkfifo", Path: file, Err: err}
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeXGlobalHeader:
		return nil // a user namespace can't make devices, and those of a container are its runtime's
	default:
		return fmt.Errorf("%s has the unknown type %q", header.Name, header.Typeflag)
	}
	return l.attributes(file, header)
}

func writeFile(path string, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// xattr is how tar archives have extended attributes.
const xattr = "SCHILY.xattr."

// attributes sets the owner first, which resets the mode's special bits and the file's capabilities.
func (l *layer) attributes(file string, header *tar.Header) error {
	err := os.Lchown(file, header.Uid, header.Gid)
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%s belongs to user %d and group %d, and the pod's user namespace has fewer", header.Name, header.Uid, header.Gid)
	}
	if err != nil || header.Typeflag == tar.TypeSymlink {
		return err
	}
	if err := os.Chmod(file, header.FileInfo().Mode()); err != nil {
		return err
	}
	for name, value := range header.PAXRecords {
		name, found := strings.CutPrefix(name, xattr)
		if !found {
			continue
		}
		// Some are the file system's, or need rights that a user namespace does not have. The image works without.
		err := unix.Lsetxattr(file, name, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
			return &fs.PathError{Op: "setxattr " + name, Path: file, Err: err}
		}
	}
	if header.Typeflag == tar.TypeDir {
		l.times = append(l.times, stamp{file, header.ModTime})
		return nil
	}
	return os.Chtimes(file, header.ModTime, header.ModTime)
}
