package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// sudo lets the user become root without a password, which all other steps and the restart of a lost session need. The file is checked by
// visudo before it is put where sudo reads it: with one bad file there, sudo fails for all users. Another file's mode or content is no
// evidence that this one is right: each is compared.
type sudo struct{ user string }

// newSudo refuses a name that sudo reads as ALL or as an alias. All else that a validated name may hold has no meaning for it.
func newSudo(p machost.Payload, _ Facts) (machost.Step, error) {
	if p.Config.User == strings.ToUpper(p.Config.User) {
		return nil, fmt.Errorf("user %s: sudo reads a name of capitals alone as an alias: take another account", p.Config.User)
	}
	return sudo{p.Config.User}, nil
}

// sudoersMode is what sudo insists on.
var sudoersMode = machost.Attributes{Mode: 0o440}

// Name is "sudo".
func (sudo) Name() string { return "sudo" }

func (s sudo) file() string { return "/etc/sudoers.d/bullpen-" + s.user }

func (s sudo) content() []byte {
	return []byte("# Written by `bullpen host apply`.\n" + s.user + " ALL=(ALL) NOPASSWD: ALL\n")
}

// Check compares the file.
func (s sudo) Check(_ context.Context, h machost.Host) (machost.Diff, error) {
	change, err := fileDiff(h, s.file(), s.content(), sudoersMode)
	if err != nil || change == "" {
		return machost.Diff{}, err
	}
	return machost.Diff{Changes: []string{change}}, nil
}

// Apply checks a candidate, outside of the directory that sudo reads, and then writes the file.
func (s sudo) Apply(ctx context.Context, h machost.Host) error {
	candidate := stateDir + "/sudoers.candidate"
	if err := writeText(h, candidate, string(s.content()), sudoersMode); err != nil {
		return err
	}
	defer h.Remove(candidate) //nolint:errcheck // the next apply takes it over
	if _, err := run(ctx, h, "/usr/sbin/visudo", "-cf", candidate); err != nil {
		return &machost.StepError{Step: s.Name(), File: s.file(), Err: fmt.Errorf("checking what would be written there: %w", err),
			Remedy: "Nothing was changed. Check visudo's message about this user's name."}
	}
	return writeText(h, s.file(), string(s.content()), sudoersMode)
}

// Verify becomes the user, and from there root, without a password.
func (s sudo) Verify(ctx context.Context, h machost.Host) error {
	if _, err := run(ctx, h, "/usr/bin/sudo", "-n", "-u", s.user, "/usr/bin/sudo", "-n", "/usr/bin/true"); err != nil {
		return &machost.StepError{Step: s.Name(), File: s.file(), Err: fmt.Errorf("%s still cannot become root without a password: %w", s.user, err),
			Remedy: "Check with `sudo visudo -c` that every file is right, that /etc/sudoers includes /etc/sudoers.d, and that no later file there says otherwise."}
	}
	return nil
}

func writeText(h machost.Host, path, text string, attributes machost.Attributes) error {
	return h.WriteFile(path, strings.NewReader(text), attributes)
}
