package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// The cost of checking the epoch in a statement (CLAIM-17): a claim or a retirement is one transaction of several.
func BenchmarkRetire_CLAIM17(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		b.Run(fmt.Sprintf("guarded=%t", guarded), func(b *testing.B) {
			store, err := ledger.Open(b.Context(), postgrestest.NewDatabase(b, ledger.Migrate), 0)
			require.NoError(b, err)
			b.Cleanup(store.Close)
			if guarded {
				row, err := store.Epoch(b.Context())
				require.NoError(b, err)
				store.Know(row.Mark)
			}
			n := 0
			for b.Loop() {
				n++
				uid := fmt.Sprintf("%t-%d", guarded, n)
				_, err := store.Retire(b.Context(), []dispatch.Pod{{Namespace: "ns", Name: uid, UID: uid}}, time.Now())
				require.NoError(b, err)
			}
		})
	}
}
