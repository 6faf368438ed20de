package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// CLAIM-5: what GitHub blocks is blocked from the moment at which that is committed: a batch that is under way then either
// has committed before, or claims nothing.
func TestSuspend_CLAIM5_GitHubsWordWaitsForTheBatchThatIsUnderWay(t *testing.T) {
	suspended := dispatch.Installation{Account: acme, Suspended: true}
	other := dispatch.Installation{Account: dispatch.Account{ID: 2, Login: "beta", InstallationID: 102}}
	for name, block := range map[string]func(h *harness) error{
		"a message that it is suspended": func(h *harness) error {
			_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{Action: "suspend", Account: acme})
			return err
		},
		"a message that it is no more": func(h *harness) error {
			_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{Action: "deleted", Account: acme})
			return err
		},
		"a message that it is another's": func(h *harness) error {
			again := dispatch.Account{ID: 3, Login: "acme", InstallationID: acme.InstallationID}
			_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{Action: "created", Account: again})
			return err
		},
		"a list that shows it suspended": func(h *harness) error {
			_, err := h.store.SyncInstallations(t.Context(), time.Now().Add(time.Hour), time.Now(), []dispatch.Installation{suspended})
			return err
		},
		"a list that lacks it": func(h *harness) error {
			_, err := h.store.SyncInstallations(t.Context(), time.Now().Add(time.Hour), time.Now(), []dispatch.Installation{other})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.queue(1)
			h.queue(2)
			if name == "a list that lacks it" { // the second time counts
				require.NoError(t, block(h))
			}
			b := h.batchOf(linuxPool("linux"), dispatch.LabelKey([]string{"linux"}), 1)
			done := make(chan error, 1)
			committed := false
			b.Reserve = func(_ dispatch.Account, want int) int { // it has seen that the account may be served
				go func() { done <- block(h) }()
				require.Eventually(t, func() bool {
					select {
					case err := <-done:
						committed = true
						done <- err
						return true
					default:
						return ledgertest.Int(t, h.url, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) > 0
					}
				}, 20*time.Second, time.Millisecond)
				return want
			}
			result, err := h.store.ClaimBatch(t.Context(), b)
			require.NoError(t, err)
			require.NoError(t, await.Receive(t, done, "the account is blocked"))
			require.False(t, committed && len(result.Claims) > 0, "a claim was made after the account was blocked")
			require.Len(t, result.Claims, 1)
			require.Empty(t, h.claims(linuxPool("linux"), 1))
		})
	}
}
