package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// link makes volumes appear at their targets. A container that is added to a pod can mount no part of a volume of it, so a target is a
// symbolic link.
func link(links []wire.Link) error {
	for _, l := range links {
		if err := linkOne(l); err != nil {
			return err
		}
	}
	return nil
}

func linkOne(l wire.Link) error {
	target, found, err := targetOf(l)
	if err != nil {
		return cannotMount(l, withoutPath(err))
	}
	if target == "" || l.Keep && found != nil && found.IsDir() {
		return nil
	}
	if os.Geteuid() != 0 {
		return wire.Failf(wire.FailNotPermitted, "Volume '%s' can't be mounted: the container does not run as root.", l.Volume)
	}
	if found != nil {
		if err := empty(l, target, found); err != nil {
			return err
		}
	}
	if err := makeSource(l.Source, found); err != nil {
		return cannotMount(l, err)
	}
	if found != nil {
		err = os.Remove(target) // a directory that is not empty stays
	} else {
		err = os.MkdirAll(filepath.Dir(target), 0o755) //nolint:gosec // a directory of the image, as Docker makes it
	}
	if err == nil {
		err = os.Symlink(l.Source, target)
	}
	if errors.Is(err, syscall.EBUSY) {
		err = errors.New("a directory is mounted there already, as at each VOLUME of an image")
	}
	if err != nil {
		return cannotMount(l, withoutPath(err))
	}
	return nil
}

// targetOf returns where a volume goes and what is there, nil if that is nothing. Links lead on, as for Docker. The path is empty for a volume
// that was linked before.
func targetOf(l wire.Link) (string, fs.FileInfo, error) {
	found, err := os.Lstat(l.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.Target, nil, nil
	case err != nil:
		return "", nil, err
	case found.Mode()&fs.ModeSymlink == 0:
		return l.Target, found, nil
	}
	if to, err := os.Readlink(l.Target); err == nil && filepath.Clean(to) == filepath.Clean(l.Source) {
		return "", nil, nil
	}
	target, err := filepath.EvalSymlinks(l.Target)
	switch {
	case err != nil:
		return "", nil, errors.New("the target is a symbolic link that leads nowhere")
	case target == filepath.Clean(l.Source):
		return "", nil, nil
	case !ofTheImage(target): // another volume, which all containers would lose
		return "", nil, errors.New("the target is a symbolic link to another volume or to a directory of the runner")
	}
	found, err = os.Lstat(target)
	return target, found, err
}

// ofTheImage reports whether a path is in no directory that the containers of the job share.
func ofTheImage(target string) bool {
	for _, shared := range []string{jobcontainer.Dir, jobcontainer.WorkDir, jobcontainer.ExternalsDir, jobcontainer.ToolsDir, jobcontainer.GitHubDir} {
		if target == shared || strings.HasPrefix(target, shared+"/") {
			return false
		}
	}
	return true
}

func cannotMount(l wire.Link, err error) error {
	return wire.Failf(wire.FailInvalid, "Volume '%s' can't be mounted: %v.", l.Volume, err)
}

// empty is nil for an empty directory.
func empty(l wire.Link, target string, found fs.FileInfo) error {
	if !found.IsDir() {
		return wire.Failf(wire.FailNotEmpty, "Volume '%s' can't be mounted: the target is not a directory.", l.Volume)
	}
	dir, err := os.Open(target)
	if err != nil {
		return cannotMount(l, withoutPath(err))
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return wire.Failf(wire.FailNotEmpty, "Volume '%s' can't be mounted: the target is not empty.", l.Volume)
	}
	return nil
}

// makeSource makes a new volume look like the directory of the image that it replaces, as Docker does: databases insist on owner and mode of
// theirs. Without one, every user may write there, as the job's containers have different users. A volume that exists stays as it is.
func makeSource(source string, replaced fs.FileInfo) error {
	if err := os.MkdirAll(filepath.Dir(source), 0o777); err != nil { //nolint:gosec // in the job's own volume
		return err
	}
	err := os.Mkdir(source, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Stat(source)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file", source)
		}
		return err
	}
	if err != nil {
		return err
	}
	mode := os.FileMode(0o777)
	if replaced != nil {
		mode = replaced.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid)
		if owner, ok := replaced.Sys().(*syscall.Stat_t); ok {
			if err := os.Chown(source, int(owner.Uid), int(owner.Gid)); err != nil {
				return err
			}
		}
	}
	return os.Chmod(source, mode)
}
