package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
)

// keepFlags are the flags that say how long rows are kept.
func keepFlags(f *pflag.FlagSet, keep *retention.Policy) {
	*keep = retention.Default()
	f.DurationVar(&keep.Jobs, "keep-jobs", keep.Jobs, "how long completed jobs are kept")
	f.DurationVar(&keep.Tombstones, "keep-tombstones", keep.Tombstones,
		"how long completed job IDs are kept, so that late webhooks do not revive jobs")
	f.DurationVar(&keep.Sessions, "keep-sessions", keep.Sessions, "how long runners' sessions are kept; usage is computed from them")
	f.DurationVar(&keep.Deliveries, "keep-deliveries", keep.Deliveries,
		"how long webhook delivery IDs are kept, to detect redeliveries")
	f.DurationVar(&keep.Repositories, "keep-repositories", keep.Repositories,
		"how long a repository is kept after its last job")
	f.DurationVar(&keep.Installations, "keep-ended-installations", keep.Installations,
		"how long deleted installations are kept, so that late webhooks do not revive them")
	f.DurationVar(&keep.Audit, "keep-audit", keep.Audit, "how long the audit log is kept")
}

func newRetention(cfg serverConfig, r *replica) (*retention.Retention, error) {
	keep, err := retention.New(retention.Options{Store: r.store, Policy: cfg.keep, Log: r.log, Metrics: r.registry, Now: r.clock.Now})
	if err != nil {
		return nil, fmt.Errorf("retention (--keep-jobs, --keep-tombstones, --keep-sessions, --keep-deliveries, --keep-repositories, "+
			"--keep-ended-installations, --keep-audit): %w", err)
	}
	return keep, nil
}
