//go:build unix

package mac

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// runPmset sets values for all power sources (-a), and shows them (-g). A Mac mini has one source, so -c and -b are alike here.
func runPmset(_ context.Context, c *call) error {
	return update(c.root, hostFile, func(h *host) error {
		if len(c.Args) == 0 || c.Args[0] == "-g" {
			fmt.Fprintln(c.Stdout, "System-wide power settings:")
			if h.Power["SleepDisabled"] == "1" {
				fmt.Fprintln(c.Stdout, " SleepDisabled\t\t1")
			}
			fmt.Fprintln(c.Stdout, "Currently in use:")
			if len(c.Args) > 1 && c.Args[1] == "custom" {
				fmt.Fprintln(c.Stdout, "AC Power:")
			}
			for _, name := range slices.Sorted(maps.Keys(h.Power)) {
				if name != "SleepDisabled" {
					fmt.Fprintf(c.Stdout, " %-20s %s\n", name, h.Power[name])
				}
			}
			return nil
		}
		if err := c.needsRoot(77, "'pmset' must be run as root..."); err != nil {
			return err
		}
		args := c.Args
		if strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		if len(args)%2 != 0 {
			return failed(64, "Usage: pmset <options>") // likely
		}
		for pair := range slices.Chunk(args, 2) {
			name := pair[0]
			if name == "disablesleep" {
				name = "SleepDisabled"
			}
			if _, known := h.Power[name]; !known {
				return failed(64, "Usage: pmset <options>")
			}
			h.Power[name] = pair[1]
		}
		return nil
	})
}

// systemLabels are what systemsetup prints before a value.
var systemLabels = map[string]string{
	"remotelogin": "Remote Login", "restartfreeze": "Restart After Freeze", "networktime": "Network Time", "computersleep": "Computer Sleep", "timezone": "Time Zone",
}

func runSystemsetup(_ context.Context, c *call) error {
	// It says so and exits with 0 (likely: versions differ).
	if c.user != "root" {
		fmt.Fprintln(c.Stdout, "You need administrator access to run this tool... exiting!")
		return nil
	}
	args := slices.DeleteFunc(slices.Clone(c.Args), func(a string) bool { return a == "-f" })
	if len(args) == 0 {
		return failed(1, "systemsetup: no command")
	}
	verb := strings.TrimPrefix(args[0], "-")
	return update(c.root, hostFile, func(h *host) error {
		if name, ok := strings.CutPrefix(verb, "get"); ok && systemLabels[name] != "" {
			fmt.Fprintf(c.Stdout, "%s: %s\n", systemLabels[name], h.System[name])
			return nil
		}
		name, ok := strings.CutPrefix(verb, "set")
		if !ok || systemLabels[name] == "" || len(args) != 2 {
			return failed(1, "systemsetup: unknown command %q", verb)
		}
		value := args[1]
		switch strings.ToLower(value) {
		case "on", "off":
			value = strings.ToUpper(value[:1]) + strings.ToLower(value[1:])
		}
		if name == "remotelogin" && h.System[name] == value {
			return nil
		}
		// From macOS 13 on, turning remote login on or off wants Full Disk Access, which a program over SSH may lack.
		h.System[name] = value
		if name != "remotelogin" {
			fmt.Fprintf(c.Stdout, "%s: %s\n", verb, value)
		}
		return nil
	})
}

// runSysadminctl knows the screen lock, which it changes for the calling user, who proves the password on standard input.
func runSysadminctl(_ context.Context, c *call) error {
	at := slices.Index(c.Args, "-screenLock")
	if at < 0 || at+1 >= len(c.Args) {
		return failed(1, "the model's sysadminctl knows -screenLock")
	}
	wanted := c.Args[at+1]
	return update(c.root, hostFile, func(h *host) error {
		user := c.user
		if wanted == "status" {
			delay := h.ScreenLock[user]
			if delay == "" || delay == "off" {
				fmt.Fprintln(c.Stderr, "2026-01-01 00:00:00.000 sysadminctl[1:1] screenLock is off")
			} else {
				fmt.Fprintf(c.Stderr, "2026-01-01 00:00:00.000 sysadminctl[1:1] screenLock delay is %s seconds\n", delay)
			}
			return nil
		}
		pw := slices.Index(c.Args, "-password")
		if pw < 0 || pw+1 >= len(c.Args) {
			return failed(1, "sysadminctl[1:1] -password is required") // likely
		}
		password := c.Args[pw+1]
		if password == "-" {
			line, _ := c.readLine() // without a terminal it reads standard input (likely)
			password = line
		}
		ok, err := c.root.authenticate(c.config, user, password)
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintln(c.Stderr, "2026-01-01 00:00:00.000 sysadminctl[1:1] Operation is not permitted without correct password.") // likely
			return exitCode(1)
		}
		if h.ScreenLock == nil {
			h.ScreenLock = map[string]string{}
		}
		h.ScreenLock[user] = wanted
		return nil
	})
}
