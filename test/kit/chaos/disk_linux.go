package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is a file system of its own, small enough to be filled: put a state directory into it. It needs root. Safe for
// concurrent use.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
}

// ballast is the file that fills the disk.
const ballast = ".ballast"

// NewDisk mounts a file system of that many bytes over an existing directory. Close unmounts it.
func NewDisk(dir string, size int64) (*Disk, error) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		return nil, fmt.Errorf("mounting a disk of %d bytes on %s (it takes root, and leave to mount): %w", size, dir, err)
	}
	return &Disk{Dir: dir}, nil
}

// Free is how many bytes there is room for.
func (d *Disk) Free() (int64, error) {
	var at syscall.Statfs_t
	if err := syscall.Statfs(d.Dir, &at); err != nil {
		return 0, fmt.Errorf("reading the disk: %w", err)
	}
	return int64(at.Bavail) * at.Bsize, nil
}

// Fill uses all the space except for leave bytes: every write beyond fails with ENOSPC until Drain. Other processes may write in the
// meantime: the space that they free is filled, too.
func (d *Disk) Fill(leave int64) error {
	file, err := os.OpenFile(filepath.Join(d.Dir, ballast), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	defer file.Close()
	for {
		free, err := d.Free()
		if err != nil || free <= leave {
			return err
		}
		had, err := file.Stat()
		if err != nil {
			return fmt.Errorf("filling the disk: %w", err)
		}
		// A write between the reading and the claim makes it fail as a whole: read again.
		err = syscall.Fallocate(int(file.Fd()), 0, had.Size(), free-leave)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("filling the disk: %w", err)
		}
	}
}

// Drain gives the room back.
func (d *Disk) Drain() error {
	if err := os.Remove(filepath.Join(d.Dir, ballast)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("draining the disk: %w", err)
	}
	return nil
}

// Close unmounts it; what is in it is lost. Open files in it stay usable until they are closed.
func (d *Disk) Close() error {
	if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the disk at %s: %w", d.Dir, err)
	}
	return nil
}
