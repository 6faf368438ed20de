package steps

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/pfrules"
)

// sshGuard lets only some networks open connections to SSH. It is the one step that could cut off the connection by which the host is
// managed (HOST-7), so it makes no permanent change before that is confirmed: the rules are loaded, the other end opens a new connection
// and confirms, and only then are they written where the next boot of the Mac reads them. A separate process reverts them without a
// confirmation, whatever happens to the apply; and so does a reboot.
type sshGuard struct {
	from  []netip.Prefix
	rules string // empty: no guard
	facts Facts
}

func newSSHGuard(p machost.Payload, f Facts) (machost.Step, error) {
	s := sshGuard{from: p.Config.SSH.AllowFrom, facts: f}
	if len(s.from) == 0 {
		return s, nil
	}
	var err error
	if s.rules, err = pfrules.Guard(s.from); err != nil {
		return nil, fmt.Errorf("rendering who may open SSH connections: %w", err)
	}
	return s, nil
}

const (
	// guardArmed holds the token of the change that is not confirmed yet.
	guardArmed = stateDir + "/ssh-guard.armed"
	// guardCandidate holds the rules of that change.
	guardCandidate = stateDir + "/ssh-guard.candidate"
	// guardPatience is how long the watchdog waits before it takes a change back; confirmPatience, how long the apply does.
	guardPatience   = 60 * time.Second
	confirmPatience = 50 * time.Second
	guardLook       = time.Second
)

// Name is "ssh-guard".
func (sshGuard) Name() string { return "ssh-guard" }

// Check compares the files and what is in force, and refuses rules that would shut out the client of this apply.
func (s sshGuard) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	if err := s.checkOwnSession(); err != nil {
		return machost.Diff{}, err
	}
	var diff machost.Diff
	text, _, err := readPFFile(h)
	if err != nil {
		return diff, err
	}
	want, err := s.attachment(text)
	if err != nil {
		return diff, err
	}
	wanted, err := arrange(text, want)
	if err != nil {
		return diff, err
	}
	if wanted != text {
		diff.Changes = append(diff.Changes, "edit "+pfFile+": attach each desired anchor of bullpen once, at its end")
	}
	change, err := fileChange(h, sshAnchor.File, s.rules)
	if err != nil {
		return diff, err
	}
	if change != "" {
		diff.Changes = append(diff.Changes, change)
	}
	if err := cutOff(h, &diff); err != nil {
		return diff, err
	}
	if s.rules == "" {
		return diff, leftOver(ctx, h, sshAnchor, &diff)
	}
	return diff, s.checkLive(ctx, h, &diff, change != "")
}

// cutOff adds the files that an interrupted apply has left behind to the changes. The rules may be loaded and written by then, so no other check
// finds a difference, and the watchdog removes only the token, after a minute.
func cutOff(h machost.Host, diff *machost.Diff) error {
	for _, path := range []string{guardArmed, guardCandidate} {
		left, err := exists(h, path)
		if err != nil {
			return err
		}
		if left {
			diff.Changes = append(diff.Changes, "remove "+path+", left by an interrupted apply")
		}
	}
	return nil
}

// tidy removes the temporary files of a change. The token goes last, so that the next Check finds a removal that was interrupted.
func tidy(h machost.Host) error {
	if err := h.Remove(guardCandidate); err != nil {
		return err
	}
	return h.Remove(guardArmed)
}

func (s sshGuard) attachment(text string) (attachment, error) {
	want, err := attached(text)
	want.ssh = s.rules != ""
	return want, err
}

func (s sshGuard) checkLive(ctx context.Context, h machost.Host, diff *machost.Diff, otherFile bool) error {
	referred, err := checkReferred(ctx, h, sshAnchor, diff)
	if err != nil || !referred || otherFile { // another file is among the changes
		return err
	}
	return checkLoaded(ctx, h, sshAnchor, s.rules, diff)
}

// checkOwnSession returns an error if this apply's own session could not be opened again.
func (s sshGuard) checkOwnSession() error {
	session := s.facts.Session.Unmap().WithZone("")
	if s.rules == "" || !session.IsValid() || session.IsLoopback() {
		return nil
	}
	if slices.ContainsFunc(s.from, func(network netip.Prefix) bool { return network.Contains(session) }) {
		return nil
	}
	return &machost.StepError{Step: s.Name(), Err: fmt.Errorf("this session comes from %s, which is in none of the networks of ssh.allowFrom: the guard would deny it", session),
		Remedy: fmt.Sprintf("Nothing was changed. Add a network with %s to ssh.allowFrom, or apply from an address in one, or at the console.", session)}
}

// Apply tries the rules before it keeps them.
func (s sshGuard) Apply(ctx context.Context, h machost.Host) error {
	if s.rules == "" {
		return s.takeOut(ctx, h)
	}
	if s.facts.Confirm == nil && s.facts.Session.IsValid() {
		return &machost.StepError{Step: s.Name(), Err: errors.New("this is an SSH session, and no client can verify from outside that the host is still reachable"),
			Remedy: "Nothing was changed. Use `bullpen host bootstrap` from another host, or apply at the console."}
	}
	if err := checkRules(ctx, h, sshAnchor, s.rules); err != nil {
		return err
	}
	if err := s.attach(ctx, h); err != nil {
		return err
	}
	return s.try(ctx, h)
}

// attach has the main rule set refer to the anchor, with what was in it: nothing, if it is new.
func (s sshGuard) attach(ctx context.Context, h machost.Host) error {
	there, err := exists(h, sshAnchor.File)
	if err != nil {
		return err
	}
	if !there {
		if err := writeText(h, sshAnchor.File, pfrules.NoGuard(), rootFile); err != nil {
			return err
		}
	}
	if err := editPFFile(ctx, h, s.attachment); err != nil {
		return err
	}
	rules, err := mainRules(ctx, h)
	if err != nil || refersTo(rules, "anchor", sshAnchor.Name) {
		return err
	}
	return loadMain(ctx, h)
}

// try loads the rules, and keeps them once they are confirmed. At no instant does a crash, of this process or of the Mac, leave more than a
// guard that the watchdog removes.
func (s sshGuard) try(ctx context.Context, h machost.Host) error {
	token := rand.Text()
	if err := writeText(h, guardArmed, token+"\n", rootFile); err != nil {
		return err
	}
	if s.facts.Watchdog == nil {
		return errors.New("nothing would revert the guard if it denied all connections")
	}
	if err := s.facts.Watchdog(ctx, token); err != nil {
		// The one of an earlier apply has seen another token, and left its guard to this one.
		return errors.Join(fmt.Errorf("starting who would take the guard back: %w", err), revert(context.WithoutCancel(ctx), h))
	}
	err := writeText(h, guardCandidate, s.rules, rootFile)
	if err == nil {
		err = loadAnchor(ctx, h, sshAnchor, guardCandidate)
	}
	if err == nil {
		err = s.confirmed(ctx, token)
	}
	if err == nil {
		err = writeText(h, sshAnchor.File, s.rules, rootFile)
	}
	var undone error
	if err != nil {
		undone = revert(context.WithoutCancel(ctx), h) // also when ctx has ended: that is how a lost connection shows
	}
	if undone != nil { // a guard that could not be taken back is left to the watchdog
		return errors.Join(err, undone, h.Remove(guardCandidate))
	}
	if left := tidy(h); left != nil {
		return errors.Join(err, left)
	}
	return err
}

func (s sshGuard) confirmed(ctx context.Context, token string) error {
	if s.facts.Confirm == nil {
		return nil // at the console, which no rule closes
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	if err := s.facts.Confirm(ctx, token); err != nil {
		return &machost.StepError{Step: s.Name(), File: sshAnchor.File, Err: fmt.Errorf("the host's reachability with these rules was not confirmed, and they were reverted: %w", err),
			Remedy: "Check that ssh.allowFrom includes the source addresses that the host sees: behind a NAT or a VPN they differ from the client's own."}
	}
	return nil
}

// revert loads what the next boot of the Mac would: the last confirmed rules. Should pf refuse even those, no client is shut out.
func revert(ctx context.Context, h machost.Host) error {
	err := loadAnchor(ctx, h, sshAnchor, sshAnchor.File)
	if err != nil {
		err = errors.Join(err, flush(ctx, h, sshAnchor))
	}
	return err
}

// RevertGuard is the watchdog: it takes the guard back unless what has the token is confirmed in time, or taken back by the apply itself.
func RevertGuard(ctx context.Context, h machost.Host, token string, clock Clock) error {
	if clock == nil {
		clock = wallClock{}
	}
	deadline := clock.Now().Add(guardPatience)
	for {
		armed, err := h.ReadFile(guardArmed)
		if isMissing(err) || err == nil && strings.TrimSpace(string(armed)) != token {
			return nil
		}
		if !clock.Now().Before(deadline) {
			break
		}
		if wait(ctx, clock, guardLook) != nil {
			break // asked to stop: at once, then, rather than not at all
		}
	}
	if err := revert(context.WithoutCancel(ctx), h); err != nil {
		return err
	}
	return h.Remove(guardArmed)
}

func (s sshGuard) takeOut(ctx context.Context, h machost.Host) error {
	if err := flush(ctx, h, sshAnchor); err != nil {
		return err
	}
	if err := editPFFile(ctx, h, s.attachment); err != nil {
		return err
	}
	if err := h.Remove(sshAnchor.File); err != nil {
		return err
	}
	return tidy(h)
}

// Verify looks again at what is in force.
func (s sshGuard) Verify(ctx context.Context, h machost.Host) error {
	if s.rules == "" {
		return nil
	}
	var left machost.Diff
	if err := s.checkLive(ctx, h, &left, false); err != nil {
		return err
	}
	enabled, err := pfEnabled(ctx, h)
	if err != nil {
		return err
	}
	if !enabled {
		left.Changes = append(left.Changes, "pf is disabled")
	}
	if !left.Empty() {
		return &machost.StepError{Step: s.Name(), File: sshAnchor.File, Err: fmt.Errorf("the SSH guard is not in force: %s", strings.Join(left.Changes, "; ")),
			Remedy: "Another program on this Mac changes pf: check `sudo pfctl -s info` and `sudo pfctl -s rules`, and apply again."}
	}
	return nil
}
