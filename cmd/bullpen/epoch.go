package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/internal/server/restore/rebuild"
)

// epochConfig is how the server handles a restored database.
type epochConfig struct {
	namespace string
	hold      time.Duration
}

func (c *epochConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.namespace, "namespace", "bullpen-system",
		"the server's own namespace; its ConfigMap "+cluster.CopyName+" detects a restored database")
	f.DurationVar(&c.hold, "restore-hold", time.Minute,
		"how long dispatch and removal are frozen after a restore of the database, while claims are rebuilt from pods and GitHub")
}

// newKeeper guards the store: nothing is claimed or granted until the keeper has seen that the database is the latest.
func newKeeper(cfg serverConfig, r *replica, forge *github.Client, lists *roster.Reader) (*epoch.Keeper, error) {
	if cfg.epoch.hold < time.Second {
		return nil, fmt.Errorf("--restore-hold must be 1s or more (1m for GitHub's lists to be current), got %s", cfg.epoch.hold)
	}
	copies, err := cluster.NewCopies(r.view.Config(), cfg.epoch.namespace)
	if err != nil {
		return nil, err
	}
	rebuilder, err := rebuild.New(rebuild.Options{
		Pods: r.view.ListPods, Pool: r.view.Pool, Lists: lists, Ledger: r.store, Forge: forge, Log: r.log, Now: r.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	r.store.Guard()
	return epoch.New(epoch.Options{
		Ledger: r.store, Copies: copies, Rebuild: rebuilder.Run, Unexplained: r.unexplained,
		Frozen: func(string) {
			r.store.Restored()
			r.dispatcher.LedgerFrozen()
		},
		Resumed: func() {
			r.store.Restored() // what was remembered while the database was being put in place
			r.dispatcher.LedgerResumed()
		},
		Missed: func(ctx context.Context, since time.Time) error { return r.catchup.Everything(ctx, since) },
		Hold:   cfg.epoch.hold, Log: r.log, Metrics: r.registry,
	})
}

// unexplained reports busy pods that are not in the ledger.
func (r *replica) unexplained(ctx context.Context) (bool, error) {
	pods, err := r.view.ListPods(ctx)
	if err != nil {
		return false, err
	}
	var working []string
	for _, pod := range pods {
		if pod.OwnerLabel != "" || pod.PollerEnded {
			working = append(working, pod.UID)
		}
	}
	if len(working) == 0 {
		return false, nil
	}
	known, err := r.store.Heard(ctx, working)
	return len(known) < len(working), err
}

// A server that has just started does not dispatch until it has read its database: passes wait for so long.
const gatePatience = 5 * time.Second

// unlessFrozen makes passes do nothing while the ledger is frozen: their input is being rebuilt (CLAIM-17).
func unlessFrozen(gate dispatch.Gate, list []periodic.Pass) []periodic.Pass {
	for i, pass := range list {
		list[i].Run = func(ctx context.Context) error {
			if !opens(ctx, gate) {
				return nil
			}
			return pass.Run(ctx)
		}
	}
	return list
}

// opens reports whether the ledger is not frozen, or not for long.
func opens(ctx context.Context, gate dispatch.Gate) bool {
	_, resumed, frozen := gate.Frozen()
	if !frozen {
		return true
	}
	wait := time.NewTimer(gatePatience)
	defer wait.Stop()
	select {
	case <-resumed:
		return true
	case <-wait.C:
	case <-ctx.Done():
	}
	return false
}

// checkUnlessFrozen is unlessFrozen for the check of one pod.
func checkUnlessFrozen(gate dispatch.Gate, check func(context.Context, string) error) func(context.Context, string) error {
	if check == nil {
		return nil
	}
	return func(ctx context.Context, podUID string) error {
		if !opens(ctx, gate) {
			return nil // recovery's pass checks every pod afterwards
		}
		return check(ctx, podUID)
	}
}
