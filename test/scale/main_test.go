package scale

import (
	"flag"
	"os"
	"testing"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

var (
	podsFlag  = flag.Int("pods", 40, "size of the pool")
	nodesFlag = flag.Int("nodes", 2, "node agents")
	jobsFlag  = flag.Int("jobs", 0, "jobs on their way at a time (default: one for each 20 pods, at most 6: two cores replace a few runners a second)")
)

func TestMain(m *testing.M) {
	os.Exit(postgrestest.Run(func() int { return kit.Main(m) }))
}
