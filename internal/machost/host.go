package machost

import (
	"context"
	"io"
	"io/fs"
)

// Host is the Mac that steps work on. Paths are absolute, as macOS has them, whatever root they lie under. Not safe for
// concurrent use: one apply at a time holds a host.
type Host interface {
	// ReadFile returns a file's content. The error wraps fs.ErrNotExist when there is none.
	ReadFile(path string) ([]byte, error)
	// Stat returns a file's mode and owner, of a symbolic link those of the link. The error wraps fs.ErrNotExist when there is none.
	Stat(path string) (FileInfo, error)
	// WriteFile replaces a file as a whole: written beside, synced, given mode and owner, renamed. Missing folders above it
	// are made (0755, root). When it fails, the former content is untouched and nothing is left beside it.
	WriteFile(path string, content io.Reader, attributes Attributes) error
	// Remove removes a file, or a folder with all that is in it. Removing what is not there is no error.
	Remove(path string) error
	// Run runs a program to its end. A program that ran and failed is no error: its exit code is in the result. The error is the
	// context's, or says that the program could not be started.
	Run(ctx context.Context, command Command) (Result, error)
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
