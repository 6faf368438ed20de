//go:build unix

package mac

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
)

const machineFile = "machine.json"

// Machine is what the Mac is, apart from what its own files say.
type Machine struct {
	// Version and Build of macOS.
	Version string `json:"version"`
	Build   string `json:"build"`
	// FileVault is on: there is no automatic login.
	FileVault bool `json:"fileVault,omitempty"`
	// Users have accounts. The first is the one that tests log in as.
	Users []User `json:"users"`
	// MaxBadPasswords is how many wrong passwords lock an account (likely; macOS leaves it to a policy). Default 5, -1: none.
	MaxBadPasswords int `json:"maxBadPasswords,omitempty"`
	// Interfaces of the network, with their addresses.
	Interfaces []Interface `json:"interfaces"`
	// ValidateDefinesTables makes `pfctl -n` find the table that is defined twice, too. Sources differ on whether it does.
	ValidateDefinesTables bool `json:"validateDefinesTables,omitempty"`
	// NoSession keeps a GUI session from ever coming up, even with the right password: a Mac without a display may
	// do that.
	NoSession bool `json:"noSession,omitempty"`
	// NoLoginAtBoot is a Mac without a display that ignores automatic login at boot, and heeds it when the login window is restarted.
	NoLoginAtBoot bool `json:"noLoginAtBoot,omitempty"`
	// LoginMillis is how long after the login window's start a session is there, or a wrong password sealed.
	LoginMillis int `json:"loginMillis,omitempty"`
	// PFEnabledAtBoot is not how macOS starts. A Mac whose firewall is on in System Settings starts with pf on (likely).
	PFEnabledAtBoot bool `json:"pfEnabledAtBoot,omitempty"`
}

// Interface of the network.
type Interface struct {
	Name      string         `json:"name"`
	Addresses []netip.Prefix `json:"addresses"`
}

// User of the Mac. The password is kept as a hash: who searches the root for it must find only what put it there.
type User struct {
	Name  string `json:"name"`
	UID   int    `json:"uid"`
	Admin bool   `json:"admin"`
	Salt  string `json:"salt"`
	Hash  string `json:"hash"`
}

// NewUser is an account with a password.
func NewUser(name string, uid int, admin bool, password string) User {
	salt := rand.Text()
	return User{Name: name, UID: uid, Admin: admin, Salt: salt, Hash: hashPassword(salt, password)}
}

func hashPassword(salt, password string) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + password))
	return hex.EncodeToString(sum[:])
}

func (u User) hasPassword(password string) bool {
	return subtle.ConstantTimeCompare([]byte(u.Hash), []byte(hashPassword(u.Salt, password))) == 1
}

// user finds an account; root is always one.
func (m Machine) user(name string) (User, bool) {
	if name == "root" {
		return User{Name: "root"}, true
	}
	for _, u := range m.Users {
		if u.Name == name {
			return u, true
		}
	}
	return User{}, false
}

func (m Machine) userByID(uid int) (User, bool) {
	if uid == 0 {
		return User{Name: "root"}, true
	}
	for _, u := range m.Users {
		if u.UID == uid {
			return u, true
		}
	}
	return User{}, false
}

// ownerName is who owns a file on the Mac. What belongs to the user of this machine, who is not root everywhere, belongs to root.
func (m Machine) ownerName(uid int) string {
	if u, known := m.userByID(uid); known {
		return u.Name
	}
	if uid == os.Getuid() {
		return "root"
	}
	return strconv.Itoa(uid)
}

func groupName(gid int) string {
	switch gid {
	case 0:
		return "wheel"
	case 20:
		return "staff"
	case 80:
		return "admin"
	}
	if gid == os.Getgid() {
		return "wheel"
	}
	return strconv.Itoa(gid)
}

// badPasswords counts wrong passwords per account, and locks.
type badPasswords struct {
	Counts map[string]int `json:"counts"`
}

const badPasswordsFile = "bad-passwords.json"

// authenticate checks a password and counts a wrong one. A locked account has no right one.
func (r Root) authenticate(m Machine, name, password string) (bool, error) {
	ok := false
	err := update(r, badPasswordsFile, func(bad *badPasswords) error {
		u, known := m.user(name)
		if bad.Counts == nil {
			bad.Counts = map[string]int{}
		}
		locked := m.MaxBadPasswords > 0 && bad.Counts[name] >= m.MaxBadPasswords
		ok = known && u.Hash != "" && !locked && u.hasPassword(password)
		switch {
		case ok:
			bad.Counts[name] = 0
		case !locked:
			bad.Counts[name]++
		}
		return nil
	})
	return ok, err
}

// BadPasswords is how many wrong passwords in a row were given for an account, by sudo and by the login window.
func (r Root) BadPasswords(name string) (int, error) {
	var bad badPasswords
	err := r.read(badPasswordsFile, &bad)
	return bad.Counts[name], err
}
