//go:build unix

package mac

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
)

// Options say what Mac is made.
type Options struct {
	// Executable is the model's program: test/kit/fakemac, or what calls Main in the same way.
	Executable string
	// User is the account that is there from the start, uid 501, an administrator. Default "ci".
	User string
	// Password is that user's. Default "correct horse".
	Password string
	// Machine says the rest. What it leaves out is filled in.
	Machine Machine
	// Hostname at the start. Default "Mac-mini".
	Hostname string
	// Dir is where the mactest package makes it. Install has an argument of its own.
	Dir string
	// StateDir is where the model keeps what no Mac has. Default: in the root, where a full disk would hinder it, too.
	StateDir string
	// Files are written over those that macOS ships, by path on the Mac.
	Files map[string]File
}

// File of the Mac.
type File struct {
	Content  []byte
	Mode     os.FileMode // default 0644
	UID, GID int         // set only where this machine's user may
}

// internalName is the program's name for what no Mac has.
const internalName = "devmac"

// DefaultPassword is that of the user where no other is given.
const DefaultPassword = "correct horse"

// PFConf is /etc/pf.conf as macOS ships it.
const PFConf = `#
# Default PF configuration file.
#
# This file contains the main ruleset, which gets automatically loaded
# at startup. PF will not be automatically enabled, however.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
`

// pfAnchorApple is what that loads (likely: the names are known, the rest of the file is comments).
const pfAnchorApple = `anchor "200.AirDrop/*"
anchor "250.ApplicationFirewall/*"
`

const sudoersText = `Defaults	env_reset
Defaults	env_keep += "LANG LC_ALL SSH_AUTH_SOCK TZ DISPLAY EDITOR VISUAL HOME MAIL"
root		ALL = (ALL) ALL
%admin		ALL = (ALL) ALL
#includedir /private/etc/sudoers.d
`

func (o *Options) fill() {
	if o.User == "" {
		o.User = "ci"
	}
	if o.Password == "" {
		o.Password = DefaultPassword
	}
	if o.Hostname == "" {
		o.Hostname = "Mac-mini"
	}
	m := &o.Machine
	if m.Version == "" {
		m.Version, m.Build = "15.6", "24G84"
	}
	if m.MaxBadPasswords == 0 {
		m.MaxBadPasswords = 5
	}
	m.Users = append([]User{NewUser(o.User, 501, true, o.Password)}, m.Users...)
	if m.Interfaces == nil {
		m.Interfaces = []Interface{
			{Name: "lo0", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::1/64")}},
			{Name: "en0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.21/24"), netip.MustParsePrefix("fe80::1c21/64"), netip.MustParsePrefix("2001:db8::21/64")}},
			{Name: "bridge100", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.64.1/24"), netip.MustParsePrefix("fe80::b100/64"), netip.MustParsePrefix("fd00:64::1/64")}},
		}
	}
}

// Install makes a Mac in a directory that is empty or not there yet. Nothing runs until Boot.
func Install(dir string, o Options) (Root, error) {
	o.fill()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // executables find themselves where they really lie
		return "", err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return "", errors.Join(err, fmt.Errorf("%s is not empty: a model Mac needs a directory of its own", dir))
	}
	root := Root(dir)
	for _, make := range []func(Root, Options) error{makeDirectories, makeFiles, installCommands} {
		if err := make(root, o); err != nil {
			return "", fmt.Errorf("making a model Mac in %s: %w", dir, err)
		}
	}
	return root, errors.Join(root.write(machineFile, o.Machine), root.write(hostFile, newHost(o)))
}

func makeDirectories(root Root, o Options) error {
	home := "/Users/" + o.User
	if o.StateDir != "" {
		if err := os.Symlink(o.StateDir, root.Path("/"+stateDirectory)); err != nil {
			return err
		}
	}
	for _, dir := range []string{
		"/" + stateDirectory, "/Applications", "/Library/LaunchDaemons", "/Library/LaunchAgents", "/Library/Logs", "/Library/Preferences/SystemConfiguration",
		"/System/Library/LaunchDaemons", "/System/Library/CoreServices", "/Users/Shared", home + "/Library/Preferences/ByHost", home + "/Library/LaunchAgents",
		"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/local/bin", "/opt", "/dev",
		"/private/etc/pf.anchors", "/private/etc/newsyslog.d", "/private/etc/sudoers.d", "/private/etc/ssh/sshd_config.d",
		"/private/var/db", "/private/var/log", "/private/var/run", "/private/var/root", "/private/var/tmp", "/private/tmp",
	} {
		if err := os.MkdirAll(root.Path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"etc", "var", "tmp"} {
		if err := os.Symlink("private/"+name, root.Path("/"+name)); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		return filepath.WalkDir(root.Path(home), func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, 501, 20)
		})
	}
	return nil
}

func makeFiles(root Root, o Options) error {
	files := map[string]File{
		"/etc/pf.conf":              {Content: []byte(PFConf)},
		"/etc/pf.anchors/com.apple": {Content: []byte(pfAnchorApple)},
		"/etc/sudoers":              {Content: []byte(sudoersText), Mode: 0o440},
		"/etc/hosts":                {Content: []byte("127.0.0.1\tlocalhost\n255.255.255.255\tbroadcasthost\n::1\tlocalhost\n")},
		"/etc/newsyslog.conf":       {Content: []byte("# logfilename          [owner:group]    mode count size when  flags [/pid_file] [sig_num]\n")},
		"/dev/console":              {},
		"/System/Library/CoreServices/SystemVersion.plist": {Content: fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict><key>ProductName</key><string>macOS</string><key>ProductVersion</key><string>%s</string><key>ProductBuildVersion</key><string>%s</string></dict></plist>
`, o.Machine.Version, o.Machine.Build)},
	}
	for path, file := range o.Files {
		files[path] = file
	}
	for path, file := range files {
		if err := root.WriteFile(path, file); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes a file of the Mac, with the directories above it, as root would.
func (r Root) WriteFile(path string, file File) error {
	if file.Mode == 0 {
		file.Mode = 0o644
	}
	real := r.Path(path)
	if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
		return err
	}
	if err := r.replace(real, file.Content, file.Mode); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		return os.Lchown(real, file.UID, file.GID)
	}
	return nil
}

// installCommands puts the executable in place of each command. They are hard links, for a symbolic one would not say
// by which name it was called.
func installCommands(root Root, o Options) error {
	first := root.Path("/usr/libexec/" + internalName)
	if err := os.Link(o.Executable, first); err != nil {
		if err := copyFile(o.Executable, first); err != nil { // another file system
			return err
		}
	}
	for _, path := range slices.Sorted(commandPaths) {
		if err := os.Link(first, root.Path(path)); err != nil {
			return err
		}
	}
	// What every system has, and depends on no path of the Mac's, is this machine's.
	for _, path := range []string{
		"/bin/sh", "/bin/cat", "/bin/chmod", "/bin/cp", "/bin/date", "/bin/echo", "/bin/ls", "/bin/mkdir", "/bin/mv", "/bin/rm", "/bin/sleep", "/bin/test",
		"/usr/bin/env", "/usr/bin/false", "/usr/bin/grep", "/usr/bin/shasum", "/usr/bin/true",
	} {
		if err := os.Symlink(path, root.Path(path)); err != nil {
			return err
		}
	}
	return nil
}

// InstallTart puts the fake of Tart where an administrator would have, or in a directory to make an archive of.
func (r Root) InstallTart(path string) error {
	to := r.Path(path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Link(r.Path("/usr/libexec/"+internalName), to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// host is what the running system knows, which a reboot may forget.
type host struct {
	// Names of scutil, which survive a reboot.
	Names map[string]string `json:"names"`
	// Power are the settings of pmset.
	Power map[string]string `json:"power"`
	// System are the settings of systemsetup.
	System map[string]string `json:"system"`
	// Sysctl are the kernel's variables that have been set.
	Sysctl map[string]string `json:"sysctl"`
	// ScreenLock is sysadminctl's, per user: "off", or after how many seconds.
	ScreenLock map[string]string `json:"screenLock"`
	// Serial and UUID of the hardware.
	Serial string `json:"serial"`
	UUID   string `json:"uuid"`
}

const hostFile = "host.json"

func newHost(o Options) host {
	return host{
		Names:      map[string]string{"ComputerName": o.Hostname, "LocalHostName": o.Hostname},
		Power:      map[string]string{"sleep": "1", "disksleep": "10", "displaysleep": "10", "womp": "0", "autorestart": "0", "powernap": "1", "networkoversleep": "0", "standby": "0", "ttyskeepawake": "1", "tcpkeepalive": "1", "lowpowermode": "0", "SleepDisabled": "0"},
		System:     map[string]string{"remotelogin": "On", "restartfreeze": "Off", "networktime": "On", "computersleep": "1", "timezone": "GMT"},
		Sysctl:     map[string]string{},
		ScreenLock: map[string]string{o.User: "300"},
		Serial:     "M" + rand.Text()[:9], UUID: "00000000-0000-1000-8000-" + rand.Text()[:12],
	}
}
