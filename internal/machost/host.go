package machost

import (
	"context"
	"io"
	"io/fs"
)

// Host is the Mac that steps work on. Paths are absolute, as macOS has them, whatever root they lie under. Not safe for
// concurrent use: one apply at a time holds a host.
//
// A symbolic link in a path is followed only if it belongs to root and lies in a folder of root's: what another user has planted
// leads a step nowhere, and is a *LinkError.
type Host interface {
	// ReadFile returns a file's content. The error wraps fs.ErrNotExist when there is none.
	ReadFile(path string) ([]byte, error)
	// Open opens a file that is too large to be held. The error wraps fs.ErrNotExist when there is none.
	Open(path string) (File, error)
	// ReadDir returns the names in a folder, sorted. The error wraps fs.ErrNotExist when there is none.
	ReadDir(path string) ([]string, error)
	// Stat returns a file's mode and owner, of a symbolic link those of the link. The error wraps fs.ErrNotExist when there is none.
	Stat(path string) (FileInfo, error)
	// WriteFile replaces a file as a whole: written beside, synced, given mode and owner, renamed. Missing folders above it
	// are made (0755, root). When it fails, the former content is untouched and nothing is left beside it.
	WriteFile(path string, content io.Reader, attributes Attributes) error
	// MakeDir makes a folder, and those above it that are missing (0755, root), and gives it mode and owner, also if it is there.
	MakeDir(path string, attributes Attributes) error
	// Symlink makes, or replaces by one rename, a symbolic link. Relative targets mean the same under every root.
	Symlink(target, path string) error
	// Rename renames a file or a folder. A file, or an empty folder, at the new path is replaced.
	Rename(from, to string) error
	// Remove removes a file, or a folder with all that is in it. Removing what is not there is no error.
	Remove(path string) error
	// Run runs a program to its end. A program that ran and failed is no error: its exit code is in the result. The error is the
	// context's, or says that the program could not be started.
	Run(ctx context.Context, command Command) (Result, error)
}

// File is an open file of a host.
type File interface {
	io.ReadCloser
	io.ReaderAt
}

// Attributes of a file.
type Attributes struct {
	Mode     fs.FileMode // permission bits
	UID, GID int
}

// FileInfo is what Stat tells.
type FileInfo struct {
	Attributes
	IsDir  bool
	Target string // of a symbolic link
	Size   int64
}

// Command is a program to run, without a shell. No argument may hold a secret (HOST-6): Stdin may.
type Command struct {
	Path  string // absolute
	Args  []string
	Env   []string // added to a small fixed environment
	Stdin []byte
}

// Result is what a program left. Stdout and Stderr are cut at 64 KiB each.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int
}
