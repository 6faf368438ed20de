package scale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
	"github.com/bullpen-ci/bullpen/test/scale/growth"
)

var sustained struct {
	pods, nodes, queued, accounts, jobs, samples int
	length, most                                 time.Duration
	publish                                      string
}

func init() {
	flag.IntVar(&sustained.pods, "sustained-pods", 40, "TestSustained: runners")
	flag.IntVar(&sustained.nodes, "sustained-nodes", 4, "TestSustained: nodes")
	flag.IntVar(&sustained.queued, "sustained-queued", 100, "TestSustained: jobs that wait all the while")
	flag.IntVar(&sustained.accounts, "sustained-accounts", 20, "TestSustained: organizations")
	flag.IntVar(&sustained.jobs, "sustained-jobs", 80, "TestSustained: jobs that end before it ends")
	flag.IntVar(&sustained.samples, "sustained-samples", 16, "TestSustained: samples that are taken meanwhile")
	flag.DurationVar(&sustained.length, "sustained-length", 500*time.Millisecond, "TestSustained: jobs take up to twice so long")
	flag.DurationVar(&sustained.most, "sustained-for", 4*time.Hour, "TestSustained: it ends with the first sample after so long, counted from when the backlog is there")
	flag.StringVar(&sustained.publish, "sustained-publish", "", "TestSustained: the folder docs, to write what was measured to")
}

// TestSustained keeps every runner of a fleet busy while a backlog waits, and samples what the server and the controller use, each a
// process of its own: neither uses more memory, more goroutines or more processor time per job after all jobs than after a quarter of them.
// And every completed job succeeded, none is lost or assigned twice (RECV-7, CLAIM-1).
func TestSustained_RECV7_CLAIM1_NothingGrowsWithTheJobs(t *testing.T) {
	deep.Only(t, "TestScale_EXCL1_POOL2_POOL5_NoJobIsLost, and the tests of test/scale/growth")
	s := startSustained(t)
	s.queue()
	s.fill()
	s.keep()
	s.verdict()
}

type sustainedRun struct {
	*testing.T
	fleet *rig.Fleet
	pool  *v1alpha1.RunnerPool
	run   growth.Run
	began time.Time
	made  int // runs that were submitted
	jobs  int // of those runs
	last  standin.StateView
	url   string // of the database
}

func startSustained(t *testing.T) *sustainedRun {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "bullpen")
	require.NoError(t, gobuild.Build(binary, "github.com/bullpen-ci/bullpen/cmd/bullpen"))
	s := &sustainedRun{T: t, run: growth.Run{
		Pods: sustained.pods, Nodes: sustained.nodes, Queued: sustained.queued, Accounts: sustained.accounts,
	}}
	s.url = postgrestest.NewDatabase(t, nil)
	s.fleet = rig.Start(t, rig.Options{
		Cluster: kit.Private(t), Database: s.url, Nodes: sustained.nodes, Accounts: sustained.accounts, Binary: binary,
		PodsEach: int64(2*sustained.pods/sustained.nodes + 10),
	})
	return s
}

// queue submits the backlog, with a job for each runner on top of it, to a pool that has no runners yet: the whole machine then processes a
// hundred thousand webhooks.
func (s *sustainedRun) queue() {
	s.Helper()
	began := time.Now()
	s.pool = &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.fleet.Namespace, Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{label}, Replicas: ptr.To[int32](0),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1"},
		},
	}
	require.NoError(s, s.fleet.Admin.Create(s.Context(), s.pool))
	s.submit(sustained.queued + sustained.pods)
	s.eventually("the ledger has every job", func() bool {
		s.last = s.fleet.State()
		return ledgertest.Int(s, s.url, "SELECT count(*) FROM workflow_jobs") >= int64(s.jobs)
	})
	s.Logf("queue: %d jobs of %d accounts after %s", s.jobs, sustained.accounts, phaseTime(began))
}

// fill brings the pool up. Each runner takes a job as soon as it is warm, and the jobs' lengths are spread, so that they end one after another.
func (s *sustainedRun) fill() {
	s.Helper()
	began := time.Now()
	before := s.pool.DeepCopy()
	s.pool.Spec.Replicas = ptr.To(int32(sustained.pods))
	require.NoError(s, s.fleet.Admin.Patch(s.Context(), s.pool, client.MergeFrom(before)))
	s.eventually("most runners have a job", func() bool {
		s.last = s.fleet.State()
		return s.last.Jobs["in_progress"] >= sustained.pods*mostRunners/100 || s.last.Jobs["completed"] >= sustained.pods
	})
	s.Logf("fill: %d of %d runners have a job after %s, and %d jobs have ended", s.last.Jobs["in_progress"], sustained.pods, phaseTime(began), s.last.Jobs["completed"])
}

// mostRunners is how many of a hundred are busy when the pool counts as full: some have just ended, and others are about to
// begin. Where jobs are shorter than what it takes to replace a runner it is full when as many have ended.
const mostRunners = 85

// mostOfAMatrix is GitHub's bound of a matrix, and the share of a run.
const mostOfAMatrix = 256

// submit starts runs with that many jobs, several at a time, rotating through the accounts.
func (s *sustainedRun) submit(jobs int) {
	s.Helper()
	each := max(1, min(mostOfAMatrix, jobs/sustained.accounts))
	s.jobs += jobs
	var submitting sync.WaitGroup
	slots := make(chan struct{}, 8)
	for jobs > 0 {
		n, at := min(each, jobs), s.made
		jobs -= n
		s.made++
		slots <- struct{}{}
		submitting.Go(func() {
			defer func() { <-slots }() // bounded: it holds the slot of this goroutine
			length := 2 * sustained.length * time.Duration(at*7919%100+1) / 100
			if err := s.fleet.Submit(s.Context(), label, at%sustained.accounts+1, n, length); err != nil {
				s.Errorf("submitting jobs: %v", err)
			}
		})
	}
	await.ReturnWithin(s, 10*time.Minute, submitting.Wait, "all runs are submitted")
}

// refill keeps the backlog at its size.
func (s *sustainedRun) refill() {
	s.Helper()
	if missing := sustained.queued - s.last.Jobs["queued"]; missing > max(sustained.queued/100, 5) {
		s.submit(missing)
	}
}

// keep lets that many jobs end, and samples after each share of them.
func (s *sustainedRun) keep() {
	s.Helper()
	s.began = time.Now()
	from := s.last.Jobs["completed"]
	s.sample(0)
	for i := 1; i <= sustained.samples; i++ {
		next := i * sustained.jobs / sustained.samples
		s.eventually(fmt.Sprintf("%d jobs have ended", next), func() bool {
			s.last = s.fleet.State()
			s.refill()
			return s.last.Jobs["completed"]-from >= next
		})
		s.sample(s.last.Jobs["completed"] - from)
		if i%max(1, sustained.samples/10) == 0 {
			s.Logf("%s", s.run.Sentence())
		}
		s.publish()
		if time.Since(s.began) > sustained.most {
			return
		}
	}
}

func (s *sustainedRun) sample(jobs int) {
	s.Helper()
	sample := growth.Sample{
		Jobs: jobs, Seconds: time.Since(s.began).Seconds(), Queued: s.last.Jobs["queued"], Executing: s.last.Jobs["in_progress"],
		Parts: map[string]growth.Part{},
	}
	for _, p := range s.fleet.Processes() {
		sample.Parts[p.Name] = s.part(p)
	}
	sample.DatabaseBytes = ledgertest.Int(s, s.url, "SELECT pg_database_size(current_database())")
	s.run.Samples = append(s.run.Samples, sample)
}

// part reads what a process tells Prometheus.
func (s *sustainedRun) part(p rig.Process) growth.Part {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, p.Metrics, nil)
	require.NoError(s, err)
	resp, err := await.HTTP.Do(request)
	require.NoError(s, err)
	defer resp.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && !strings.HasPrefix(name, "#") {
			values[name], _ = strconv.ParseFloat(value, 64) // a histogram's NaN, say, which is never read
		}
	}
	require.NoError(s, lines.Err())
	for _, name := range []string{"go_memstats_next_gc_bytes", "go_gc_gogc_percent", "process_resident_memory_bytes", "go_goroutines", "process_cpu_seconds_total"} {
		require.Contains(s, values, name, "the %s does not tell", p.Name)
	}
	return growth.Part{
		// The collector lets the heap grow by that percentage of what it found alive.
		HeapBytes:     values["go_memstats_next_gc_bytes"] / (1 + values["go_gc_gogc_percent"]/100),
		ResidentBytes: values["process_resident_memory_bytes"], Goroutines: values["go_goroutines"], CPUSeconds: values["process_cpu_seconds_total"],
	}
}

func (s *sustainedRun) verdict() {
	s.Helper()
	state := s.fleet.State()
	s.Logf("%s\n%s", s.run.Sentence(), s.run.Table())
	require.Equal(s, map[string]int{"success": state.Jobs["completed"]}, state.Conclusions, "every job that ends ends well")
	require.Zero(s, state.Lost)
	require.Empty(s, state.AcquiredTwice)
	require.Empty(s, s.run.Growing())
}

// publish writes the run so far to where it was asked for.
func (s *sustainedRun) publish() {
	s.Helper()
	if sustained.publish == "" {
		return
	}
	text, err := json.MarshalIndent(s.run, "", " ")
	require.NoError(s, err)
	var plot bytes.Buffer
	require.NoError(s, s.run.SVG(&plot))
	page, err := os.ReadFile(filepath.Join(sustained.publish, "scale.md"))
	require.NoError(s, err)
	for name, content := range map[string][]byte{
		sustainedJSON: append(text, '\n'), "images/sustained.svg": plot.Bytes(), "scale.md": shown(s.T, page, s.run),
	} {
		require.NoError(s, os.WriteFile(filepath.Join(sustained.publish, name), content, 0o644)) //nolint:gosec // world-readable
	}
}

const (
	sustainedJSON  = "sustained.json"
	sustainedBegin = "<!-- begin: make scale-sustained -->\n"
	sustainedEnd   = "<!-- end: make scale-sustained -->\n"
)

// shown is the page with that run in it.
func shown(t *testing.T, page []byte, run growth.Run) []byte {
	t.Helper()
	before, rest, begins := bytes.Cut(page, []byte(sustainedBegin))
	_, after, ends := bytes.Cut(rest, []byte(sustainedEnd))
	require.True(t, begins && ends, "the page has no place for it")
	return fmt.Appendf(nil, "%s%s%s\n\n%s%s%s", before, sustainedBegin, run.Sentence(), run.Table(), sustainedEnd, after)
}

// The page shows the run that is kept beside it, which found nothing that grows; none, if none is kept.
func TestScalePage_ShowsTheRunThatIsKept(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("../../docs", sustainedJSON))
	if errors.Is(err, fs.ErrNotExist) {
		require.Contains(t, string(page), sustainedBegin+sustainedEnd, "it shows a run that was not kept")
		return
	}
	require.NoError(t, err)
	var run growth.Run
	require.NoError(t, json.Unmarshal(text, &run))
	require.Empty(t, run.Growing())
	require.Equal(t, string(shown(t, page, run)), string(page), "run make scale-sustained")
}

func (s *sustainedRun) eventually(what string, condition func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute+time.Duration(sustained.pods+sustained.queued/10)*100*time.Millisecond)
	defer cancel()
	// To count a hundred thousand jobs takes the stand-in and the ledger some of the machine each time.
	ticker := time.NewTicker(200*time.Millisecond + time.Duration(sustained.queued)*20*time.Microsecond)
	defer ticker.Stop()
	logged := time.Now()
	for !condition() {
		select {
		case <-ctx.Done():
			state := s.fleet.State()
			require.FailNow(s, "this never happened: "+what, "jobs %v, concluded %v", state.Jobs, maps.Clone(state.Conclusions))
		case <-ticker.C:
		}
		if time.Since(logged) > time.Minute {
			logged = time.Now()
			s.Logf("not yet: %s; jobs %v", what, s.last.Jobs)
		}
	}
}
