//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sudoOptions are what the model knows of sudo's.
type sudoOptions struct {
	noninteractive, stdin, forget, validate, list, home bool
	prompt                                              string
	user                                                string
	env                                                 []string
	command                                             []string
}

func parseSudo(args []string) (sudoOptions, error) {
	o := sudoOptions{prompt: "Password:", user: "root"}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		for i, letter := range arg[1:] {
			value := func() (string, error) {
				if rest := arg[i+2:]; rest != "" {
					return rest, nil
				}
				if len(args) == 0 {
					return "", failed(1, "sudo: option requires an argument -- '%c'", letter)
				}
				first := args[0]
				args = args[1:]
				return first, nil
			}
			var err error
			switch letter {
			case 'n':
				o.noninteractive = true
			case 'S':
				o.stdin = true
			case 'k', 'K':
				o.forget = true
			case 'v':
				o.validate = true
			case 'l':
				o.list = true
			case 'H':
				o.home = true
			case 'E', 'b':
			case 'p':
				o.prompt, err = value()
			case 'u':
				o.user, err = value()
			default:
				err = failed(1, "sudo: invalid option -- '%c'", letter)
			}
			if err != nil {
				return o, err
			}
			if letter == 'p' || letter == 'u' {
				break
			}
		}
	}
	for len(args) > 0 && strings.Contains(args[0], "=") && !strings.HasPrefix(args[0], "/") {
		o.env = append(o.env, args[0])
		args = args[1:]
	}
	o.command = args
	return o, nil
}

func runSudo(ctx context.Context, c *call) error {
	o, err := parseSudo(c.Args)
	if err != nil {
		return err
	}
	if o.forget {
		os.Remove(c.ticket())
		if len(o.command) == 0 {
			return nil
		}
	}
	if len(o.command) == 0 && !o.validate && !o.list {
		return failed(1, "usage: sudo -h | -K | -k | -V\nusage: sudo [-ABbEHkNnPS] [-p prompt] [-u user] [VAR=value] [-i | -s] [command [arg ...]]")
	}
	rules, err := c.root.sudoers()
	if err != nil {
		return err // one bad file disables sudo for every user
	}
	program, logical := "", ""
	if len(o.command) > 0 {
		program, logical = c.lookUp(o.command[0])
		if program == "" {
			return failed(1, "sudo: %s: command not found", o.command[0])
		}
	}
	allowed, free := rules.permit(c.config, c.user, o.user, logical, o.command)
	// A user without any right is still asked for the password.
	if !free && c.user != "root" {
		if err := c.askPassword(o); err != nil {
			return err
		}
	}
	if !allowed {
		return failed(1, "%s is not in the sudoers file.\nThis incident has been reported to the administrator.", c.user)
	}
	if o.list {
		fmt.Fprintf(c.Stdout, "User %s may run the following commands:\n    (ALL) ALL\n", c.user)
	}
	if len(o.command) == 0 || o.list {
		return nil
	}
	return c.become(ctx, o, program)
}

// askPassword proves the user: by an earlier proof from the same parent that is fresh, or by a password on standard input.
func (c *call) askPassword(o sudoOptions) error {
	// Without a terminal, a proof is good for commands of the same parent process, for five minutes.
	if info, err := os.Stat(c.ticket()); err == nil && time.Since(info.ModTime()) < 5*time.Minute {
		return nil
	}
	if o.noninteractive {
		return failed(1, "sudo: a password is required")
	}
	if !o.stdin {
		return failed(1, "sudo: a terminal is required to read the password; either use the -S option to read from standard input or configure an askpass helper\nsudo: a password is required")
	}
	wrong := 0
	for wrong < 3 {
		fmt.Fprint(c.Stderr, o.prompt)
		password, err := c.readLine()
		if err != nil && password == "" {
			break
		}
		ok, authErr := c.root.authenticate(c.config, c.user, password)
		if authErr != nil {
			return authErr
		}
		if ok {
			return os.WriteFile(c.ticket(), nil, 0o600)
		}
		wrong++
		if wrong < 3 {
			fmt.Fprintln(c.Stderr, "Sorry, try again.")
		}
	}
	switch wrong {
	case 0:
		return failed(1, "sudo: no password was provided\nsudo: a password is required")
	case 1:
		return failed(1, "sudo: 1 incorrect password attempt")
	}
	return failed(1, "sudo: %d incorrect password attempts", wrong)
}

func (c *call) ticket() string {
	return c.root.state(fmt.Sprintf("sudo-%s-%d", c.user, os.Getppid()))
}

// lookUp finds a program, under the root first, and its path on the Mac.
func (c *call) lookUp(name string) (real, logical string) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, candidate := range candidates {
		for _, real := range []string{c.root.Path(candidate), candidate} {
			if info, err := os.Stat(real); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				return real, c.root.Logical(real)
			}
		}
	}
	return "", ""
}

// become runs the command as another user of the Mac. Of the environment it leaves what macOS's sudoers keeps: not the variables of SSH.
func (c *call) become(ctx context.Context, o sudoOptions, program string) error {
	target, known := c.config.user(o.user)
	if !known {
		return failed(1, "sudo: unknown user %s\nsudo: error initializing audit plugin sudoers_audit", o.user)
	}
	cmd := exec.CommandContext(ctx, program, o.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if name == "HOME" && !o.home || slices.Contains([]string{"PATH", "TERM", "LANG", "LC_ALL", "TZ", "SHELL", "MAIL", "SSH_AUTH_SOCK", "DISPLAY", "EDITOR", "VISUAL"}, name) ||
			strings.HasPrefix(name, "DEVMAC_") && name != "DEVMAC_USER" {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, "DEVMAC_USER="+target.Name, "USER="+target.Name, "LOGNAME="+target.Name, "USERNAME="+target.Name, "SUDO_USER="+c.user,
		"SUDO_COMMAND="+strings.Join(o.command, " "))
	if o.home {
		cmd.Env = append(cmd.Env, "HOME="+c.root.home(target.Name))
	}
	if u, ok := c.config.user(c.user); ok {
		cmd.Env = append(cmd.Env, "SUDO_UID="+strconv.Itoa(u.UID), "SUDO_GID=20")
	}
	cmd.Env = append(cmd.Env, o.env...)
	return passSignals(cmd)
}

// passSignals runs a command to its end, which a signal that ends this process sends to it, too.
func passSignals(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttributes()
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return exitCode(128 + int(status.Signal()))
		}
		return exitCode(ended.ExitCode())
	}
	return err
}
