package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/pfconf"
	"github.com/bullpen-ci/bullpen/internal/machost/pfrules"
)

// egress keeps machines away from everything private. It is also the one that keeps pf enabled, and enables it at each start of the Mac:
// Apple's own job only loads /etc/pf.conf.
type egress struct {
	on    bool
	pf    bool // rules are desired, these or the guard's
	rules string
}

func newEgress(p machost.Payload, _ Facts) (machost.Step, error) {
	s := egress{on: !p.Config.Egress.Off, pf: !p.Config.Egress.Off || len(p.Config.SSH.AllowFrom) > 0}
	if !s.on {
		return s, nil
	}
	var err error
	s.rules, err = pfrules.Egress(pfrules.EgressNetworks{Machines: p.Config.Egress.Machines, Allow: p.Config.Egress.Allow})
	if err != nil {
		return nil, fmt.Errorf("rendering the rules of machines: %w", err)
	}
	return s, nil
}

const (
	pfJob = "/Library/LaunchDaemons/dev.bullpen.pf.plist"
	// pfPlist enables pf at each boot. -E, not -e: pf counts its users, and vmnet's release must not disable it.
	pfPlist = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
  <key>Label</key><string>dev.bullpen.pf</string>
  <key>ProgramArguments</key><array>
    <string>/sbin/pfctl</string><string>-E</string><string>-f</string><string>/etc/pf.conf</string>
  </array>
  <key>RunAtLoad</key><true/>
</dict></plist>
`
)

// Name is "egress".
func (egress) Name() string { return "egress" }

// Check compares the files, and what is in force.
func (s egress) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	if err := s.checkFiles(h, &diff); err != nil {
		return diff, err
	}
	if s.pf {
		enabled, err := pfEnabled(ctx, h)
		if err != nil {
			return diff, err
		}
		if !enabled {
			diff.Changes = append(diff.Changes, "enable pf")
		}
	}
	if !s.on {
		return diff, leftOver(ctx, h, runnersAnchor, &diff)
	}
	return diff, s.checkLive(ctx, h, &diff)
}

func (s egress) checkFiles(h machost.Host, diff *machost.Diff) error {
	text, _, err := readPFFile(h)
	if err != nil {
		return err
	}
	want, err := s.attachment(text)
	if err != nil {
		return err
	}
	wanted, err := arrange(text, want)
	if err != nil {
		return err
	}
	if wanted != text {
		diff.Changes = append(diff.Changes, "edit "+pfFile+": attach each desired anchor of bullpen once, at its end")
	}
	for _, file := range []struct{ path, content string }{{runnersAnchor.File, s.rules}, {pfJob, s.plist()}} {
		change, err := fileChange(h, file.path, file.content)
		if err != nil {
			return err
		}
		if change != "" {
			diff.Changes = append(diff.Changes, change)
		}
	}
	return nil
}

// fileChange compares a file; no content means that the file must not exist.
func fileChange(h machost.Host, file, content string) (string, error) {
	if content != "" {
		return fileDiff(h, file, []byte(content), rootFile)
	}
	_, err := h.Stat(file)
	if isMissing(err) {
		return "", nil
	}
	return "remove " + file, err
}

func (s egress) plist() string {
	if s.pf {
		return pfPlist
	}
	return ""
}

// attachment leaves the guard's anchor as it is: that is attached and detached by its own step.
func (s egress) attachment(text string) (attachment, error) {
	want, err := attached(text)
	want.runners = s.on
	return want, err
}

// checkLive checks what pf has loaded. A main rule set without a reference to the anchor is the state in which the incident's hosts were
// found: the files were right, and none of them was in force.
func (s egress) checkLive(ctx context.Context, h machost.Host, diff *machost.Diff) error {
	if referred, err := checkReferred(ctx, h, runnersAnchor, diff); err != nil || !referred {
		return err
	}
	if change, err := fileDiff(h, runnersAnchor.File, []byte(s.rules), rootFile); err != nil || change != "" {
		return err // the file comes first, and it is among the changes
	}
	return checkLoaded(ctx, h, runnersAnchor, s.rules, diff)
}

// checkReferred reports whether the main rule set refers to the anchor, and if not that it has to be loaded.
func checkReferred(ctx context.Context, h machost.Host, anchor pfconf.Anchor, diff *machost.Diff) (bool, error) {
	rules, err := mainRules(ctx, h)
	if err != nil || refersTo(rules, "anchor", anchor.Name) {
		return err == nil, err
	}
	diff.Changes = append(diff.Changes, "load "+pfFile+": the rules in force do not refer to anchor "+anchor.Name)
	diff.Disruptive = true
	return false, nil
}

// checkLoaded says what of the anchor's file is not in force.
func checkLoaded(ctx context.Context, h machost.Host, anchor pfconf.Anchor, rules string, diff *machost.Diff) error {
	change, err := differs(ctx, h, anchor, anchor.File, rules)
	if change != "" {
		diff.Changes = append(diff.Changes, "load "+anchor.File+": "+change)
	}
	return err
}

// leftOver looks for rules of an anchor that is to have none.
func leftOver(ctx context.Context, h machost.Host, anchor pfconf.Anchor, diff *machost.Diff) error {
	said, err := runPF(ctx, h, "-a", anchor.Name, "-s", "rules")
	if err != nil {
		return err
	}
	if left := statements(said); len(left) > 0 {
		diff.Changes = append(diff.Changes, fmt.Sprintf("empty anchor %s: %d rules are in force", anchor.Name, len(left)))
	}
	return nil
}

// Apply checks, writes the files, and then loads. The last load is the rarest: the whole file.
func (s egress) Apply(ctx context.Context, h machost.Host) error {
	if !s.on {
		return s.takeOut(ctx, h)
	}
	if err := checkRules(ctx, h, runnersAnchor, s.rules); err != nil {
		return err
	}
	// Before pf.conf, which loads it.
	if err := writeText(h, runnersAnchor.File, s.rules, rootFile); err != nil {
		return err
	}
	if err := editPFFile(ctx, h, s.attachment); err != nil {
		return err
	}
	rules, err := mainRules(ctx, h)
	if err != nil {
		return err
	}
	if refersTo(rules, "anchor", runnersAnchor.Name) {
		err = loadAnchor(ctx, h, runnersAnchor, runnersAnchor.File)
	} else {
		err = loadMain(ctx, h)
	}
	if err != nil {
		return err
	}
	return s.enable(ctx, h)
}

// takeOut leaves the reference in force, to an anchor that is empty: only a load of the whole file could remove it.
func (s egress) takeOut(ctx context.Context, h machost.Host) error {
	if err := editPFFile(ctx, h, s.attachment); err != nil {
		return err
	}
	if err := flush(ctx, h, runnersAnchor); err != nil {
		return err
	}
	if err := h.Remove(runnersAnchor.File); err != nil {
		return err
	}
	return s.enable(ctx, h)
}

func (s egress) enable(ctx context.Context, h machost.Host) error {
	if !s.pf {
		return h.Remove(pfJob)
	}
	if err := writeText(h, pfJob, pfPlist, rootFile); err != nil {
		return err
	}
	enabled, err := pfEnabled(ctx, h)
	if err != nil || enabled {
		return err
	}
	if err := emptyIdleGuard(ctx, h); err != nil {
		return err
	}
	if _, err := runPF(ctx, h, "-E"); err != nil {
		return &machost.StepError{Err: fmt.Errorf("enabling pf: %w", err), Remedy: "Look with `sudo pfctl -s info` at why, and apply again."}
	}
	return nil
}

// Verify looks again at what is in force, and whether there are machines that no rule is about.
func (s egress) Verify(ctx context.Context, h machost.Host) error {
	if !s.on {
		return nil
	}
	enabled, err := pfEnabled(ctx, h)
	if err != nil {
		return err
	}
	var left machost.Diff
	if err := s.checkLive(ctx, h, &left); err != nil {
		return err
	}
	if !enabled {
		left.Changes = append(left.Changes, "pf is disabled")
	}
	if !left.Empty() {
		return &machost.StepError{File: runnersAnchor.File, Err: fmt.Errorf("the filter of machines is not in force: %s", strings.Join(left.Changes, "; ")),
			Remedy: "Another program on this Mac changes pf: check `sudo pfctl -s info` and `sudo pfctl -s rules`, and apply again."}
	}
	said, err := run(ctx, h, "/sbin/ifconfig", "-l")
	if err != nil {
		return err
	}
	if open := pfrules.Uncovered(strings.Fields(said)); len(open) > 0 {
		return &machost.StepError{File: runnersAnchor.File, Err: fmt.Errorf("no rule is about machines on %s", strings.Join(open, ", ")),
			Remedy: "Another program has made bridges of vmnet, and the machines got one that is not among those filtered: end that program, or restart the Mac."}
	}
	return nil
}
