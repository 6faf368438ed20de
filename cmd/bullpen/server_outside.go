package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// outsideConfig names the labels of runners outside of RunnerPools.
type outsideConfig struct{ github, other []string }

func (c *outsideConfig) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.github, "github-hosted-labels", []string{fleet.StandardPatterns}, "labels of GitHub's own runners, separated by commas: jobs for them are "+
		`not reported as jobs that no pool serves; * stands for any characters, "default" for GitHub's standard labels (docs/guides/why.md)`)
	f.StringSliceVar(&c.other, "other-runner-labels", nil, "labels of runners that register themselves and of other fleets, separated by commas: as --github-hosted-labels")
}

func (c *outsideConfig) runners() (fleet.OutsideRunners, error) {
	github, err := fleet.ParseLabelPatterns(c.github)
	if err != nil {
		return fleet.OutsideRunners{}, fmt.Errorf("reading --github-hosted-labels: %w", err)
	}
	other, err := fleet.ParseLabelPatterns(c.other)
	if err != nil {
		return fleet.OutsideRunners{}, fmt.Errorf("reading --other-runner-labels: %w", err)
	}
	return fleet.OutsideRunners{GitHub: github, Other: other}, nil
}
