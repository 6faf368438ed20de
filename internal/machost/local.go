package machost

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Local is the machine that this process runs on, or a model of one below Root. It must run as root to change what belongs to
// others.
type Local struct {
	// Root is the directory in which the host's files and programs lie; empty is the machine itself.
	Root string
	// Patience is how long a program may take. Default 5 minutes.
	Patience time.Duration
}

// beside is the suffix of unfinished files. Each path has one such name, so that a crash leaves no more than that, and the next write
// reuses it. The suffix has a dot and is unique: sudo, newsyslog and launchd ignore such files.
const beside = ".bullpen-new"

func besideOf(name string) string { return "." + name + beside }

func pathError(op, file string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err // its path is a part of ours
	}
	return &fs.PathError{Op: op, Path: file, Err: err}
}

// ReadFile is Host's.
func (l Local) ReadFile(file string) ([]byte, error) {
	f, err := l.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, pathError("reading", file, err)
	}
	return content, nil
}

// Open is Host's.
func (l Local) Open(file string) (File, error) {
	at, err := l.find(file, follow)
	if err != nil {
		return nil, err
	}
	defer at.close()
	f, err := at.dir.OpenFile(at.name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a planted pipe must not hold it up
	if err != nil {
		return nil, pathError("reading", file, err)
	}
	return f, nil
}

// ReadDir is Host's.
func (l Local) ReadDir(file string) ([]string, error) {
	at, err := l.find(file, follow)
	if err != nil {
		return nil, err
	}
	defer at.close()
	f, err := at.dir.Open(at.name)
	if err != nil {
		return nil, pathError("listing", file, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, pathError("listing", file, err)
	}
	slices.Sort(names)
	return names, nil
}

// Stat is Host's.
func (l Local) Stat(file string) (FileInfo, error) {
	at, err := l.find(file, 0)
	if err != nil {
		return FileInfo{}, err
	}
	defer at.close()
	info, err := at.dir.Lstat(at.name)
	if err != nil {
		return FileInfo{}, pathError("inspecting", file, err)
	}
	uid, gid := owner(info)
	found := FileInfo{Attributes: Attributes{Mode: info.Mode().Perm(), UID: uid, GID: gid}, IsDir: info.IsDir(), Size: info.Size()}
	if info.Mode()&fs.ModeSymlink != 0 {
		if found.Target, err = at.dir.Readlink(at.name); err != nil {
			return FileInfo{}, pathError("inspecting", file, err)
		}
	}
	return found, nil
}

func owner(info fs.FileInfo) (uid, gid int) {
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(of.Uid), int(of.Gid)
}

// WriteFile is Host's.
func (l Local) WriteFile(file string, content io.Reader, attributes Attributes) (err error) {
	at, err := l.find(file, makeDirs)
	if err != nil {
		return err
	}
	defer at.close()
	temporary := besideOf(at.name)
	if err := at.dir.RemoveAll(temporary); err != nil {
		return pathError("writing", file, err)
	}
	f, err := at.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return pathError("writing", file, err)
	}
	defer func() {
		if err != nil {
			_ = at.dir.Remove(temporary)
			err = pathErrorOfSystem("writing", file, err)
		}
	}()
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chown(attributes.UID, attributes.GID)
	}
	if err == nil {
		err = f.Chmod(attributes.Mode.Perm()) // after chown, which clears bits
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	faultpoint.Reached(faultpoint.HostFileWritten)
	if err = at.dir.Rename(temporary, at.name); err != nil {
		return err
	}
	return at.sync()
}

// pathErrorOfSystem leaves errors of the content's reader, such as a wrong digest, as they are.
func pathErrorOfSystem(op, file string, err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return pathError(op, file, number)
	}
	return fmt.Errorf("%s %s: %w", op, file, err)
}

// MakeDir is Host's.
func (l Local) MakeDir(file string, attributes Attributes) error {
	at, err := l.find(file, makeDirs)
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.dir.Mkdir(at.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return pathError("making", file, err)
	}
	f, err := at.dir.OpenFile(at.name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return pathError("making", file, err)
	}
	defer f.Close()
	if err := errors.Join(f.Chown(attributes.UID, attributes.GID), f.Chmod(attributes.Mode.Perm())); err != nil {
		return pathError("making", file, err)
	}
	return at.sync()
}

// Symlink is Host's.
func (l Local) Symlink(target, file string) error {
	at, err := l.find(file, makeDirs)
	if err != nil {
		return err
	}
	defer at.close()
	temporary := besideOf(at.name)
	err = at.dir.RemoveAll(temporary)
	if err == nil {
		err = at.dir.Symlink(target, temporary)
	}
	if err == nil {
		err = at.dir.Rename(temporary, at.name)
	}
	if err != nil {
		_ = at.dir.Remove(temporary)
		var link *os.LinkError
		if errors.As(err, &link) {
			err = link.Err
		}
		return pathError("linking", file, err)
	}
	return at.sync()
}

// Rename is Host's.
func (l Local) Rename(from, to string) error {
	if path.Dir(from) != path.Dir(to) {
		return fmt.Errorf("renaming %s to %s: not in the same directory", from, to)
	}
	at, err := l.find(from, 0)
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.dir.Rename(at.name, path.Base(to)); err != nil {
		var link *os.LinkError
		if errors.As(err, &link) {
			err = link.Err
		}
		return pathError("renaming", from, err)
	}
	return at.sync()
}

// Remove is Host's.
func (l Local) Remove(file string) error {
	at, err := l.find(file, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.dir.RemoveAll(at.name); err != nil {
		return pathError("removing", file, err)
	}
	return at.sync()
}

// real is where a path lies in this process's own terms.
func (l Local) real(file string) string { return strings.TrimSuffix(l.Root, "/") + file }
