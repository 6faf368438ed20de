package pty

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func openController() (*os.File, string, error) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, "", err
	}
	var number int
	err = control(f, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return os.NewSyscallError("unlocking the terminal", err)
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return os.NewSyscallError("asking for the terminal's number", err)
	})
	if err != nil {
		f.Close()
		return nil, "", err
	}
	return f, "/dev/pts/" + strconv.Itoa(number), nil
}
