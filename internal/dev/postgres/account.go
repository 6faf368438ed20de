package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as. PostgreSQL refuses to run as root, so root lends it an
// unprivileged user; other users run it as themselves.
type account struct {
	name    string
	uid     int
	gid     int
	foreign bool // not the user of this process
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		entry, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(entry.Uid)
		gid, err2 := strconv.Atoi(entry.Gid)
		if errors.Join(err1, err2) != nil || uid == 0 {
			continue
		}
		return account{name: name, uid: uid, gid: gid, foreign: true}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody " +
		"to run it as: create one, or run this command as an ordinary user")
}

// credential is how a child becomes that account; nil when it already is.
func (a account) credential() *syscall.Credential {
	if !a.foreign {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{}}
}

// own makes a private directory of that account.
func (a account) own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating %s: %w", dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("making %s private: %w", dir, err)
	}
	if !a.foreign {
		return nil
	}
	if err := os.Chown(dir, a.uid, a.gid); err != nil {
		return fmt.Errorf("giving %s to the user %s: %w", dir, a.name, err)
	}
	return nil
}

// CheckDir says why a server could not use a directory, before anything is created; nil: it can. The directory need not exist.
func CheckDir(dir string) error {
	who, err := serverAccount()
	if err != nil {
		return err
	}
	return who.canEnter(dir)
}

// canEnter checks that every directory above dir may be passed through by that account. Root's own directories often may
// not, and PostgreSQL's complaint about it would name a path and no remedy.
func (a account) canEnter(dir string) error {
	if !a.foreign {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent) {
			continue // it is going to be created so that others can enter it
		}
		if err != nil {
			return fmt.Errorf("inspecting %s: %w", parent, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		needed := os.FileMode(0o001)
		switch {
		case int(stat.Uid) == a.uid:
			needed = 0o100
		case int(stat.Gid) == a.gid:
			needed = 0o010
		}
		if info.Mode().Perm()&needed == 0 {
			return fmt.Errorf("PostgreSQL runs as user %s, which cannot access %s: choose a state "+
				"directory elsewhere (for example under /var/lib), or run `chmod o+x %s`", a.name, parent, parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}
