//go:build unix

package tartcli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Share is a directory of the host that the guest sees.
type Share struct {
	// Name is unique among the VM's shares: a macOS guest sees /Volumes/My Shared Files/NAME.
	Name     string
	Path     string // absolute
	ReadOnly bool
}

// RunOptions say how a VM runs. It never has a window.
type RunOptions struct {
	Shares []Share
	// RootDiskOptions are --root-disk-opts, such as "caching=cached".
	RootDiskOptions string
}

// RunCommand returns the argument vector and the environment that run a VM; the caller starts it. It runs for as long as the VM does, and
// ExplainRun reads its output.
func (c *Client) RunCommand(name string, o RunOptions) (argv, env []string, err error) {
	operation := "running VM " + name
	if err := checkName(operation, name); err != nil {
		return nil, nil, err
	}
	argv = append(append([]string{}, c.opts.Command...), "run", name, "--no-graphics")
	seen := map[string]bool{}
	for _, s := range o.Shares {
		if s.Name == "" || seen[s.Name] || strings.ContainsAny(s.Name, ":/") || !filepath.IsAbs(s.Path) || strings.Contains(s.Path, ":") {
			return nil, nil, &Error{Operation: operation, Kind: KindUsage, Code: -1,
				Err: fmt.Errorf("directory %q cannot be shared as %q: names are unique, and neither has a colon", s.Path, s.Name)}
		}
		seen[s.Name] = true
		dir := s.Name + ":" + s.Path
		if s.ReadOnly {
			dir += ":ro"
		}
		argv = append(argv, "--dir", dir)
	}
	if o.RootDiskOptions != "" {
		argv = append(argv, "--root-disk-opts", o.RootDiskOptions)
	}
	return argv, append([]string{}, c.env...), nil
}

// maxRunLog is how much of a log is searched, in bytes, from its end.
const maxRunLog = 64 << 10

// ExplainRun says why a VM's `run` has ended, from its exit code and its log. With a code of 0 the kind is KindEnded unless the
// log knows better; it is an error in any case: a VM that was to run does not.
func (c *Client) ExplainRun(name string, code int, log string) *Error {
	failed := &Error{Operation: "running VM " + name, Code: code, Kind: KindEnded}
	text, err := tail(log)
	if err != nil {
		failed.Err = err
		return failed
	}
	failed.Message = c.message(text)
	if kind := classify(code, text); kind != KindUnknown {
		failed.Kind = kind
	} else if code != 0 {
		failed.Kind = KindUnknown
	}
	return failed
}

func tail(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	data := make([]byte, min(info.Size(), maxRunLog))
	n, err := f.ReadAt(data, info.Size()-int64(len(data)))
	if n < len(data) {
		return "", err
	}
	return string(data), nil
}

// Holder is the pid of the process that runs the VM, 0 if none does: it holds the lock of the VM's configuration, as soon as it
// has built that. fs.ErrNotExist when there is no such VM. Unlike other methods it does not call Tart.
func (c *Client) Holder(name string) (int, error) {
	if err := checkName("finding who runs VM "+name, name); err != nil {
		return 0, err
	}
	if !filepath.IsLocal(name) || strings.Contains(name, "/") {
		return 0, fmt.Errorf("%q is not the name of a VM", name)
	}
	f, err := os.OpenFile(filepath.Join(c.opts.Home, "vms", name, "config.json"), os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("finding who runs VM %s: %w", name, err)
	}
	defer f.Close()
	asked := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &asked); err != nil {
		return 0, fmt.Errorf("finding who runs VM %s: %w", name, err)
	}
	if asked.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(asked.Pid), nil
}
