package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	warmPolls = 1000
	p1Jobs    = 300
)

// BenchmarkP1 measures from the moment a webhook is sent to the JIT configuration in the agent's hands, one job at a
// time, while 1,000 warm pods poll. GitHub is the stand-in, which answers at once, over HTTP and through the real client.
func BenchmarkP1(b *testing.B) {
	_, forge := startGitHub(b, "")
	r := newRig(b, forge)
	acme := dispatch.Account{ID: 1, Login: "acme", InstallationID: 42}
	r.install(acme)
	r.hook("completed", 1, acme, "") // makes the label set known

	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan jit, warmPolls)
	var agents sync.WaitGroup
	defer func() { cancel(); await.Return(b, agents.Wait, "the agents end") }()
	launch := func() {
		pod := r.newPod()
		agents.Go(func() { r.agent(ctx, pod, served) })
	}
	for range warmPolls {
		launch()
	}
	require.Eventually(b, func() bool { return r.dispatcher.WaitingPolls() == warmPolls }, time.Minute, 10*time.Millisecond)

	bare := newBareCommit(b, database.DatabaseURL("postgres"))
	for b.Loop() {
		var samples []time.Duration
		for i := range p1Jobs + 20 {
			bare.measure(b)
			id := int64(1000 + i)
			start := time.Now()
			r.hook("queued", id, acme, "")
			got := await.ReceiveWithin(b, 5*time.Minute, served, "the poll is served")
			if i >= 20 { // the first ones fill caches
				samples = append(samples, got.at.Sub(start))
			}
			launch()
			r.hook("completed", id, acme, got.RunnerName)
		}
		p50, p99 := stats.Quantile(samples, .5), stats.Quantile(samples, .99)
		base50, base99 := stats.Quantile(bare.samples, .5), stats.Quantile(bare.samples, .99)
		ratio50, ratio99 := float64(p50)/float64(base50), float64(p99)/float64(base99)
		b.ReportMetric(ratio50, "p50-ratio")
		b.ReportMetric(ratio99, "p99-ratio")
		limit := fmt.Sprintf("two-row commit: p50 %s, p99 %s", ms(base50), ms(base99))
		report(row{
			id: "P1", what: "webhook → JIT, 1,000 idle runners, p50", measured: ms(p50), limit: limit, result: fmt.Sprintf("%.1f×", ratio50), value: ratio50,
			samples: len(samples), spread: quartiles(samples), budget: "≤ 8×", kept: ratio50 <= 8,
		})
		report(row{
			id: "P1", what: "webhook → JIT, 1,000 idle runners, p99", measured: ms(p99), limit: limit, result: fmt.Sprintf("%.1f×", ratio99), value: ratio99,
			samples: len(samples), spread: quartiles(samples), budget: "≤ 25×", kept: ratio99 <= 25,
		})
	}
}

// startGitHub runs the stand-in and the real client on it.
func startGitHub(tb testing.TB, webhooks string) (*standin.Local, *github.Client) {
	tb.Helper()
	local, err := standin.Start(context.Background(), standin.Options{
		WebhookURL: webhooks, WebhookSecret: hookSecret,
		Registration: standin.RateLimit{Limit: 1_000_000}, Core: standin.RateLimit{Limit: 1_000_000},
		Installations:     []standin.Installation{{ID: 42, Account: "acme", Type: "Organization", Repositories: []string{"app"}}},
		ShuffleAssignment: true,
	})
	require.NoError(tb, err)
	tb.Cleanup(local.Close)
	client, err := github.New(github.Options{BaseURL: local.URL + "/api/v3", AppID: 1, PrivateKey: local.AppKeyPEM})
	require.NoError(tb, err)
	return local, client
}
