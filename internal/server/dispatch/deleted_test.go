package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// A check of a pod that is deleted while it is registered at GitHub finds a lease, and does nothing. It is requested again at the lease's end:
// no change of the pod may follow.
func TestPodDeleted_EXCL8_ChecksAgainAtTheEndOfALease(t *testing.T) {
	for name, outcome := range map[string]error{"registered": nil, "in doubt": fleet.ErrUncertain} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			pod := h.pod("linux")
			leased := make(chan bool, 10)
			d := h.replica(func(o *dispatch.Options) {
				o.CheckPod = func(ctx context.Context, uid string) error {
					claim, err := h.store.Claim(ctx, uid)
					leased <- !claim.LeaseUntil.IsZero()
					return err
				}
			})
			h.forge.Set(func(g *dispatchtest.GitHub) {
				g.OnMint = func(string) error {
					deleting := pod
					deleting.Deleting = true
					h.cluster.PutPod(deleting)
					d.PodChanged(deleting)
					require.True(t, await.Receive(t, leased, "the deletion is checked"))
					return outcome
				}
			})
			h.queue(1)
			_, err := d.Poll(await.Context(t), pod, 0)
			require.True(t, err == nil || errors.Is(err, fleet.ErrUncertain), "%v", err)
			require.False(t, await.Receive(t, leased, "it is checked again"))
		})
	}
}

// A lease that no replica ends, because GitHub's response was uncertain at the repository's address, expires: the pod that was deleted during it is
// checked after that.
func TestPodDeleted_EXCL8_ChecksAgainWhenALeaseHasExpired(t *testing.T) {
	for _, name := range []string{"registration in doubt", "removal in doubt"} {
		t.Run(name, func(t *testing.T) {
			h, c := newHarness(t), newClock()
			c.at = c.at.Truncate(time.Second) // as the ledger stores it
			pool := linuxPool("linux")
			pool.RepositoryScope = true
			h.cluster.PutPool(pool)
			pod := h.pod("linux")
			leased := make(chan bool, 10)
			d := h.replica(at(c), func(o *dispatch.Options) {
				o.CheckPod = func(ctx context.Context, uid string) error {
					claim, err := h.store.Claim(ctx, uid)
					leased <- claim.Leased(c.now())
					return err
				}
			})
			deletePod := func() {
				deleting := pod
				deleting.Deleting = true
				h.cluster.PutPod(deleting)
				d.PodChanged(deleting)
				require.True(t, await.Receive(t, leased, "the deletion is checked"))
			}
			h.forge.Set(func(g *dispatchtest.GitHub) {
				g.OnMint = func(string) error {
					if name == "registration in doubt" {
						deletePod()
					}
					return fleet.ErrUncertain
				}
				g.OnFind = func(context.Context, string) { deletePod() }
				g.RemoveErr = fleet.ErrUncertain
			})
			h.queue(1)
			_, err := d.Poll(await.Context(t), pod, 0)
			require.NoError(t, err)
			if name == "removal in doubt" {
				c.pass(dispatch.LongestLease)
				_, err = d.Poll(await.Context(t), pod, 0)
				require.NoError(t, err)
			}
			until := h.claim(pod).LeaseUntil
			require.True(t, until.After(c.now()), "nothing has ended the lease")
			require.True(t, await.Receive(t, leased, "it is checked again when GitHub has responded"))
			wait := until.Sub(c.now()) + time.Second
			c.pass(wait)
			h.eventually("a check is due", func() bool { return h.timers.fire(wait) > 0 })
			require.False(t, await.Receive(t, leased, "it is checked when the lease has expired"))
		})
	}
}
