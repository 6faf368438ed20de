//go:build unix

package mac

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

func runSwVers(_ context.Context, c *call) error {
	values := []struct{ flag, label, value string }{
		{"-productName", "ProductName", "macOS"}, {"-productVersion", "ProductVersion", c.config.Version}, {"-buildVersion", "BuildVersion", c.config.Build},
	}
	if len(c.Args) == 0 {
		for _, v := range values {
			fmt.Fprintf(c.Stdout, "%s:\t\t%s\n", v.label, v.value)
		}
		return nil
	}
	for _, v := range values {
		if strings.TrimLeft(c.Args[0], "-") == v.flag[1:] {
			fmt.Fprintln(c.Stdout, v.value)
			return nil
		}
	}
	return failed(1, "Usage: sw_vers [--help|--productName|--productVersion|--productVersionExtra|--buildVersion]")
}

func runUname(_ context.Context, c *call) error {
	var h host
	if err := c.root.read(hostFile, &h); err != nil {
		return err
	}
	flags := strings.Join(c.Args, "")
	if flags == "" {
		flags = "-s"
	}
	if strings.Contains(flags, "a") {
		flags = "-snrvm"
	}
	var words []string
	for _, v := range []struct{ flag, value string }{
		{"s", "Darwin"}, {"n", h.hostname()}, {"r", "24.6.0"}, {"v", "Darwin Kernel Version 24.6.0: root:xnu-11417.140.69~1/RELEASE_ARM64_T6000"}, {"m", "arm64"}, {"p", "arm"},
	} {
		if strings.Contains(flags, v.flag) {
			words = append(words, v.value)
		}
	}
	fmt.Fprintln(c.Stdout, strings.Join(words, " "))
	return nil
}

// hostname is what the kernel says: HostName when it is set, else the name on the local network.
func (h host) hostname() string {
	if h.Names["HostName"] != "" {
		return h.Names["HostName"]
	}
	return h.Names["LocalHostName"] + ".local"
}

func runHostname(_ context.Context, c *call) error {
	return update(c.root, hostFile, func(h *host) error {
		if len(c.Args) > 0 && !strings.HasPrefix(c.Args[0], "-") {
			if err := c.needsRoot(1, "hostname: sethostname: Operation not permitted"); err != nil {
				return err
			}
			h.Names["HostName"] = c.Args[0] // a real one lasts until the next boot only
			return nil
		}
		name := h.hostname()
		if slices.Contains(c.Args, "-s") {
			name, _, _ = strings.Cut(name, ".")
		}
		fmt.Fprintln(c.Stdout, name)
		return nil
	})
}

var localHostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`) })

func runScutil(_ context.Context, c *call) error {
	if len(c.Args) < 2 || len(c.Args) > 3 || c.Args[0] != "--get" && c.Args[0] != "--set" {
		return failed(64, "usage: scutil --get pref\n   or: scutil --set pref [newval]")
	}
	pref := c.Args[1]
	if !slices.Contains([]string{"ComputerName", "LocalHostName", "HostName"}, pref) {
		return failed(64, "SCPreferences: unknown preference %q", pref) // likely
	}
	return update(c.root, hostFile, func(h *host) error {
		if c.Args[0] == "--get" {
			if h.Names[pref] == "" {
				return failed(1, "%s: not set", pref)
			}
			fmt.Fprintln(c.Stdout, h.Names[pref])
			return nil
		}
		if err := c.needsRoot(1, "This preference must be set by the root user."); err != nil { // likely
			return err
		}
		value := ""
		if len(c.Args) == 3 {
			value = c.Args[2]
		} else {
			line, _ := c.readLine() // it asks, and takes the end for nothing
			value = line
		}
		if pref == "LocalHostName" && !localHostName().MatchString(value) {
			return failed(1, "SCPreferencesSetLocalHostName() failed: Invalid argument") // letters, digits and hyphens only
		}
		h.Names[pref] = value
		return nil
	})
}

func runSysctl(_ context.Context, c *call) error {
	values := map[string]string{
		"hw.model": "Mac16,10", "hw.ncpu": "10", "hw.physicalcpu": "10", "hw.logicalcpu": "10", "hw.memsize": "17179869184", "kern.ostype": "Darwin",
		"kern.osrelease": "24.6.0", "kern.osproductversion": c.config.Version, "kern.osversion": c.config.Build, "hw.optional.arm64": "1", "machdep.cpu.brand_string": "Apple M4",
		"kern.boottime": "{ sec = 1760000000, usec = 0 } Thu Oct  9 08:53:20 2025", "net.inet.ip.forwarding": "0", "net.inet6.ip6.forwarding": "0", "kern.hv_support": "1",
		"kern.maxproc": "4000", "kern.maxfiles": "245760", "kern.maxprocperuid": "2666", "sysctl.proc_translated": "0", "hw.pagesize": "16384",
	}
	nameless := slices.Contains(c.Args, "-n")
	return update(c.root, hostFile, func(h *host) error {
		maps.Copy(values, h.Sysctl)
		values["kern.hostname"] = h.hostname()
		for _, arg := range c.Args {
			if strings.HasPrefix(arg, "-") {
				continue
			}
			name, value, set := strings.Cut(arg, "=")
			old, known := values[name]
			if !known {
				return failed(1, "sysctl: unknown oid '%s'", name)
			}
			switch {
			case set:
				if err := c.needsRoot(1, "sysctl: "+name+": Operation not permitted"); err != nil {
					return err
				}
				if h.Sysctl == nil {
					h.Sysctl = map[string]string{}
				}
				h.Sysctl[name] = value
				fmt.Fprintf(c.Stdout, "%s: %s -> %s\n", name, old, value)
			case nameless:
				fmt.Fprintln(c.Stdout, old)
			default:
				fmt.Fprintf(c.Stdout, "%s: %s\n", name, old)
			}
		}
		return nil
	})
}

func runFdesetup(_ context.Context, c *call) error {
	if len(c.Args) != 1 || c.Args[0] != "status" && c.Args[0] != "isactive" {
		return failed(11, "fdesetup: the model knows status and isactive only")
	}
	if c.Args[0] == "isactive" {
		fmt.Fprintln(c.Stdout, c.config.FileVault)
		if c.config.FileVault {
			return nil
		}
		return exitCode(1)
	}
	if c.config.FileVault {
		fmt.Fprintln(c.Stdout, "FileVault is On.")
	} else {
		fmt.Fprintln(c.Stdout, "FileVault is Off.")
	}
	return nil
}

func runIfconfig(_ context.Context, c *call) error {
	if slices.Contains(c.Args, "-l") {
		var all []string
		for _, i := range c.config.Interfaces {
			all = append(all, i.Name)
		}
		fmt.Fprintln(c.Stdout, strings.Join(all, " "))
		return nil
	}
	found := false
	for _, i := range c.config.Interfaces {
		if len(c.Args) > 0 && c.Args[0] != "-a" && c.Args[0] != i.Name {
			continue
		}
		found = true
		fmt.Fprintf(c.Stdout, "%s: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n", i.Name)
		for _, a := range i.Addresses {
			if a.Addr().Is4() {
				fmt.Fprintf(c.Stdout, "\tinet %s netmask 0x%08x broadcast %s\n", a.Addr(), uint32(0xffffffff)<<(32-a.Bits()), broadcast(a))
			} else {
				fmt.Fprintf(c.Stdout, "\tinet6 %s prefixlen %d\n", a.Addr(), a.Bits())
			}
		}
		fmt.Fprintln(c.Stdout, "\tstatus: active")
	}
	if !found {
		return failed(1, "ifconfig: interface %s does not exist", c.Args[0])
	}
	return nil
}

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

func runIoreg(_ context.Context, c *call) error {
	var h host
	if err := c.root.read(hostFile, &h); err != nil {
		return err
	}
	fmt.Fprintf(c.Stdout, "+-o IOPlatformExpertDevice\n    {\n      \"IOPlatformSerialNumber\" = %q\n      \"IOPlatformUUID\" = %q\n    }\n", h.Serial, h.UUID)
	return nil
}

func runSystemProfiler(_ context.Context, c *call) error {
	var h host
	if err := c.root.read(hostFile, &h); err != nil {
		return err
	}
	fmt.Fprintf(c.Stdout, "Hardware:\n\n    Hardware Overview:\n\n      Model Name: Mac mini\n      Chip: Apple M4\n      Memory: 16 GB\n      Serial Number (system): %s\n      Hardware UUID: %s\n", h.Serial, h.UUID)
	return nil
}

func runID(_ context.Context, c *call) error {
	name, flags := c.user, ""
	for _, arg := range c.Args {
		if strings.HasPrefix(arg, "-") {
			flags += arg[1:]
		} else {
			name = arg
		}
	}
	u, known := c.config.user(name)
	if uid, err := strconv.Atoi(name); !known && err == nil {
		u, known = c.config.userByID(uid)
	}
	if !known {
		return failed(1, "id: %s: no such user", name)
	}
	gid, group := 20, "staff"
	if u.UID == 0 {
		gid, group = 0, "wheel"
	}
	named := strings.Contains(flags, "n")
	switch {
	case strings.Contains(flags, "u") && named:
		fmt.Fprintln(c.Stdout, u.Name)
	case strings.Contains(flags, "u"):
		fmt.Fprintln(c.Stdout, u.UID)
	case strings.Contains(flags, "g") && named:
		fmt.Fprintln(c.Stdout, group)
	case strings.Contains(flags, "g"):
		fmt.Fprintln(c.Stdout, gid)
	case strings.Contains(flags, "G"):
		groups := group
		if u.Admin {
			groups += " admin"
		}
		fmt.Fprintln(c.Stdout, groups)
	default:
		fmt.Fprintf(c.Stdout, "uid=%d(%s) gid=%d(%s) groups=%d(%s)", u.UID, u.Name, gid, group, gid, group)
		if u.Admin {
			fmt.Fprint(c.Stdout, ",80(admin)")
		}
		fmt.Fprintln(c.Stdout)
	}
	return nil
}

func runWhoami(_ context.Context, c *call) error {
	fmt.Fprintln(c.Stdout, c.user)
	return nil
}

// runDscl knows how to read an account's attributes, and how to check a password.
func runDscl(_ context.Context, c *call) error {
	args := c.Args
	if len(args) > 0 && (args[0] == "." || args[0] == "/Local/Default") {
		args = args[1:]
	}
	if len(args) == 0 {
		return failed(1, "Cannot open interactive session: the model has none") // likely without effect
	}
	verb := strings.TrimLeft(args[0], "-")
	switch {
	case verb == "list" && len(args) >= 2 && args[1] == "/Users":
		for _, u := range append([]User{{Name: "root"}}, c.config.Users...) {
			if len(args) > 2 && args[2] == "UniqueID" {
				fmt.Fprintf(c.Stdout, "%-24s%d\n", u.Name, u.UID)
			} else {
				fmt.Fprintln(c.Stdout, u.Name)
			}
		}
		return nil
	case verb == "read" && len(args) >= 2 && strings.HasPrefix(args[1], "/Users/"):
		u, known := c.config.user(strings.TrimPrefix(args[1], "/Users/"))
		if !known {
			return failed(56, "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)")
		}
		return c.readAccount(u, args[2:])
	case verb == "authonly" && len(args) == 3:
		ok, err := c.root.authenticate(c.config, args[1], args[2])
		if err == nil && !ok {
			err = failed(1, "Authentication for node /Local/Default failed. (-14090, eDSAuthFailed)\n<dscl_cmd> DS Error: -14090 (eDSAuthFailed)")
		}
		return err
	}
	return failed(1, "the model's dscl knows read, list and authonly of /Users")
}

func (c *call) readAccount(u User, wanted []string) error {
	home, gid := "/Users/"+u.Name, 20
	if u.UID == 0 {
		home, gid = "/var/root", 0
	}
	values := [][2]string{
		{"NFSHomeDirectory", home}, {"PrimaryGroupID", strconv.Itoa(gid)}, {"RecordName", u.Name}, {"UniqueID", strconv.Itoa(u.UID)}, {"UserShell", "/bin/zsh"},
	}
	for _, v := range values {
		if len(wanted) == 0 || slices.Contains(wanted, v[0]) {
			fmt.Fprintf(c.Stdout, "%s: %s\n", v[0], v[1])
		}
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(values, func(v [2]string) bool { return v[0] == w }) {
			fmt.Fprintf(c.Stderr, "No such key: %s\n", w)
		}
	}
	return nil
}

// runReboot only says that it was asked: who drives the model boots it again.
func runReboot(_ context.Context, c *call) error {
	if err := c.needsRoot(1, c.name+": Operation not permitted"); err != nil {
		return err
	}
	return os.WriteFile(c.root.state("reboot-wanted"), nil, 0o600)
}
