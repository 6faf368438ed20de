package machost

import (
	"context"
	"io"
	"io/fs"
)

// Host is the Mac that steps work on. Paths are absolute, as macOS has them, independent of the root prefix. Not safe for concurrent use:
// one apply at a time holds a host.
//
// A symbolic link in a path is followed only if it belongs to root and lies in a directory of root's: a link that another user has planted
// is a *LinkError.
type Host interface {
	// ReadFile returns a file's content. The error wraps fs.ErrNotExist when there is none.
	ReadFile(path string) ([]byte, error)
	// Open opens a file that is too large to be held. The error wraps fs.ErrNotExist when there is none.
	Open(path string) (File, error)
	// ReadDir returns the names in a directory, sorted. The error wraps fs.ErrNotExist when there is none.
	ReadDir(path string) ([]string, error)
	// Stat returns a file's mode and owner, of a symbolic link those of the link. The error wraps fs.ErrNotExist when there is none.
	Stat(path string) (FileInfo, error)
	// WriteFile replaces a file as a whole: written to a temporary file, synced, given mode and owner, renamed. Missing parent directories
	// are created (0755, root). When it fails, the former content is untouched and no temporary file is left.
	WriteFile(path string, content io.Reader, attributes Attributes) error
	// MakeDir creates a directory, and its missing parents (0755, root), and sets mode and owner, also of an existing one.
	MakeDir(path string, attributes Attributes) error
	// Symlink makes, or replaces by one rename, a symbolic link. Relative targets mean the same under every root.
	Symlink(target, path string) error
	// Rename renames a file or a directory. A file, or an empty directory, at the new path is replaced.
	Rename(from, to string) error
	// Remove removes a file, or a directory with its content. Removing a missing file is no error.
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
	Limit int // bytes of Stdout and of Stderr that are kept; default 64 KiB
}

// Result is what a program left. Cut reports that Stdout or Stderr is only the beginning of what it wrote.
type Result struct {
	Stdout, Stderr []byte
	Cut            bool
	ExitCode       int
}
