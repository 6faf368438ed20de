package dispatch_test

import (
	"cmp"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/chaos"
)

// behindProxy is a proxy to the database, and the database's URL through it.
func behindProxy(t *testing.T, database string) (*chaos.Proxy, string) {
	t.Helper()
	at, err := url.Parse(database)
	require.NoError(t, err)
	query, target := at.Query(), at.Host
	if dir := query.Get("host"); dir != "" {
		target = dir + "/.s.PGSQL." + cmp.Or(query.Get("port"), at.Port(), "5432")
	}
	proxy, err := chaos.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	query.Del("host")
	query.Del("port")
	at.Host, at.RawQuery = proxy.Addr(), query.Encode()
	return proxy, at.String()
}

// RECV-5: a proxy keeps the connection that listens open, although nothing arrives by it any more. Jobs of a label set that the replica has
// never seen are announced there only: they must not wait for a change of a pool.
func TestListening_RECV5_ASilentConnectionStarvesNoNewLabelSet(t *testing.T) {
	h := newHarness(t)
	h.cluster.PutPool(linuxPool("linux", "linux", "self-hosted"))
	proxy, through := behindProxy(t, h.url)
	h.listen = postgres.Listening{URL: through, Quiet: 100 * time.Millisecond, Timeout: 100 * time.Millisecond}
	d := h.replica()
	h.queue(1)
	h.started(d, h.pod("linux"), 1)
	before := proxy.Accepted()
	proxy.Set(chaos.Conditions{HoldDown: true})

	h.record(job(fleet.JobEventQueued, 2, labelled("linux", "self-hosted")))
	waiting := h.poll(await.Context(t), d, h.pod("linux"))
	h.eventually("the connection is checked and replaced", func() bool { return proxy.Accepted() > before })
	proxy.Heal()
	got := await.Receive(t, waiting, "a job of a new label set is dispatched")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}
