//go:build !production

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bullpen-ci/bullpen/internal/dev/load"
)

// loadPlot is the file of a load's plot. It is opened before the load, so that an hour of that does not end in a directory that does not
// exist; an existing file stays until there is something to draw. A nil one draws nothing.
type loadPlot struct {
	file       *os.File
	made, used bool
}

func openPlot(name string) (*loadPlot, error) {
	if name == "" {
		return nil, nil
	}
	_, missing := os.Stat(name)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("making the plot: %w", err)
	}
	return &loadPlot{file: file, made: errors.Is(missing, fs.ErrNotExist)}, nil
}

func (p *loadPlot) draw(result load.Result) error {
	if p == nil {
		return nil
	}
	p.used = true
	if info, err := p.file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := p.file.Truncate(0); err != nil {
			return fmt.Errorf("writing the plot: %w", err)
		}
	}
	if err := load.SVG(p.file, result); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// close leaves no empty file behind that was not there before.
func (p *loadPlot) close() error {
	if p == nil {
		return nil
	}
	superfluous := p.made && !p.used && p.untouched()
	if err := p.file.Close(); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	if superfluous {
		return os.Remove(p.file.Name())
	}
	return nil
}

// untouched reports whether the name is still that file's, and no other process has written to it.
func (p *loadPlot) untouched() bool {
	is, err := p.file.Stat()
	there, err2 := os.Lstat(p.file.Name())
	return err == nil && err2 == nil && os.SameFile(is, there) && is.Size() == 0
}
