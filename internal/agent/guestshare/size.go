package guestshare

import (
	"fmt"
	"os"
	"path"
	"syscall"
)

// The maximum size of the status share (TEN-6). Nothing bounds a guest's writes to a shared directory, so the host measures it. The largest
// file of an honest guest is the log of its command.
const (
	MaxStatus        = 256 << 20 // bytes
	maxStatusEntries = 4096      // files and directories
)

const blockSize = 512 // of Stat_t.Blocks, independent of the file system's own

// Excess says what of a share is more than it may hold: most bytes of this machine's disk, and a few thousand files. Empty
// when nothing is, and when it cannot be read. It follows no link, and its cost does not depend on what the guest has
// written there.
func Excess(dir string, most int64) string { return excess(dir, most, maxStatusEntries) }

func excess(dir string, most int64, mostEntries int) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }()
	w := weighing{root: root, most: most, mostEntries: mostEntries, left: []string{"."}}
	for len(w.left) > 0 && w.excess == "" {
		next := w.left[len(w.left)-1]
		w.left = w.left[:len(w.left)-1]
		w.dir(next)
	}
	return w.excess
}

// weighing is one measurement of a share.
type weighing struct {
	root        *os.Root
	most        int64
	mostEntries int
	bytes       int64
	entries     int
	left        []string // directories that are still to be read
	excess      string
}

// dir adds what is in one directory. The guest may put something else in its place at any time; then it is left
// out.
func (w *weighing) dir(name string) {
	file, err := w.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	for w.excess == "" {
		names, err := file.Readdirnames(256) // a guest may have made millions
		for _, entry := range names {
			w.add(path.Join(name, entry))
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func (w *weighing) add(name string) {
	w.entries++
	if info, err := w.root.Lstat(name); err == nil {
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
		w.excess = fmt.Sprintf("more than %d MiB", w.most>>20)
	case w.entries > w.mostEntries:
		w.excess = fmt.Sprintf("more than %d files", w.mostEntries)
	}
}
