package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
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
	f.DurationVar(&keep.Repositories, "keep-repositories", keep.Repositories,
		"how long a repository is remembered after its last job was heard of")
	f.DurationVar(&keep.Installations, "keep-ended-installations", keep.Installations,
		"how long it is remembered that an installation has ended, so that no late message brings it back")
	f.DurationVar(&keep.Audit, "keep-audit", keep.Audit, "how long the audit log is kept: who changed what about an account")
}

func newRetention(cfg serverConfig, r *replica) (*retention.Retention, error) {
	keep, err := retention.New(retention.Options{Store: r.store, Policy: cfg.keep, Log: r.log, Metrics: r.registry, Now: r.clock.Now})
	if err != nil {
		return nil, fmt.Errorf("what to keep (--keep-jobs, --keep-tombstones, --keep-sessions, --keep-deliveries, --keep-repositories, "+
			"--keep-ended-installations, --keep-audit): %w", err)
	}
	return keep, nil
}
