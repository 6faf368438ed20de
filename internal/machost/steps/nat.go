package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/pfrules"
)

// nat looks whether machines can reach anything at all. vmnet puts its translation below Apple's anchors, and pf evaluates it only if the main rule
// set refers to those. When an earlier load of /etc/pf.conf had failed, it did not: the node was Ready, every rule was right, and no
// machine had a network.
type nat struct{}

func newNAT(machost.Payload, Facts) (machost.Step, error) { return nat{}, nil }

// appleHooks are the lines of pf.conf under which vmnet's rules lie.
var appleHooks = []struct{ kind, name string }{{"nat-anchor", "com.apple/*"}, {"anchor", "com.apple/*"}}

// Name is "nat".
func (nat) Name() string { return "nat" }

// Check looks for Apple's hooks, in the file, to which nothing is added in Apple's name, and in force.
func (nat) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	text, _, err := readPFFile(h)
	if err != nil {
		return diff, err
	}
	rules, err := mainRules(ctx, h)
	if err != nil {
		return diff, err
	}
	for _, hook := range appleHooks {
		if !refersTo(statements(text), hook.kind, hook.name) {
			return diff, &machost.StepError{File: pfFile, Err: fmt.Errorf("the line %s %q is missing, which macOS needs for the network of virtual machines", hook.kind, hook.name),
				Remedy: "It was removed. Restore macOS's own lines, in their order (scrub-anchor, nat-anchor, rdr-anchor, dummynet-anchor and anchor \"com.apple/*\", then " +
					"load anchor \"com.apple\" from \"/etc/pf.anchors/com.apple\"), above all others, and apply again."}
		}
		if !refersTo(rules, hook.kind, hook.name) {
			diff.Changes = append(diff.Changes, fmt.Sprintf("load %s: the rules in force do not refer to Apple's %s, so virtual machines have no network", pfFile, hook.kind))
			diff.Disruptive = true
		}
	}
	return diff, nil
}

// Apply loads the whole file.
func (nat) Apply(ctx context.Context, h machost.Host) error { return loadMain(ctx, h) }

// Verify proves, while vmnet runs, that it translates and that the host forwards. Before the first machine there is nothing to prove.
func (nat) Verify(ctx context.Context, h machost.Host) error {
	up, err := vmnetRuns(ctx, h)
	if err != nil || len(up) == 0 {
		return err
	}
	machines, err := Machines(ctx, h)
	if err != nil || machines == 0 {
		return err // a bridge may stay for a while after the last machine
	}
	forwarding, err := run(ctx, h, "/usr/sbin/sysctl", "-n", "net.inet.ip.forwarding")
	if err != nil {
		return err
	}
	if strings.TrimSpace(forwarding) != "1" {
		return noNetwork(fmt.Errorf("%d virtual machines run, and the host forwards nothing for them (net.inet.ip.forwarding is %s)", machines, strings.TrimSpace(forwarding)))
	}
	translates, err := appleTranslates(ctx, h)
	if err != nil {
		return err
	}
	if !translates {
		return noNetwork(fmt.Errorf("%d virtual machines run on %s, and there is no nat rule of macOS's for them", machines, strings.Join(up, ", ")))
	}
	return nil
}

func noNetwork(err error) error {
	return &machost.StepError{File: pfFile, Err: err,
		Remedy: "They have no network. Cordon the node, wait until its jobs complete, stop every virtual machine, and start one: vmnet then sets it up again. If it recurs, restart the Mac."}
}

// vmnetRuns returns vmnet's bridges.
func vmnetRuns(ctx context.Context, h machost.Host) ([]string, error) {
	said, err := run(ctx, h, "/sbin/ifconfig", "-l")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(said), func(name string) bool {
		return !slices.Contains(pfrules.Bridges, name)
	}), nil
}

// appleTranslates looks for a nat rule in any anchor of Apple's: their names below com.apple differ between versions of macOS.
func appleTranslates(ctx context.Context, h machost.Host) (bool, error) {
	said, err := runPF(ctx, h, "-v", "-s", "Anchors")
	if err != nil {
		return false, err
	}
	for _, anchor := range strings.Fields(said) {
		if !strings.HasPrefix(anchor, "com.apple") {
			continue
		}
		said, err := runPF(ctx, h, "-a", anchor, "-s", "nat")
		var failed *pfError
		if errors.As(err, &failed) {
			continue // it went meanwhile
		}
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(statements(said), func(rule string) bool { return strings.HasPrefix(rule, "nat ") }) {
			return true, nil
		}
	}
	return false, nil
}
