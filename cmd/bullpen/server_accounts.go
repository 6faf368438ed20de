package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
	"github.com/bullpen-ci/bullpen/internal/server/why"
)

// adminConfig configures accounts and the administrators' API.
type adminConfig struct {
	listen               string
	linuxJobs, macosJobs string
	repositoryCaps       bool
	authorPolicy         string
}

func (c *adminConfig) flags(f *pflag.FlagSet) {
	const like = ", such as jobs=40,cpu=32,memory=64Gi,jobs-per-repository=5; others keep the built-in default"
	f.StringVar(&c.listen, "admin-listen", ":8082", "listen address for the administrators' API and the console; empty: disabled")
	f.StringVar(&c.authorPolicy, "author-policy", "", "name of the chart's admission policy on authors, and of its binding: while it is enforced, the audit log "+
		"records names of users as verified; empty: as stated by the client")
	f.StringVar(&c.linuxJobs, "default-limits-linux", "", "limits of new accounts on Linux"+like)
	f.BoolVar(&c.repositoryCaps, "repository-caps", false, "enforce limits per repository; set it on all servers. Recovery then reads the runners of "+
		"every repository, because runners of an account with such a limit are registered there")
	f.StringVar(&c.macosJobs, "default-limits-macos", "", "limits of new accounts on macOS"+like)
}

// defaultLimits are those of accounts that appear from now on; accounts that are known keep theirs.
func (c *adminConfig) defaultLimits() (map[fleet.Platform]fleet.Limits, error) {
	limits := map[fleet.Platform]fleet.Limits{}
	for platform, text := range map[fleet.Platform]string{fleet.Linux: c.linuxJobs, fleet.MacOS: c.macosJobs} {
		limits[platform] = fleet.DefaultLimits(platform)
		if text == "" {
			continue
		}
		var err error
		if limits[platform], err = fleet.ParseLimits(text, limits[platform]); err != nil {
			return nil, fmt.Errorf("reading --default-limits-%s: %w", platform, err)
		}
		if limits[platform].JobsPerRepository > 0 && !c.repositoryCaps {
			return nil, fmt.Errorf("--default-limits-%s has jobs-per-repository: add --repository-caps, on every server", platform)
		}
	}
	return limits, nil
}

func newAdminAPI(cfg serverConfig, r *replica) (*admin.API, error) {
	rest, err := clusterConfig(cfg.kubeconfig)
	if err != nil {
		return nil, err
	}
	rest.UserAgent = "bullpen-server"
	if cfg.admin.authorPolicy != "" {
		if r.authors, err = cluster.NewAuthors(cluster.AuthorsOptions{Config: rest, Policy: cfg.admin.authorPolicy}); err != nil {
			return nil, err
		}
	}
	access, err := cluster.NewAdmins(cluster.AdminsOptions{
		Config: rest, RunnerNamespace: cfg.namespace, Namespace: cfg.epoch.namespace, Authors: r.authors,
	})
	if err != nil {
		return nil, err
	}
	return admin.New(admin.Options{
		Store: r.store, Access: access, Fleet: fleetView{r}, Trace: r.tracer.Trace, GitHub: pagesOf(r.forge.Site()), Log: r.log, Metrics: r.registry,
		Now: r.clock.Now, Version: version,
	})
}

func newPoolAudit(cfg serverConfig, r *replica) (*poolaudit.Auditor, error) {
	opt := poolaudit.Options{Store: r.store, Source: r.view, Namespace: cfg.namespace, Log: r.log, Now: r.clock.Now}
	if r.authors != nil {
		opt.Verified = r.authors.Enforced
	}
	return poolaudit.New(opt)
}

// pagesOf is the web address of GitHub that jobs link to. A GitHub on this machine is a stand-in, which has no pages.
func pagesOf(site string) string {
	at, err := url.Parse(site)
	if err != nil || at.Hostname() == "localhost" || net.ParseIP(at.Hostname()).IsLoopback() {
		return ""
	}
	return site
}

// fleetView is what the admin API reads beside the ledger. It is called only while requests are served: the dispatcher is made later.
type fleetView struct{ r *replica }

func (f fleetView) Pools() []dispatch.Pool { return f.r.view.Pools() }

func (f fleetView) Hosts() ([]adminapi.Host, bool) { return f.r.view.Hosts() }

func (f fleetView) PoolStatus(ref dispatch.PoolRef) (why.Pool, bool) { return f.r.view.PoolStatus(ref) }

func (f fleetView) Backoff(account dispatch.Account) (time.Time, bool) {
	return f.r.dispatcher.Backoff(account)
}

func (f fleetView) DescribePools() []adminapi.Pool { return f.r.view.DescribePools() }

func (f fleetView) PodsOfPool(ref dispatch.PoolRef) []admin.RunnerPod {
	return f.r.view.PodsOfPool(ref)
}

func (f fleetView) Demand(ctx context.Context) ([]runnerapi.PoolSignals, error) {
	signals, err := f.r.dispatcher.Signals(ctx)
	return signals.Pools, err
}

func (f fleetView) Lanes(ctx context.Context) (map[dispatch.LaneRef]dispatch.LaneDemand, error) {
	return f.r.dispatcher.Lanes(ctx)
}

func (f fleetView) Unserved(ctx context.Context) (dispatch.Unserved, error) {
	return f.r.dispatcher.Unserved(ctx)
}

func (f fleetView) Outside(labels []string) fleet.Outside { return f.r.dispatcher.Outside(labels) }

func (f fleetView) PoolRefused(pool dispatch.PoolRef, account int64) (dispatch.PoolRefusal, bool) {
	return f.r.dispatcher.PoolRefused(pool, account)
}

func (f fleetView) Frozen() (string, bool) { return f.r.dispatcher.Frozen() }

func (f fleetView) Runner(namespace, name string) (dispatch.Pod, bool) {
	for _, pod := range f.r.view.Pods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return dispatch.Pod{}, false
}

func (f fleetView) ClaimChanged(podUID string) { f.r.dispatcher.ClaimChanged(podUID) }

// accountPasses keep accounts in step with GitHub, and with their own caps.
func (r *replica) accountPasses() []periodic.Pass {
	return []periodic.Pass{
		{Name: "installations", Every: installations.Every, Run: r.installations.Run},
		{Name: "repositories", Every: installations.RepositoriesEvery, Timeout: 10 * time.Minute, Run: r.repositories.Run},
		{Name: "blocked_jobs", Every: time.Minute, Run: r.store.ReturnBlocked},
		{Name: "limited_lanes", Every: time.Minute, Run: r.store.UnparkUncharged},
		{Name: "lanes", Every: 15 * time.Minute, Run: func(ctx context.Context) error {
			put, err := r.store.RecountLanes(ctx)
			if put > 0 {
				r.log.WarnContext(ctx, "lanes had another number of live claims than there are; they were counted again", "lanes", put)
			}
			return err
		}},
		{Name: "deleted_accounts", Every: time.Hour, Run: func(ctx context.Context) error {
			_, err := r.store.ForgetDeletedAccounts(ctx, r.clock.Now(), 100)
			return err
		}},
	}
}

// registersAtRepositories reports whether runners of organizations may be registered at repositories (EXCL-6): a reading that leaves those
// out proves no runner absent.
func (r *replica) registersAtRepositories() bool {
	return r.cfg.admin.repositoryCaps || r.view.RegistersAtRepositories()
}
