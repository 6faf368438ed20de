package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/catchup"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// How payloads come.
const (
	webhooksPush = "push"
	webhooksPoll = "poll"
)

// webhookConfig is how the server hears of jobs, and for how long it believes what it heard.
type webhookConfig struct {
	mode       string
	secretFile string
	limits     catchup.Options // only what flags set
}

func (c *webhookConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.mode, "webhooks", webhooksPush,
		"push: GitHub delivers webhooks to --listen; poll: it cannot, and they are fetched from its list of deliveries")
	f.StringVar(&c.secretFile, "webhook-secret-file", "", "file that holds the App's webhook secret (not with --webhooks=poll)")
	f.DurationVar(&c.limits.Every, "catch-up-every", catchup.DefaultEvery,
		"time from one look to the next at GitHub's lists of what it has delivered; a repository's queue is swept at a fifth of that pace")
	f.DurationVar(&c.limits.AskAfter, "queued-ask-after", catchup.DefaultAskAfter,
		"how long a job waits until GitHub is asked what has become of it, and until it is asked again")
	f.DurationVar(&c.limits.StaleAfter, "queued-stale-after", catchup.DefaultStaleAfter,
		"how long a job waits until it is given up, if GitHub cannot say what has become of it")
	f.IntVar(&c.limits.RerunLostJobs, "rerun-lost-jobs", 0,
		"how often GitHub is asked to run a job again because its node died, for each name of a job in a run; 0 is never")
}

// poll reports whether payloads are fetched.
func (c *webhookConfig) poll() bool { return c.mode == webhooksPoll }

// secret of GitHub's signatures; empty when nothing is delivered.
func (c *webhookConfig) secret() (string, error) {
	switch c.mode {
	case webhooksPoll:
		return "", nil
	case webhooksPush:
		return readSecretFile(c.secretFile, "the webhook secret (--webhook-secret-file)")
	default:
		return "", fmt.Errorf("--webhooks=%s is not known: use push if GitHub can reach this server, or poll if it cannot", c.mode)
	}
}

// newCatchUp finds what GitHub did not tell, or told in vain.
func newCatchUp(r *replica, forge *github.Client) (*catchup.CatchUp, error) {
	opt := r.cfg.webhooks.limits
	opt.Ledger, opt.Forge, opt.Intake, opt.Pools = r.store, forge, r.intake, r.view.Pools
	opt.Poll, opt.Count, opt.Off = r.cfg.webhooks.poll(), r.recovery.Count, r.recovery.IsOff
	opt.Log, opt.Metrics, opt.Now = r.log.With("component", "catchup"), r.registry, r.clock.Now
	return catchup.New(opt)
}
