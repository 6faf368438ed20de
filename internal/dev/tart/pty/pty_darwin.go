package pty

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nameBytes is how many bytes TIOCPTYGNAME writes.
const nameBytes = 128

func openController() (*os.File, string, error) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, "", err
	}
	name := make([]byte, nameBytes)
	err = control(f, func(fd int) error {
		for _, request := range []uint{unix.TIOCPTYGRANT, unix.TIOCPTYUNLK} {
			if err := unix.IoctlSetInt(fd, request, 0); err != nil {
				return os.NewSyscallError("unlocking the terminal", err)
			}
		}
		//nolint:gosec // the kernel writes the name there, and no wrapper of it is exported
		_, _, number := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(unix.TIOCPTYGNAME), uintptr(unsafe.Pointer(&name[0])))
		if number != 0 {
			return os.NewSyscallError("asking for the terminal's name", number)
		}
		return nil
	})
	if err != nil {
		f.Close()
		return nil, "", err
	}
	end := bytes.IndexByte(name, 0)
	if end < 0 {
		end = len(name)
	}
	return f, string(name[:end]), nil
}
