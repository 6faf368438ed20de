package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// A path may hold any bytes: those that no text of the ledger can have are an answer, not an outage.
func TestAccounts_NET5_BytesThatAreNoTextNameNoAccount(t *testing.T) {
	store, err := ledger.Open(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	for _, ref := range []string{"acme\x00", "acme\xff"} {
		_, err := store.Account(t.Context(), ref)
		require.ErrorIs(t, err, admin.ErrNotFound, "%q", ref)
		_, err = store.Audit(t.Context(), admin.AuditQuery{Account: ref, Most: 1})
		require.ErrorIs(t, err, admin.ErrNotFound, "%q", ref)
		_, err = store.Audit(t.Context(), admin.AuditQuery{Pool: ref, Most: 1})
		require.ErrorIs(t, err, admin.ErrNotFound, "%q", ref)
		_, _, err = store.Accounts(t.Context(), admin.AccountQuery{After: ref + "@1", Most: 1})
		var invalid *admin.InvalidError
		require.ErrorAs(t, err, &invalid, "%q", ref)
	}
}
