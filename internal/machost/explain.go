package machost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// ProgramError reports that a program could not be started.
type ProgramError struct {
	Path string
	Err  error
}

// Error names the program.
func (e *ProgramError) Error() string { return fmt.Sprintf("starting %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *ProgramError) Unwrap() error { return e.Err }

// LinkError reports that a path leads through a symbolic link that another user than root could have planted.
type LinkError struct{ Path, Link string }

// Error names the link.
func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a symbolic link that does not belong to root, and is not followed", e.Link)
}

// explain makes a *StepError of whatever a step has returned.
func explain(step string, err error) *StepError {
	failure := &StepError{Step: step, Err: err}
	var stepError *StepError
	if errors.As(err, &stepError) {
		failure.File, failure.Remedy, failure.Err = stepError.File, stepError.Remedy, stepError.Err
		// Only the wrapping text is kept; step, file and remedy are printed once.
		if text := strings.Replace(err.Error(), stepError.Error(), stepError.Err.Error(), 1); text != stepError.Err.Error() {
			failure.Err = &reworded{text, err}
		}
	}
	if failure.File == "" {
		failure.File = fileOf(err)
	}
	// A step's advice is about a program that failed, not about one that was interrupted.
	if failure.Remedy == "" || errors.Is(err, context.Canceled) {
		failure.Remedy = remedyOf(err)
	}
	return failure
}

// reworded is an error with other words.
type reworded struct {
	text   string
	reason error
}

// Error is the other words.
func (e *reworded) Error() string { return e.text }

// Unwrap returns the error.
func (e *reworded) Unwrap() error { return e.reason }

func fileOf(err error) string {
	var (
		path    *fs.PathError
		program *ProgramError
		link    *LinkError
	)
	switch {
	case errors.As(err, &program):
		return program.Path
	case errors.As(err, &link):
		return link.Path
	case errors.As(err, &path):
		return path.Path
	}
	return ""
}

func remedyOf(err error) string {
	var (
		program *ProgramError
		link    *LinkError
	)
	switch {
	case errors.As(err, &program) && errors.Is(err, fs.ErrNotExist):
		return "It is part of macOS 14 and later: check the version of macOS, and apply again."
	case errors.As(err, &link):
		return "Find out what created the link, remove it, and apply again."
	case errors.Is(err, syscall.EROFS):
		return "The file system is read-only: find the cause with `diskutil info` and `log show`, repair it or restart the Mac, and apply again."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "The disk is full: make room (`df -h`, `tart list`), and apply again."
	case errors.Is(err, fs.ErrPermission):
		return "Apply as root (sudo), and check whether the file is locked (`ls -lO`) or the directory protected by macOS."
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return "Another kind of file exists there: move it, and apply again."
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "It was stopped between two changes: apply again to continue."
	}
	return "Apply again; if it recurs, see the program's message above."
}
