package incidents

import (
	"os"
	"testing"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) {
	os.Exit(postgrestest.Alone(func() int { return kit.Main(m) }))
}

// count asks the ledger for a number.
func (w *world) count(sql string, args ...any) int64 {
	w.t.Helper()
	return ledgertest.Int(w.t, w.url, sql, args...)
}

// write changes the ledger past everything: as another program would.
func (w *world) write(sql string, args ...any) {
	w.t.Helper()
	ledgertest.Exec(w.t, w.url, sql, args...)
}
