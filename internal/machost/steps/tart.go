package steps

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// tartStep installs the administrator's Tart: fetched to a temporary path, its digest verified before it is unpacked, unpacked to a
// temporary path, and activated by one rename of a link. Versions lie side by side, so that a running machine keeps the program that it was
// started from; old ones are deleted when no machine runs.
type tartStep struct {
	archive machost.Tart
	user    string
	wanted  bool // by a node agent
	facts   Facts
}

func newTart(p machost.Payload, f Facts) (machost.Step, error) {
	p.Config.Tart.SHA256 = strings.ToLower(p.Config.Tart.SHA256)
	return tartStep{p.Config.Tart, p.Config.User, p.Config.WantsNode(), f}, nil
}

const (
	tartVersions = "/usr/local/bullpen/tart"
	// tartProgram is where the program lies in the archive, whose entitlements are the bundle's.
	tartProgram = "tart.app/Contents/MacOS/tart"
	brewTart    = "/opt/homebrew/bin/tart"
	xattr       = "/usr/bin/xattr"
)

// Name is "tart".
func (tartStep) Name() string { return "tart" }

func (s tartStep) version() string { return s.archive.SHA256[:12] }
func (s tartStep) dir() string     { return path.Join(tartVersions, s.version()) }
func (s tartStep) link() string    { return path.Join("../bullpen/tart", s.version(), tartProgram) }

// Names beside a version, which a crash may leave.
func (s tartStep) fetched() string  { return s.dir() + ".archive" }
func (s tartStep) unpacked() string { return s.dir() + ".new" }

// findTart is the program that the node agent starts.
func findTart(h machost.Host, archive machost.Tart) (string, error) {
	if archive.Archive != "" {
		return TartPath, nil // it is there, or is going to be
	}
	for _, program := range []string{TartPath, brewTart} {
		if _, err := h.Stat(program); err == nil {
			return program, nil
		} else if !isMissing(err) {
			return "", err
		}
	}
	return "", &machost.StepError{File: TartPath, Err: errors.New("Tart is not installed on this Mac"),
		Remedy: "Give tart.archive and tart.sha256 in the configuration, or install it (brew install cirruslabs/cli/tart)."}
}

// Check checks the link and its target.
func (s tartStep) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	if s.archive.Archive == "" {
		if !s.wanted {
			return diff, nil
		}
		_, err := findTart(h, s.archive)
		return diff, err
	}
	_, err := h.Stat(path.Join(s.dir(), tartProgram))
	switch {
	case isMissing(err):
		diff.Changes = append(diff.Changes, "unpack "+archiveName(s.archive.Archive)+" to "+s.dir())
	case err != nil:
		return diff, err
	}
	link, err := h.Stat(TartPath)
	if err != nil && !isMissing(err) {
		return diff, err
	}
	if err != nil || link.Target != s.link() {
		diff.Changes = append(diff.Changes, "have "+TartPath+" lead to version "+s.version())
	}
	old, err := s.leftovers(ctx, h)
	for _, name := range old {
		diff.Changes = append(diff.Changes, "remove "+path.Join(tartVersions, name))
	}
	return diff, err
}

// archiveName is an archive's name without what an address may hold beside it.
func archiveName(archive string) string {
	address, _, _ := strings.Cut(archive, "?")
	return path.Base(address)
}

// leftovers are directories that no machine can be running from, and that no apply uses: all but the version itself, once no machine runs.
func (s tartStep) leftovers(ctx context.Context, h machost.Host) ([]string, error) {
	names, err := h.ReadDir(tartVersions)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == s.version() })
	if len(names) == 0 {
		return nil, nil
	}
	if running, err := Machines(ctx, h); err != nil || running > 0 {
		return nil, err
	}
	return names, nil
}

// Apply installs what is missing.
func (s tartStep) Apply(ctx context.Context, h machost.Host) error {
	_, err := h.Stat(path.Join(s.dir(), tartProgram))
	if isMissing(err) {
		err = s.install(ctx, h)
	}
	if err != nil {
		return err
	}
	link, err := h.Stat(TartPath)
	if err != nil && !isMissing(err) {
		return err
	}
	if link.Target != s.link() {
		if err := h.Symlink(s.link(), TartPath); err != nil {
			return err
		}
	}
	old, err := s.leftovers(ctx, h)
	for _, name := range old {
		if err := h.Remove(path.Join(tartVersions, name)); err != nil {
			return err
		}
	}
	return err
}

func (s tartStep) install(ctx context.Context, h machost.Host) error {
	if err := h.Remove(s.unpacked()); err != nil {
		return err
	}
	if err := h.Remove(s.dir()); err != nil { // it lacks the program, so it is no version
		return err
	}
	if err := s.fetch(ctx, h); err != nil {
		return err
	}
	if err := unpack(ctx, h, s.fetched(), machost.ArchiveKind(s.archive.Archive), s.unpacked()); err != nil {
		return &machost.StepError{File: archiveName(s.archive.Archive), Err: errors.Join(err, h.Remove(s.unpacked()), h.Remove(s.fetched())),
			Remedy: "Use the archive of a Tart release and its digest, and apply again."}
	}
	// macOS does not start a downloaded program before a user has confirmed. A missing attribute is no error.
	if _, err := h.Run(ctx, machost.Command{Path: xattr, Args: []string{"-dr", "com.apple.quarantine", s.unpacked()}}); err != nil {
		return err
	}
	if err := h.Rename(s.unpacked(), s.dir()); err != nil {
		return err
	}
	return h.Remove(s.fetched())
}

// Verify starts the program as the user that is to run it, never as root: one from Homebrew belongs to a user who may replace it.
func (s tartStep) Verify(ctx context.Context, h machost.Host) error {
	program, err := findTart(h, s.archive)
	if err != nil && !s.wanted {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := run(ctx, h, sudoProgram, "-n", "-H", "-u", s.user, program, "--version"); err != nil {
		return &machost.StepError{File: program, Err: fmt.Errorf("starting Tart: %w", err), Remedy: "Check that the archive is a Tart release for Apple silicon."}
	}
	return nil
}
