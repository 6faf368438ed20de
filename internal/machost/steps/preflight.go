package steps

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// preflight checks whether this Mac can be a host at all. An apply can fix none of it.
type preflight struct{ user string }

func newPreflight(p machost.Payload, _ Facts) (machost.Step, error) {
	return preflight{p.Config.User}, nil
}

const (
	// minMacOS is the first version on which Tart runs machines as its images need them.
	minMacOS = 14
	// minFreeMiB is room for what is installed, not for images.
	minFreeMiB = 2048
)

// Name is "preflight".
func (preflight) Name() string { return "preflight" }

// Check fails where the host cannot be used.
func (s preflight) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	for _, check := range []func(context.Context, machost.Host) error{s.machine, s.version, s.fileVault, s.account, s.room} {
		if err := check(ctx, h); err != nil {
			return machost.Diff{}, err
		}
	}
	return machost.Diff{}, nil
}

// Apply has nothing to change.
func (preflight) Apply(context.Context, machost.Host) error { return nil }

// Verify has nothing to prove.
func (preflight) Verify(context.Context, machost.Host) error { return nil }

func (preflight) machine(ctx context.Context, h machost.Host) error {
	said, err := run(ctx, h, "/usr/bin/uname", "-sm")
	if err != nil {
		return err
	}
	if strings.TrimSpace(said) != "Darwin arm64" {
		return &machost.StepError{
			Remedy: "Virtual machines with macOS need a Mac with Apple silicon; take another, or start this program without Rosetta.",
			Err:    fmt.Errorf("this machine is %q, not a Mac with Apple silicon (Darwin arm64)", strings.TrimSpace(said)),
		}
	}
	return nil
}

func (preflight) version(ctx context.Context, h machost.Host) error {
	said, err := run(ctx, h, "/usr/bin/sw_vers", "-productVersion")
	if err != nil {
		return err
	}
	text := strings.TrimSpace(said)
	major, _, _ := strings.Cut(text, ".")
	number, err := strconv.Atoi(major)
	if err != nil {
		return fmt.Errorf("reading the version of macOS: unexpected output of sw_vers: %q", text)
	}
	if number < minMacOS {
		return &machost.StepError{
			Remedy: fmt.Sprintf("Update macOS to %d or later, and apply again.", minMacOS),
			Err:    fmt.Errorf("macOS %s is too old: %d is the minimum", text, minMacOS),
		}
	}
	return nil
}

// fileVault must be off: with it macOS logs no user in automatically, and waits for a password at each start.
func (preflight) fileVault(ctx context.Context, h machost.Host) error {
	said, err := h.Run(ctx, machost.Command{Path: "/usr/bin/fdesetup", Args: []string{"status"}})
	if err != nil {
		return err
	}
	if !strings.Contains(string(said.Stdout), "FileVault is Off") || strings.Contains(string(said.Stdout), "Encryption in progress") {
		return &machost.StepError{
			Remedy: "Turn FileVault off (System Settings, Privacy & Security, or `sudo fdesetup disable`), wait until the disk is decrypted, and apply again.",
			Err:    fmt.Errorf("FileVault is on, so macOS cannot log a user in automatically: fdesetup: %s", firstLine(said)),
		}
	}
	return nil
}

func (s preflight) account(ctx context.Context, h machost.Host) error {
	_, err := findAccount(ctx, h, s.user)
	return err
}

// room reads df's portable output: a line of heads, and one whose fourth field is the free room.
func (preflight) room(ctx context.Context, h machost.Host) error {
	said, err := run(ctx, h, "/bin/df", "-Pk", "/usr/local")
	var failed *commandError
	if errors.As(err, &failed) { // a Mac that nothing was ever installed on
		said, err = run(ctx, h, "/bin/df", "-Pk", "/")
	}
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(lines) < 2 || len(fields) < 6 {
		return fmt.Errorf("reading the free disk space: unexpected output of df: %q", said)
	}
	free, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		return fmt.Errorf("reading the free disk space: unexpected output of df: %q", said)
	}
	if free < minFreeMiB<<10 {
		return &machost.StepError{
			Remedy: "Free disk space: images of virtual machines need 25 to 100 GB each in addition.",
			Err:    fmt.Errorf("%d MiB are free on the disk, %d are required", free>>10, minFreeMiB),
		}
	}
	return nil
}
