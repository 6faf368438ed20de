package ledger

import (
	"testing"
	"time"

	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const (
	patience = 20 * time.Second
	interval = time.Millisecond
)
