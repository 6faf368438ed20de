//go:build unix

package pty

import (
	"os"

	"golang.org/x/sys/unix"
)

// Open makes a pseudo-terminal. What is written to terminal can be read from controller, and the reverse; a program that
// gets terminal as its input and output believes that somebody sits in front of it. The caller closes both. Reads of
// controller fail with EIO when the last user of terminal has gone, instead of reporting the end of the file.
func Open() (controller, terminal *os.File, err error) {
	controller, name, err := openController()
	if err != nil {
		return nil, nil, err
	}
	terminal, err = os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		controller.Close()
		return nil, nil, err
	}
	return controller, terminal, nil
}

// SetSize tells programs on the terminal how large it is, in characters.
func SetSize(f *os.File, columns, rows uint16) error {
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

// Size of the terminal in characters.
func Size(f *os.File) (columns, rows uint16, err error) {
	err = control(f, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			columns, rows = size.Col, size.Row
		}
		return err
	})
	return columns, rows, err
}

// control calls with the descriptor without taking the file from the runtime's poller, as File.Fd would.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}
