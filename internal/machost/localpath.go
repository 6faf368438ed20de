package machost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// place is an entry of an open directory: a rename of a parent does not change which directory that is.
type place struct {
	dir  *os.Root
	name string
}

func (p place) close() { _ = p.dir.Close() }

// sync makes the directory's entries durable.
func (p place) sync() error {
	f, err := p.dir.Open(".")
	if err != nil {
		return fmt.Errorf("syncing a directory: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems cannot
		return fmt.Errorf("syncing a directory: %w", err)
	}
	return nil
}

// Ways of find.
const (
	follow   = 1 << iota // a link at the end of the path is followed
	makeDirs             // missing directories are created
)

// maxLinks is as many links as a kernel follows.
const maxLinks = 32

// find walks to the directory that a path lies in, entry by entry, and follows only root's links in root's directories: in their own
// directories, a user could plant one that redirects root's writes.
func (l Local) find(file string, how int) (place, error) {
	if !path.IsAbs(file) {
		return place{}, &fs.PathError{Op: "finding", Path: file, Err: errors.New("the path is not absolute")}
	}
	left := path.Clean(file)
	for range maxLinks {
		at, link, err := l.walk(file, left, how)
		if err != nil || link == "" {
			return at, err
		}
		left = link
	}
	return place{}, &fs.PathError{Op: "finding", Path: file, Err: syscall.ELOOP}
}

// walk goes until the end, or to a link: then it returns the path that it leads to.
func (l Local) walk(file, left string, how int) (at place, link string, err error) {
	dir, err := os.OpenRoot(l.real("/"))
	if err != nil {
		return place{}, "", pathError("finding", file, err)
	}
	defer func() {
		if err != nil || link != "" {
			_ = dir.Close()
		}
	}()
	parts := strings.Split(strings.Trim(left, "/"), "/")
	for i, name := range parts {
		last := i == len(parts)-1
		if last && name == "" {
			name = "." // the root itself
		}
		if last && how&follow == 0 {
			return place{dir, name}, "", nil
		}
		info, err := dir.Lstat(name)
		switch {
		case last && (err != nil || info.Mode()&fs.ModeSymlink == 0):
			return place{dir, name}, "", nil
		case errors.Is(err, fs.ErrNotExist) && how&makeDirs != 0:
			if err := makeDir(dir, name); err != nil {
				return place{}, "", pathError("making a directory for", file, err)
			}
		case err != nil:
			return place{}, "", pathError("finding", file, err)
		case info.Mode()&fs.ModeSymlink != 0:
			here := "/" + strings.Join(parts[:i], "/")
			target, err := trustedTarget(dir, name, info)
			if err != nil {
				return place{}, "", pathError("finding", file, err)
			}
			if target == "" {
				return place{}, "", &LinkError{Path: file, Link: path.Join(here, name)}
			}
			if !path.IsAbs(target) {
				target = path.Join(here, target)
			}
			return place{}, path.Join(append([]string{target}, parts[i+1:]...)...), nil
		case !info.IsDir():
			return place{}, "", &fs.PathError{Op: "finding", Path: file, Err: syscall.ENOTDIR}
		}
		next, err := dir.OpenRoot(name)
		if err != nil {
			return place{}, "", pathError("finding", file, err)
		}
		_ = dir.Close()
		dir = next
	}
	return place{}, "", &fs.PathError{Op: "finding", Path: file, Err: fs.ErrInvalid}
}

func makeDir(dir *os.Root, name string) error {
	if err := dir.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := dir.Chmod(name, 0o755); err != nil { // whatever the umask is
		return err
	}
	return place{dir, name}.sync()
}

// trustedTarget returns where a link leads, or nothing if another user than the one that this process runs as could have made it.
func trustedTarget(dir *os.Root, name string, link fs.FileInfo) (string, error) {
	folder, err := dir.Lstat(".")
	if err != nil {
		return "", err
	}
	own := os.Geteuid()
	for _, info := range []fs.FileInfo{folder, link} {
		if uid, _ := owner(info); uid != own && uid != 0 {
			return "", nil
		}
	}
	return dir.Readlink(name)
}
