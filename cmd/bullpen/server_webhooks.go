package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/credential"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
)

// How payloads come.
const (
	webhooksPush = "push"
	webhooksPoll = "poll"
)

// webhookConfig is how the server receives webhooks, and the limits of the catch-up.
type webhookConfig struct {
	mode         string
	secretFile   string
	previousFile string
	limits       catchup.Options // only what flags set
}

func (c *webhookConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.mode, "webhooks", webhooksPush,
		"push: GitHub delivers webhooks to --listen; poll: they are read from GitHub's list of deliveries")
	f.StringVar(&c.secretFile, "webhook-secret-file", "", "file with the App's webhook secret (not with --webhooks=poll)")
	f.StringVar(&c.previousFile, "webhook-previous-secret-file", "",
		"file with the previous webhook secret, accepted too during a rotation; it need not exist")
	f.DurationVar(&c.limits.Every, "catch-up-every", catchup.DefaultEvery,
		"interval of reading GitHub's lists of deliveries; repositories' queues are swept at five times this interval")
	f.DurationVar(&c.limits.AskAfter, "queued-ask-after", catchup.DefaultAskAfter,
		"how long a job is queued before its state is read from GitHub, and the interval of further reads")
	f.DurationVar(&c.limits.StaleAfter, "queued-stale-after", catchup.DefaultStaleAfter,
		"how long a job is queued before it is marked stale, if GitHub does not know its state")
	f.IntVar(&c.limits.RerunLostJobs, "rerun-lost-jobs", 0,
		"how often a job is rerun at GitHub after its node was lost, by name of the job in a run; 0: never")
}

// poll reports whether payloads are fetched.
func (c *webhookConfig) poll() bool { return c.mode == webhooksPoll }

// check refuses what makes no sense.
func (c *webhookConfig) check() error {
	switch {
	case c.mode != webhooksPoll && c.mode != webhooksPush:
		return fmt.Errorf("--webhooks must be push (GitHub can reach this server) or poll (it cannot), got %q", c.mode)
	case c.mode == webhooksPush && c.secretFile == "":
		return errors.New("no webhook secret: set --webhook-secret-file to a file with the secret of the App's settings, or use --webhooks=poll")
	}
	return nil
}

// credential keeps the secrets that webhooks are signed with as their files are.
func (c *webhookConfig) credential(into *github.WebhookSecrets) credential.Source {
	files := []credential.File{{Path: c.secretFile}}
	if c.previousFile != "" {
		files = append(files, credential.File{Path: c.previousFile, Optional: true})
	}
	return credential.Source{Name: "webhook_secret", Files: files, Use: func(_ context.Context, contents [][]byte) error {
		previous := ""
		if len(contents) > 1 {
			previous = strings.TrimSpace(string(contents[1]))
		}
		return into.Set(strings.TrimSpace(string(contents[0])), previous)
	}}
}

// newCatchUp finds the events that GitHub did not deliver, or failed to.
func newCatchUp(r *replica, forge *github.Client) (*catchup.CatchUp, error) {
	opt := r.cfg.webhooks.limits
	opt.Ledger, opt.Forge, opt.Intake, opt.Pools = r.store, forge, r.intake, r.view.Pools
	opt.Poll, opt.Count, opt.Off = r.cfg.webhooks.poll(), r.recovery.Count, r.recovery.IsOff
	opt.Log, opt.Metrics, opt.Now = r.log.With("component", "catchup"), r.registry, r.clock.Now
	return catchup.New(opt)
}
