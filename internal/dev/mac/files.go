//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// runStat is BSD's: -f FORMAT with %Su %Sg %Lp %Mp%Lp %z %N %HT %Sp %m %u %g, and -L.
func runStat(_ context.Context, c *call) error {
	format, follow := "%Sp %l %Su %Sg %z %N", false
	args := c.Args
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch {
		case args[0] == "-f" && len(args) > 1:
			format, args = args[1], args[1:]
		case args[0] == "-L":
			follow = true
		case args[0] == "-Lf" && len(args) > 1:
			format, args, follow = args[1], args[1:], true
		default:
			return failed(1, "stat: illegal option -- %s\nusage: stat [-FLnq] [-f format | -l | -r | -s | -x] [-t timefmt] [file|handle ...]", strings.TrimLeft(args[0], "-"))
		}
		args = args[1:]
	}
	var problems error
	for _, name := range args {
		info, err := os.Lstat(c.root.Path(name))
		if err == nil && follow {
			info, err = os.Stat(c.root.Path(name))
		}
		if err != nil {
			problems = failed(1, "stat: %s: stat: %s", name, reason(err))
			continue
		}
		text, err := c.formatStat(format, name, info)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.Stdout, text)
	}
	return problems
}

// reason is the system's word for an error, as C programs of the Mac print it.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		text := errno.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return err.Error()
}

func (c *call) formatStat(format, name string, info fs.FileInfo) (string, error) {
	raw, _ := info.Sys().(*syscall.Stat_t)
	owner := c.config.ownerName(int(raw.Uid))
	if c.root.Logical(c.root.Path(name)) == "/dev/console" {
		state, err := c.root.session()
		if err != nil {
			return "", err
		}
		owner = state.consoleUser()
	}
	u, _ := c.config.user(owner)
	mode := info.Mode()
	kind := "Regular File"
	switch {
	case mode.IsDir():
		kind = "Directory"
	case mode&fs.ModeSymlink != 0:
		kind = "Symbolic Link"
	}
	special := 0
	for i, bit := range []fs.FileMode{fs.ModeSticky, fs.ModeSetgid, fs.ModeSetuid} {
		if mode&bit != 0 {
			special |= 1 << i
		}
	}
	return strings.NewReplacer(
		"%Su", owner, "%Sg", groupName(int(raw.Gid)), "%u", strconv.Itoa(u.UID), "%g", strconv.Itoa(int(raw.Gid)),
		"%Lp", strconv.FormatUint(uint64(mode.Perm()), 8), "%OLp", strconv.FormatUint(uint64(mode.Perm()), 8), "%Mp", strconv.Itoa(special), "%A", strconv.FormatUint(uint64(mode.Perm()), 8),
		"%Sp", mode.String(), "%z", strconv.FormatInt(info.Size(), 10), "%N", name, "%HT", kind, "%m", strconv.FormatInt(info.ModTime().Unix(), 10),
		"%l", fmt.Sprint(raw.Nlink), "%i", fmt.Sprint(raw.Ino), "%n", "\n", "%%", "%",
	).Replace(format), nil
}

// signedFile marks a file as signed at this size and time: a model's signature. A real kernel checks the pages.
type signatures map[string]string

const signaturesFile = "signatures.json"

func stamp(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano()), nil
}

// runCodesign signs, ad hoc or otherwise, and verifies.
func runCodesign(_ context.Context, c *call) error {
	if len(c.Args) == 0 {
		return failed(2, "Usage: codesign -s identity [-fv*] [-o flags] [-r reqs] [-i ident] path ... # sign")
	}
	file := c.Args[len(c.Args)-1]
	path := c.root.Path(file)
	if _, err := os.Stat(path); err != nil {
		return failed(1, "%s: No such file or directory", file)
	}
	signs := slices.ContainsFunc(c.Args, func(a string) bool { return a == "-s" || a == "--sign" || a == "-fs" })
	force := slices.ContainsFunc(c.Args, func(a string) bool { return a == "-f" || a == "--force" || a == "-fs" })
	return update(c.root, signaturesFile, func(s *signatures) error {
		if *s == nil {
			*s = signatures{}
		}
		key := c.root.Logical(path)
		now, err := stamp(path)
		if err != nil {
			return err
		}
		if signs {
			if (*s)[key] != "" && !force {
				return failed(1, "%s: is already signed", file)
			}
			if (*s)[key] != "" {
				fmt.Fprintf(c.Stderr, "%s: replacing existing signature\n", file)
			}
			(*s)[key] = now
			return nil
		}
		switch (*s)[key] {
		case "":
			return failed(1, "%s: code object is not signed at all", file)
		case now:
			return nil
		}
		return failed(1, "%s: invalid signature (code or signature have been modified)", file)
	})
}

// runXattr knows no attributes: none of the model's files is quarantined.
func runXattr(_ context.Context, c *call) error {
	var words []string
	flags := ""
	for _, a := range c.Args {
		if strings.HasPrefix(a, "-") {
			flags += a
		} else {
			words = append(words, a)
		}
	}
	if strings.ContainsAny(flags, "dpw") && !strings.Contains(flags, "r") && len(words) == 2 {
		return failed(1, "xattr: %s: No such xattr: %s", words[1], words[0])
	}
	return nil
}

// runNewsyslog checks its configuration with -n, and rotates what is larger than that says.
func runNewsyslog(_ context.Context, c *call) error {
	if err := c.needsRoot(1, "newsyslog: must have root privs"); err != nil {
		return err
	}
	files := []string{"/etc/newsyslog.conf"}
	if at := slices.Index(c.Args, "-f"); at >= 0 && at+1 < len(c.Args) {
		files = []string{c.Args[at+1]}
	} else {
		entries, err := os.ReadDir(c.root.Path("/etc/newsyslog.d"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") {
				files = append(files, "/etc/newsyslog.d/"+e.Name())
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(c.root.Path(file))
		if err != nil {
			return failed(1, "newsyslog: %s: %s", file, reason(err))
		}
		for line := range strings.Lines(string(text)) {
			if err := c.rotate(strings.TrimSpace(line), slices.Contains(c.Args, "-n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotate reads `logfile [owner:group] mode count size when flags`.
func (c *call) rotate(line string, dry bool) error {
	line, _, _ = strings.Cut(line, "#")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return nil
	}
	if len(fields) > 1 && strings.Contains(fields[1], ":") {
		fields = slices.Delete(fields, 1, 2)
	}
	if len(fields) < 5 {
		return failed(1, "newsyslog: malformed line (missing fields):\n%s", line)
	}
	mode, modeErr := strconv.ParseUint(fields[1], 8, 32)
	keep, keepErr := strconv.Atoi(fields[2])
	if modeErr != nil || keepErr != nil {
		return failed(1, "newsyslog: error in config file; bad permissions or count:\n%s", line)
	}
	limit := int64(-1)
	if fields[3] != "*" {
		kilobytes, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return failed(1, "newsyslog: error in config file; bad size:\n%s", line)
		}
		limit = kilobytes << 10
	}
	file := c.root.Path(fields[0])
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed(1, "newsyslog: %s: %s", fields[0], reason(err))
	}
	if limit < 0 || info.Size() < limit || dry {
		return nil
	}
	for n := keep - 1; n > 0; n-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", file, n-1), fmt.Sprintf("%s.%d", file, n)) // not there yet
	}
	if err := os.Rename(file, file+".0"); err != nil {
		return err
	}
	return os.WriteFile(file, nil, fs.FileMode(mode))
}
