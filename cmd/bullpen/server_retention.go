package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/retention"
)

// keepFlags are the flags that say how long rows are kept.
func keepFlags(f *pflag.FlagSet, keep *retention.Policy) {
	*keep = retention.Default()
	f.DurationVar(&keep.Jobs, "keep-jobs", keep.Jobs, "how long jobs that have ended are kept")
	f.DurationVar(&keep.Tombstones, "keep-tombstones", keep.Tombstones,
		"how long it is remembered that a job has ended, so that no late message revives it")
	f.DurationVar(&keep.Sessions, "keep-sessions", keep.Sessions, "how long runners' sessions are kept: usage is read from them")
	f.DurationVar(&keep.Deliveries, "keep-deliveries", keep.Deliveries,
		"how long webhook deliveries are remembered, by which one that comes again is known")
}

func newRetention(cfg serverConfig, r *replica) (*retention.Retention, error) {
	keep, err := retention.New(retention.Options{Store: r.store, Policy: cfg.keep, Log: r.log, Metrics: r.registry, Now: r.clock.Now})
	if err != nil {
		return nil, fmt.Errorf("what to keep (--keep-jobs, --keep-tombstones, --keep-sessions, --keep-deliveries): %w", err)
	}
	return keep, nil
}
