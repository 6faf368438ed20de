package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// hostname sets the three names that a Mac has.
type hostname struct{ name string }

func newHostname(p machost.Payload, _ Facts) (machost.Step, error) {
	if p.Config.Hostname == "" {
		return nil, nil
	}
	return hostname{p.Config.Hostname}, nil
}

const scutil = "/usr/sbin/scutil"

// Name is "hostname".
func (hostname) Name() string { return "hostname" }

// Check asks for each name; one that was never set is a failure of scutil's.
func (s hostname) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	names, err := s.differing(ctx, h)
	for _, name := range names {
		diff.Changes = append(diff.Changes, fmt.Sprintf("set %s to %s", name, s.name))
	}
	return diff, err
}

func (s hostname) differing(ctx context.Context, h machost.Host) ([]string, error) {
	var names []string
	for _, name := range []string{"ComputerName", "HostName", "LocalHostName"} {
		said, err := h.Run(ctx, machost.Command{Path: scutil, Args: []string{"--get", name}})
		if err != nil {
			return nil, err
		}
		if said.ExitCode != 0 || strings.TrimSpace(string(said.Stdout)) != s.name {
			names = append(names, name)
		}
	}
	return names, nil
}

// Apply sets the names that differ.
func (s hostname) Apply(ctx context.Context, h machost.Host) error {
	names, err := s.differing(ctx, h)
	for _, name := range names {
		if _, err := run(ctx, h, scutil, "--set", name, s.name); err != nil {
			return err
		}
	}
	return err
}

// Verify has nothing to prove: the names are in force where they are kept.
func (hostname) Verify(context.Context, machost.Host) error { return nil }
