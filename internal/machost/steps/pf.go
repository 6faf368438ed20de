package steps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/pfconf"
	"github.com/bullpen-ci/bullpen/internal/machost/pfrules"
)

// The common part of egress, nat and ssh-guard for macOS's packet filter. Rules are loaded into one anchor at a time, which is safe on a
// live host. They are in force only if the main rule set refers to the anchor, and that is made of /etc/pf.conf by a load of the whole
// file. A whole load removes what vmnet has put into the main rule set for running machines: it is disruptive, and done only when a
// reference is missing.
const (
	pfctl  = "/sbin/pfctl"
	pfFile = "/etc/pf.conf"
	// pfCandidate is checked before it becomes pfFile.
	pfCandidate = stateDir + "/pf.conf.candidate"
)

var (
	runnersAnchor = pfconf.Anchor{Name: "bullpen.runners", File: "/etc/pf.anchors/bullpen.runners"}
	sshAnchor     = pfconf.Anchor{Name: "bullpen.ssh", File: "/etc/pf.anchors/bullpen.ssh"}
)

// attachment says which of our anchors pf.conf is to attach.
type attachment struct{ runners, ssh bool }

// attached says which it attaches now.
func attached(text string) (attachment, error) {
	var now attachment
	for anchor, is := range map[string]*bool{runnersAnchor.Name: &now.runners, sshAnchor.Name: &now.ssh} {
		without, err := pfconf.Detach(text, anchor)
		if err != nil {
			return now, inlineError(err)
		}
		*is = without != text
	}
	return now, nil
}

// arrange returns the text with exactly the wanted anchors, one canonical block each, always in the same order (HOST-2): two that each
// wanted to be last would move on every apply.
func arrange(text string, want attachment) (string, error) {
	text, err := pfconf.Detach(text, runnersAnchor.Name, sshAnchor.Name)
	if err == nil && want.runners {
		text, err = pfconf.Attach(text, runnersAnchor)
	}
	if err == nil && want.ssh {
		text, err = pfconf.Attach(text, sshAnchor)
	}
	return text, inlineError(err)
}

func inlineError(err error) error {
	if err == nil {
		return nil
	}
	return &machost.StepError{File: pfFile, Err: err, Remedy: "No version of bullpen wrote that: edit the file as the message says, and apply again."}
}

// readPFFile returns pf.conf. A missing file is nothing that a step could repair: Apple's hooks are for Apple to define.
func readPFFile(h machost.Host) (string, machost.FileInfo, error) {
	content, err := h.ReadFile(pfFile)
	if isMissing(err) {
		return "", machost.FileInfo{}, &machost.StepError{File: pfFile, Err: err, Remedy: "macOS ships this file: copy it from another Mac of the same version, and apply again."}
	}
	if err != nil {
		return "", machost.FileInfo{}, err
	}
	info, err := h.Stat(pfFile)
	return string(content), info, err
}

// editPFFile makes pf.conf attach what is wanted. The candidate is checked as a whole before it takes the file's place: a file that
// pf does not load leaves old rules in force, and nothing at the next start.
func editPFFile(ctx context.Context, h machost.Host, attach func(text string) (attachment, error)) error {
	text, info, err := readPFFile(h)
	if err != nil {
		return err
	}
	want, err := attach(text)
	if err != nil {
		return err
	}
	wanted, err := arrange(text, want)
	if err != nil || wanted == text {
		return err
	}
	if err := guardFileExists(h, wanted); err != nil {
		return err
	}
	if err := writeText(h, pfCandidate, wanted, rootFile); err != nil {
		return err
	}
	defer h.Remove(pfCandidate) //nolint:errcheck // the next apply takes it over
	if _, err := runPF(ctx, h, "-nf", pfCandidate); err != nil {
		return &machost.StepError{File: pfFile, Err: fmt.Errorf("checking what would be written there: %w", err),
			Remedy: "The file was not changed. The line was added by another program or was there before: fix it (`sudo pfctl -nf /etc/pf.conf`), and apply again."}
	}
	if info.Target != "" { // its mode is that of the link: 0777
		info.Attributes = rootFile
	}
	return writeText(h, pfFile, wanted, info.Attributes)
}

// guardFileExists creates the guard's file if pf.conf loads it and it was deleted: pf would load nothing at all. The guard's own step,
// which is the last, writes the desired content.
func guardFileExists(h machost.Host, text string) error {
	now, err := attached(text)
	if err != nil || !now.ssh {
		return err
	}
	there, err := exists(h, sshAnchor.File)
	if err != nil || there {
		return err
	}
	return writeText(h, sshAnchor.File, pfrules.NoGuard(), rootFile)
}

// emptyIdleGuard empties the guard where it is loaded and not in force: it was not confirmed that the host can still be reached when it is
// (HOST-7). The guard's own step asks for confirmation, and loads it again.
func emptyIdleGuard(ctx context.Context, h machost.Host) error {
	rules, err := mainRules(ctx, h)
	if err != nil || !refersTo(rules, "anchor", sshAnchor.Name) {
		return err
	}
	return flush(ctx, h, sshAnchor)
}

// guardInForce reports whether the guard is in force now.
func guardInForce(ctx context.Context, h machost.Host) (bool, error) {
	enabled, err := pfEnabled(ctx, h)
	if err != nil || !enabled {
		return false, err
	}
	rules, err := mainRules(ctx, h)
	return refersTo(rules, "anchor", sshAnchor.Name), err
}

// loadMain loads the whole of pf.conf, after a check. Disruptive. A guard that was not in force before is not afterwards.
func loadMain(ctx context.Context, h machost.Host) error {
	text, _, err := readPFFile(h)
	if err != nil {
		return err
	}
	if err := guardFileExists(h, text); err != nil {
		return err
	}
	if _, err := runPF(ctx, h, "-nf", pfFile); err != nil {
		return notLoaded(err)
	}
	guarded, err := guardInForce(ctx, h)
	if err != nil {
		return err
	}
	// It runs to its end, even if ctx ends: in between, anchors are empty.
	ctx = context.WithoutCancel(ctx)
	if err := loadWhole(ctx, h, text); err != nil || guarded {
		return err
	}
	return emptyIdleGuard(ctx, h)
}

// loadWhole loads the whole file. Should pf refuse because an anchor of ours is loaded already, that anchor is emptied first, and loaded
// again if the load still fails: nothing is left worse than before.
func loadWhole(ctx context.Context, h machost.Host, text string) error {
	_, err := runPF(ctx, h, "-f", pfFile)
	var failed *pfError
	if !errors.As(err, &failed) {
		return err
	}
	now, attachedErr := attached(text)
	if attachedErr != nil {
		return notLoaded(err)
	}
	ours := slices.DeleteFunc([]pfconf.Anchor{runnersAnchor, sshAnchor}, func(a pfconf.Anchor) bool {
		return a == runnersAnchor && !now.runners || a == sshAnchor && !now.ssh
	})
	for _, anchor := range ours {
		_ = flush(ctx, h, anchor)
	}
	if _, err = runPF(ctx, h, "-f", pfFile); err == nil {
		return nil
	}
	for _, anchor := range ours {
		_ = loadAnchor(ctx, h, anchor, anchor.File)
	}
	return notLoaded(err)
}

func notLoaded(err error) error {
	return &machost.StepError{File: pfFile, Err: fmt.Errorf("pf does not load it, and the rules from before are in force: %w", err),
		Remedy: "Find the line with `sudo pfctl -nf /etc/pf.conf`, fix it, and apply again."}
}

// loadAnchor loads a file into an anchor, alone.
func loadAnchor(ctx context.Context, h machost.Host, anchor pfconf.Anchor, file string) error {
	if _, err := runPF(ctx, h, "-a", anchor.Name, "-f", file); err != nil {
		return &machost.StepError{File: file, Err: fmt.Errorf("loading it into anchor %s: %w", anchor.Name, err),
			Remedy: "The previous rules are in force. Check the line that pfctl names."}
	}
	return nil
}

func flush(ctx context.Context, h machost.Host, anchor pfconf.Anchor) error {
	_, err := runPF(ctx, h, "-a", anchor.Name, "-F", "rules")
	if err == nil {
		_, err = runPF(ctx, h, "-a", anchor.Name, "-F", "Tables")
	}
	return err
}

// checkRules lets pfctl read rules before anything is done with them.
func checkRules(ctx context.Context, h machost.Host, anchor pfconf.Anchor, rules string) error {
	candidate := stateDir + "/" + anchor.Name + ".candidate"
	if err := writeText(h, candidate, rules, rootFile); err != nil {
		return err
	}
	defer h.Remove(candidate) //nolint:errcheck // the next apply takes it over
	if _, err := runPF(ctx, h, "-a", anchor.Name, "-nf", candidate); err != nil {
		return &machost.StepError{File: anchor.File, Err: fmt.Errorf("checking what would be written there: %w", err),
			Remedy: "Nothing was changed. This pf reads rules otherwise than the ones that bullpen knows: please report what pfctl says."}
	}
	return nil
}

// runPF runs pfctl, which is to succeed.
func runPF(ctx context.Context, h machost.Host, args ...string) (string, error) {
	said, err := h.Run(ctx, machost.Command{Path: pfctl, Args: args})
	if err != nil {
		return "", err
	}
	if said.ExitCode != 0 {
		return "", &pfError{args, meant(string(said.Stderr))}
	}
	return string(said.Stdout), nil
}

// pfError says why pfctl has failed.
type pfError struct {
	args []string
	said string
}

// Error names the call, and all that pfctl said of it.
func (e *pfError) Error() string {
	return fmt.Sprintf("pfctl %s: %s", strings.Join(e.args, " "), e.said)
}

// pfNoise is what pfctl says of every call, before what matters.
var pfNoise = []string{"No ALTQ support", "ALTQ related", "pfctl: Use of -f option", "present in the main ruleset", "See /etc/pf.conf for"}

// meant is what is left of it, on one line.
func meant(said string) string {
	var left []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line != "" && !slices.ContainsFunc(pfNoise, func(noise string) bool { return strings.HasPrefix(line, noise) }) {
			left = append(left, line)
		}
	}
	const most = 5 // a file in a wrong language has as many mistakes as lines
	if len(left) > most {
		left = append(left[:most], "…")
	}
	if len(left) == 0 {
		return "it failed, and said nothing"
	}
	return strings.Join(left, "; ")
}

// pfEnabled reports whether pf filters at all.
func pfEnabled(ctx context.Context, h machost.Host) (bool, error) {
	said, err := runPF(ctx, h, "-s", "info")
	return strings.Contains(said, "Status: Enabled"), err
}

// mainRules are the statements of the main rule set that is in force, of filter and translation.
func mainRules(ctx context.Context, h machost.Host) ([]string, error) {
	filter, err := runPF(ctx, h, "-s", "rules")
	if err != nil {
		return nil, err
	}
	translation, err := runPF(ctx, h, "-s", "nat")
	if err != nil {
		return nil, err
	}
	return statements(filter + "\n" + translation), nil
}

// refersTo reports whether a rule set has `KIND "NAME"`, as pf prints it: anchor "x" all.
func refersTo(rules []string, kind, name string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		words := strings.Fields(rule)
		return len(words) >= 2 && words[0] == kind && strings.Trim(words[1], `"`) == name
	})
}

// statementWords begin the lines that are rules; the others of pfctl's output are tables, macros, and what it says for people.
var statementWords = []string{"pass", "block", "anchor", "nat", "rdr", "nat-anchor", "rdr-anchor", "no", "binat", "binat-anchor"}

func statements(said string) []string {
	var result []string
	for line := range strings.Lines(said) {
		words := strings.Fields(line)
		if len(words) > 0 && slices.Contains(statementWords, words[0]) {
			result = append(result, strings.Join(words, " "))
		}
	}
	return result
}

// differs says how what is in force of an anchor differs from the file with these rules; empty if it does not. pfctl prints rules in a form of its
// own, so that it is asked to print those of the file, too, without loading them. Their order is not compared: pf's optimizer may change it
// where that means the same.
func differs(ctx context.Context, h machost.Host, anchor pfconf.Anchor, file, rules string) (string, error) {
	want, err := runPF(ctx, h, "-a", anchor.Name, "-nvf", file)
	if err != nil {
		return "", err
	}
	have, err := runPF(ctx, h, "-a", anchor.Name, "-s", "rules")
	if err != nil {
		return "", err
	}
	wanted, loaded := statements(want), statements(have)
	slices.Sort(wanted)
	slices.Sort(loaded)
	if !slices.Equal(wanted, loaded) {
		return fmt.Sprintf("%d rules of anchor %s are in force, and not the %d of %s", len(loaded), anchor.Name, len(wanted), anchor.File), nil
	}
	for _, table := range tablesOf(rules) {
		said, err := h.Run(ctx, machost.Command{Path: pfctl, Args: []string{"-a", anchor.Name, "-t", table.name, "-T", "show"}})
		if err != nil {
			return "", err
		}
		if said.ExitCode != 0 || !slices.Equal(table.networks, networksIn(string(said.Stdout))) {
			return fmt.Sprintf("table %s of anchor %s is not that of %s", table.name, anchor.Name, anchor.File), nil
		}
	}
	return "", nil
}

type pfTable struct {
	name     string
	networks []netip.Prefix
}

var tableLine = regexp.MustCompile(`(?m)^table <(\w+)> const \{(.*)\}$`)

// tablesOf reads the tables of rules that pfrules has rendered.
func tablesOf(rules string) []pfTable {
	var tables []pfTable
	for _, found := range tableLine.FindAllStringSubmatch(rules, -1) {
		tables = append(tables, pfTable{found[1], networksIn(found[2])})
	}
	return tables
}

func networksIn(text string) []netip.Prefix {
	var networks []netip.Prefix
	for _, word := range strings.Fields(text) {
		network, err := netip.ParsePrefix(word)
		if address, addressErr := netip.ParseAddr(word); addressErr == nil {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err == nil {
			networks = append(networks, network)
		}
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	return networks
}

func exists(h machost.Host, path string) (bool, error) {
	_, err := h.Stat(path)
	if isMissing(err) {
		return false, nil
	}
	return err == nil, err
}
