package ledger

import (
	"os"
	"testing"
	"time"

	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Alone(m.Run)) }

const (
	patience = 20 * time.Second
	interval = time.Millisecond
)
