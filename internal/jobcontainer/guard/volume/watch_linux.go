package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// WantPatience is how long a guard waits for the directory of its container. The response that names the container may still be on its way: the
// courier with it starts after another image was pulled if the first courier was interrupted. It is longer than a hook waits for a response
// (courier.Wait).
const WantPatience = 4 * time.Minute

// wantEvery is how often it looks, for a few seconds; then lateEvery.
const (
	wantEvery = 10 * time.Millisecond
	lateEvery = 200 * time.Millisecond
)

// ErrUnwanted is a container that was withdrawn, or that nobody has asked for.
var ErrUnwanted = errors.New("the container is not wanted any more")

// ErrRunnerEnded is a guard that starts after the runner's end.
var ErrRunnerEnded = errors.New("the runner has ended")

// AwaitWanted returns nil if the container is wanted, ErrUnwanted if it was withdrawn, or if its directory does not appear within patience.
// The end of the runner is ErrRunnerEnded.
func AwaitWanted(ctx context.Context, dir, name string, patience time.Duration, runnerEnded <-chan struct{}) error {
	if err := checkName(name); err != nil {
		return err
	}
	look := time.NewTicker(wantEvery)
	defer look.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for looks := 0; ; looks++ {
		if looks == 500 {
			look.Reset(lateEvery)
		}
		own, err := os.Stat(filepath.Join(dir, name))
		if err == nil && own.Mode().Perm() != 0o700 { // Want has finished it, or Withdraw has made it
			if _, err := os.Lstat(filepath.Join(dir, name, wantedFile)); err != nil {
				return ErrUnwanted
			}
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for the directory of container %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-runnerEnded:
			return ErrRunnerEnded
		case <-limit.C:
			return ErrUnwanted
		case <-look.C:
		}
	}
}

// Watch closes the channel when the runner has ended: its supervisor's lock is free, or its socket or the process that listened on it is
// gone (JOB-2). It returns ErrRunnerEnded if there is no supervisor. Call it before a process of the job runs in this container: that is
// what makes the socket's process one that ends with the runner. Its goroutines end with this process.
func Watch(dir string) (runnerEnded <-chan struct{}, err error) {
	lock, err := jobcontainer.OpenRegular(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("%w: opening its lock: %w", ErrRunnerEnded, err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close() // with it the lock: a supervisor that starts now must get it
		}
	}()
	err = flock(lock, syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return nil, fmt.Errorf("%w: its lock is free", ErrRunnerEnded)
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("checking the runner's lock: %w", err)
	}
	socket, process, err := connect(filepath.Join(dir, socketFile))
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	go func() { // waits in the kernel: a job that takes the lock itself can keep it there, and the socket shows the end
		_ = flock(lock, syscall.LOCK_SH)
		end()
	}()
	go func() {
		awaitHangUp(socket, process)
		end()
	}()
	return ended, nil
}

// connect returns the connection to whoever listens, and a pidfd of that process; -1 where the kernel has none (before 6.5).
func connect(path string) (socket, process int, err error) {
	socket, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("connecting to the runner: %w", err)
	}
	if err := unix.Connect(socket, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(socket)
		return -1, -1, fmt.Errorf("%w: connecting to its socket: %w", ErrRunnerEnded, err)
	}
	process, err = unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		return socket, process, nil
	case errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return socket, -1, nil
	}
	_ = unix.Close(socket)
	return -1, -1, fmt.Errorf("%w: the process of its socket is gone: %w", ErrRunnerEnded, err)
}

// awaitHangUp returns when the connection ends, or the process that listened. poll ignores a negative descriptor.
func awaitHangUp(socket, process int) {
	watched := []unix.PollFd{
		{Fd: int32(socket), Events: unix.POLLIN | unix.POLLRDHUP}, //nolint:gosec // file descriptors
		{Fd: int32(process), Events: unix.POLLIN},                 //nolint:gosec // as above
	}
	for {
		n, err := unix.Poll(watched, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
