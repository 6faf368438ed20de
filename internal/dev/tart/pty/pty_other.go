//go:build unix && !linux && !darwin

package pty

import (
	"errors"
	"os"
)

func openController() (*os.File, string, error) {
	return nil, "", errors.New("pseudo-terminals are supported on Linux and macOS only")
}
