package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/test/kit/chaos"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// buildFaults builds the product with its fault points.
func buildFaults(t *testing.T) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(binary), "bullpen-faults")
	require.NoError(t, gobuild.Build(path, "github.com/bullpen-ci/bullpen/cmd/bullpen", "-tags", "faultpoints"))
	return path
}

// rounds says which points are armed together. The first is reached by any job, and kills; the others are reached by what
// then makes up for it, or by the pod that takes the job's pod's place. Those that leave a lease behind come first.
var rounds = [][]faultpoint.Point{
	{faultpoint.MintAnswered},
	{faultpoint.ClaimInserted},
	{faultpoint.MintRecorded, faultpoint.RegistrationRemoved},
	{faultpoint.MintRecorded, faultpoint.MintIntended}, // the last of them: see leased
	{faultpoint.WebhookCommitted},
	{faultpoint.AnswerWritten, faultpoint.AccountCreated},
	{faultpoint.AckReceived, faultpoint.RemovalGranted},
	{faultpoint.AckRecorded, faultpoint.PodDeleted},
	{faultpoint.BeforeStamp, faultpoint.ContainerStarted, faultpoint.Adopting},
}

// ofRecovery are the points that recovery passes, whose patience is minutes here: they are reached in the soak, where it is
// seconds (TestSoak_RECV5_NET8_EverythingOnce).
var ofRecovery = []faultpoint.Point{faultpoint.ClaimTaken, faultpoint.ClaimEnded}

const roundJob = "on: push\njobs:\n  %s:\n    runs-on: bullpen\n    steps:\n      - run: echo done\n"

// leased is how many rounds leave a lease behind. After them the servers' clocks are set forward by more than a lease.
const leased = 4

// smallRounds is what make test has of the rounds: one that leaves a lease behind, and the last. The soak passes every
// point in make test, too (TestSoak_RECV5_NET8_EverythingOnce); here each is reached alone.
func smallRounds() [][]faultpoint.Point { return slices.Concat(rounds[2:3], rounds[len(rounds)-1:]) }

// TestFaultPoints_EachIsReachedAndKills starts the product with its fault points, lets it die at each of them, and expects every job to
// succeed nevertheless. As it is running anyway, its disk is filled afterwards, where that can be done.
func TestFaultPoints_EachIsReachedAndKills(t *testing.T) {
	deep.Only(t, "TestSoak_RECV5_NET8_EverythingOnce of test/soak, which passes each point")
	covered := map[faultpoint.Point]bool{}
	for _, round := range rounds {
		for _, point := range round {
			covered[point] = true
		}
	}
	for _, point := range ofRecovery {
		covered[point] = true
	}
	for _, point := range faultpoint.Points() {
		require.True(t, covered[point], "nothing reaches %s", point)
	}

	rounds, leased, runners := rounds, leased, "8"
	if !deep.Enabled() {
		rounds, leased, runners = smallRounds(), 1, "3"
	}
	points := chaos.Points{Dir: t.TempDir()}
	dir := stateDir(t)
	disk := smallDisk(t, dir)
	command := bullpen(t, "up", "--json", "--state-dir", dir, "--runners", runners)
	command.Path, command.Args[0] = buildFaults(t), "bullpen-faults"
	command.Env = append(command.Env, points.Environment())
	r, w := upAs(t, command)
	deaths := map[string]int{}
	for i, round := range rounds {
		for _, point := range round {
			require.NoError(t, points.Arm(point, 1, 0))
		}
		submit(t, dir, w, fmt.Sprintf(roundJob, fmt.Sprintf("round-%d", i)))
		for _, point := range round {
			deaths[point.Component()]++
			r.awaitDeaths(t, point, deaths[point.Component()])
			require.False(t, points.Armed(point, 0))
		}
		awaitReady(t, w)
		if i == leased-1 {
			require.NoError(t, points.Skew(0, 31*time.Second))
		}
	}
	for i := range rounds {
		name := fmt.Sprintf("round-%d", i)
		r.await(t, "the end of "+name, jobEnded(name, "success"))
	}
	if disk != nil {
		fillUp(t, r, w, dir, disk)
	}
}

// fullDisk is what fillUp needs of a chaos.Disk, which only Linux has.
type fullDisk interface {
	Fill(leave int64) error
	Drain() error
}

// fillUp leaves no room where everything keeps its state, and expects a job of that time to end, those that follow to be
// done, and nothing of ours to have died of it. The job itself may fail: its runner writes on the same disk, and says so to
// GitHub. Others may die of it, as etcd sometimes does, if they are there again afterwards.
func fillUp(t *testing.T, r *running, w *where, dir string, disk fullDisk) {
	t.Helper()
	before := r.ourDeaths()
	require.NoError(t, disk.Fill(0))
	submit(t, dir, w, fmt.Sprintf(roundJob, "crowded"))
	r.await(t, "the job in the queue", func(e event) bool { return e.Job != nil && e.Job.Name == "crowded" })
	require.NoError(t, disk.Drain())
	// GitHub does not repeat what the server could not store: the pass over its deliveries does, every minute.
	r.awaitWithin(t, patience+3*time.Minute, "the end of the job", func(e event) bool {
		return e.Job != nil && e.Job.Name == "crowded" && e.Job.Conclusion != ""
	})
	submit(t, dir, w, fmt.Sprintf(roundJob, "roomy"))
	r.awaitWithin(t, patience+3*time.Minute, "the end of the job that found room again", jobEnded("roomy", "success"))
	if died := r.ourDeaths()[len(before):]; len(died) > 0 {
		for _, part := range []string{"server", "controller", "node", "up"} {
			text, _ := os.ReadFile(filepath.Join(dir, "logs", part+".log"))
			t.Logf("%s:\n%s", part, text[max(0, len(text)-4000):])
		}
		require.Empty(t, died, "something of ours died of a full disk")
	}
}

// ourDeaths are the ends of servers, controllers and node agents, in their order.
func (r *running) ourDeaths() (died []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Event == "ended" && slices.Contains([]string{"server", "controller", "node"}, e.Part) {
			died = append(died, e.Part+": "+e.Message)
		}
	}
	return died
}

// awaitDeaths waits until that many processes of the point's component have been killed.
func (r *running) awaitDeaths(t *testing.T, point faultpoint.Point, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		deaths := 0
		for _, e := range r.events {
			if e.Event == "ended" && e.Part == point.Component() {
				require.Contains(t, e.Message, "killed", "it ended otherwise")
				deaths++
			}
		}
		return deaths >= want
	}, patience, interval, "nothing reached %s", point)
}

// TestFaultPoints_AreNotInWhatShips looks into the binaries.
func TestFaultPoints_AreNotInWhatShips(t *testing.T) {
	ships, err := os.ReadFile(binary)
	require.NoError(t, err)
	faulty, err := os.ReadFile(buildFaults(t))
	require.NoError(t, err)
	for _, mark := range []string{"BULLPEN_FAULTPOINT_DIR", "internal/lib/faultpoint.Reached", string(faultpoint.RegistrationRemoved)} {
		require.False(t, bytes.Contains(ships, []byte(mark)), "%s", mark)
		require.True(t, bytes.Contains(faulty, []byte(mark)), "%s: then its absence proves nothing", mark)
	}
}
