package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
)

// maxJIT bounds a configuration, in bytes; real ones have about 5000.
const maxJIT = 1 << 20

// files are the paths of the JIT file and of the supervisor's signs. The signs are beside it, unless there is a status
// directory.
type files struct {
	jit, staged, taken, idle, jobless        string
	hook, hookDone, jobStarted, jobCompleted string
	last, held, exited                       string
}

// filesIn names the files of a shared directory; status is empty where it holds the signs, too.
func filesIn(jit, status string) files {
	if status == "" {
		status = filepath.Dir(jit)
	}
	sign := func(name string) string { return filepath.Join(status, name) }
	return files{
		jit: jit, staged: jit + guestshare.StagedSuffix, taken: sign(filepath.Base(jit) + ".taken"), idle: sign("runner.idle"), jobless: sign("runner.jobless"),
		hook: sign("job-started.sh"), hookDone: sign("job-completed.sh"),
		jobStarted: sign("job-started"), jobCompleted: sign("job-completed"),
		last: sign("runner.last"), held: sign("runner.held"), exited: sign("runner.exited"),
	}
}

func (f files) dir() string { return filepath.Dir(f.jit) }

func (f files) status() string { return filepath.Dir(f.idle) }

// release renames the staged configuration to the name that the supervisor waits for. One that the supervisor has taken already is gone.
func (f files) release() error {
	if exists(f.taken) {
		return withoutMissing(os.Remove(f.staged)) // NET-3: where the supervisor may not remove it
	}
	return withoutMissing(os.Rename(f.staged, f.jit))
}

func withoutMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// apart says that the supervisor has a directory of its own, because it only reads the other one: a share of the host of
// its virtual machine, or a Secret that is mounted.
func (f files) apart() bool { return f.status() != f.dir() }

// check says in a sentence why the shared directory cannot be used.
func (f files) check() error {
	for _, dir := range []struct{ kind, path string }{{"shared", f.dir()}, {"status", f.status()}} {
		info, err := os.Stat(dir.path)
		switch {
		case err != nil:
			return fmt.Errorf("the %s directory %s: %w; the pod's containers must share it", dir.kind, dir.path, withoutPath(err))
		case !info.IsDir():
			return fmt.Errorf("the %s directory %s is a file: expected the directory that the pod's containers share", dir.kind, dir.path)
		}
	}
	return nil
}

// withoutPath takes off paths that are temporary names, or said already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// owner a staged file is given to; -1 leaves it as it is.
type owner struct{ uid, gid int }

// stage puts the content at path by rename, readable by its owner alone. A reader sees all of it or nothing.
func stage(path string, content []byte, to owner) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".staged-*") // mode 0600
	if err != nil {
		return fmt.Errorf("staging %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = temp.Close()
			_ = os.Remove(temp.Name())
			err = fmt.Errorf("staging %s: %w", path, err)
		}
	}()
	if to.uid >= 0 || to.gid >= 0 {
		if err := temp.Chown(to.uid, to.gid); err != nil {
			return err
		}
	}
	if _, err := temp.Write(content); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// readBounded reads a small regular file, and refuses any other. It waits for none: a job of before may have left a FIFO.
func readBounded(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxJIT+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxJIT {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxJIT)
	}
	return content, nil
}

// runnerOwner is the user that gets the staged files. Poller and runner are two containers, and may be two users:
// only root can change a file's owner, to the user that was named or else to the owner of the shared directory.
func runnerOwner(dir string, named owner) (owner, error) {
	if named.uid >= 0 || named.gid >= 0 || os.Geteuid() != 0 {
		return named, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return named, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{uid: int(stat.Uid), gid: int(stat.Gid)}, nil
	}
	return named, nil
}

// Install puts this program's own executable at path, mode 0755, by rename. On one file system it is a hard link,
// which costs neither time nor space: a binary per pod would.
func Install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fail("installing the agent: %v", err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fail("installing the agent: %s is a directory; name the file to write (--to %s)",
			path, filepath.Join(path, filepath.Base(self)))
	}
	if err := install(self, path, os.Link); err != nil {
		return fail("installing the agent at %s: %v; its directory must exist and be writable", path, withoutPath(err))
	}
	return nil
}

func install(self, path string, link func(from, to string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".install-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // gone already after the rename
	linked := temp.Name() + ".link"
	if linkable(self) && link(self, linked) == nil {
		defer func() { _ = os.Remove(linked) }()
		return errors.Join(temp.Close(), os.Rename(linked, path))
	}
	if err := fill(temp, self); err != nil {
		_ = temp.Close()
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// linkable: a link shares mode and owner with the original, so they must be right there.
func linkable(self string) bool {
	info, err := os.Stat(self)
	if err != nil || info.Mode() != 0o755 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func fill(to *os.File, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if _, err := io.Copy(to, source); err != nil {
		return err
	}
	return to.Chmod(0o755)
}

// Ready is nil while no job has started in the runner's container. Idle goes by it, and so do the readiness probes of static runners,
// of RunnerSets, of runners on Macs, and of pods of earlier releases. It requires a positive sign,
// so that a workflow which clears the directory does not make its runner look idle (EXCL-4, EXCL-6). A configuration alone
// does not end it: the poller's exit says that one has arrived. statusDir is as in SuperviseOptions; with it, jit is not
// needed. For a static runner it is nil again when the job has finished.
func Ready(jit, statusDir string) error {
	f := filesIn(jit, statusDir)
	if !exists(f.jobless) || exists(f.jobStarted) {
		return fail("not ready: a job may be running in this container")
	}
	return nil
}
