package guestshare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// The maximum size of the status share (TEN-6). Nothing bounds a guest's writes to a shared directory, so the host measures it. The largest
// file of an honest guest is the log of its command.
const (
	MaxStatus        = 256 << 20 // bytes
	maxStatusEntries = 4096      // files and directories
)

const blockSize = 512 // of Stat_t.Blocks, independent of the file system's own

// Excess says how a share exceeds what it may hold: most bytes of this machine's disk, and a few thousand files. A share that the
// host may not read is an excess as well: its guest could hide anything there. Empty when nothing exceeds, when there is no such
// share, and when this machine lacks the resources to read it. It follows no link, and its cost does not depend on what the guest
// has written there.
func Excess(dir string, most int64) string { return excess(dir, most, maxStatusEntries) }

func excess(dir string, most int64, mostEntries int) string {
	w := weigh(dir, most, mostEntries)
	if w.unreadable { // a job may have changed rights meanwhile, which alone is no reason to end it
		w = weigh(dir, most, mostEntries)
	}
	if w.unreadable {
		return "has a directory that the host cannot read"
	}
	return w.excess
}

func weigh(dir string, most int64, mostEntries int) *weighing {
	w := &weighing{share: dir, most: most, mostEntries: mostEntries, left: []string{"."}}
	err := w.try(".", func() (err error) {
		w.root, err = os.OpenRoot(dir)
		return err
	})
	if err != nil {
		return w
	}
	defer func() { _ = w.root.Close() }()
	for len(w.left) > 0 && w.excess == "" && !w.unreadable {
		next := w.left[len(w.left)-1]
		w.left = w.left[:len(w.left)-1]
		w.dir(next)
	}
	return w
}

// readable are the rights that the host takes on a directory to read it. The node agent is not root, and a guest may remove them.
const readable = 0o700

// RemoveReports removes reports of commands of Exec for which nothing waits, and unfinished ones: those of a slow guest come when its
// host has given up, and would add up to an excess.
func RemoveReports(dir string, waited func(id string) bool) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	names, _ := file.Readdirnames(maxStatusEntries) // more are an excess
	for _, name := range names {
		if id, ok := reportOf(name); ok && !waited(id) {
			_ = root.Remove(name)
		}
	}
}

// reportOf is the command whose report a file is (FileExec), or will be: Write names it so until it is whole.
func reportOf(name string) (id string, ok bool) {
	unfinished := strings.HasPrefix(name, ".")
	rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "."), execPrefix)
	if !ok {
		return "", false
	}
	id, after, ok := strings.Cut(rest, ".json")
	return id, ok && strings.HasPrefix(after, "-") == unfinished && (unfinished || after == "")
}

// weighing is one measurement of a share.
type weighing struct {
	share       string
	root        *os.Root
	most        int64
	mostEntries int
	bytes       int64
	entries     int
	left        []string // directories that are still to be read
	excess      string
	unreadable  bool // the host may not read one of the directories
}

// try does something in a directory, and again with the rights for it if they were missing (TEN-6). Other failures leave it out: the
// guest may put something else in a file's place at any time.
func (w *weighing) try(dir string, do func() error) error {
	err := do()
	if errors.Is(err, fs.ErrPermission) {
		if dir == "." {
			_ = os.Chmod(w.share, readable) // by its path: one without the right to search has no "." either
		} else {
			_ = w.root.Chmod(dir, readable)
		}
		err = do()
	}
	w.unreadable = w.unreadable || errors.Is(err, fs.ErrPermission)
	return err
}

// dir adds what is in one directory.
func (w *weighing) dir(name string) {
	var file *os.File
	err := w.try(name, func() (err error) {
		file, err = w.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	for w.excess == "" && !w.unreadable {
		names, err := file.Readdirnames(256) // a guest may have made millions
		for _, entry := range names {
			w.add(name, entry)
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func (w *weighing) add(dir, entry string) {
	w.entries++
	name := path.Join(dir, entry)
	var info os.FileInfo
	err := w.try(dir, func() (err error) {
		info, err = w.root.Lstat(name)
		return err
	})
	if err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			w.bytes += stat.Blocks * blockSize // what it takes of the disk: a file may have holes
		}
		if info.IsDir() {
			w.left = append(w.left, name)
		}
	}
	switch {
	case w.excess != "":
	case w.bytes > w.most:
		w.excess = fmt.Sprintf("has more than %d MiB", w.most>>20)
	case w.entries > w.mostEntries:
		w.excess = fmt.Sprintf("has more than %d files", w.mostEntries)
	}
}
