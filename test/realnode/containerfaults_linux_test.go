package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/soak/containers"
)

// fleetKinds are the faults of make test: those of the registry, and of what Bullpen runs. A node's own are in make test-deep.
var fleetKinds = []containers.Kind{
	containers.RegistryFails, containers.RegistryHangs, containers.RegistryCuts, containers.CourierKilled, containers.ControllerKilled, containers.ServerKilled,
}

var (
	soakSeed   = flag.Uint64("containers.seed", 1, "of the soak of jobs with containers")
	soakJobs   = flag.Int("containers.jobs", 8, "jobs of that soak; 100 in make test-deep")
	soakKinds  = flag.String("containers.kinds", "", `kinds of that soak's faults, separated by commas, or "all"; those of the fleet and the registry when empty, all in make test-deep`)
	soakFaults = flag.Int("containers.faults", len(fleetKinds), "faults of that soak, ten seconds each; 60 in make test-deep")
)

// soakOptions are those of the flags.
func soakOptions(t testing.TB) containers.Options {
	o := containers.Options{Seed: *soakSeed, Jobs: *soakJobs, Faults: *soakFaults, Kinds: fleetKinds}
	if deep.Enabled() && *soakKinds == "" {
		o.Jobs, o.Faults, o.Kinds = 100, 60, containers.Kinds
	}
	o.Length = time.Duration(o.Faults) * 10 * time.Second
	switch *soakKinds {
	case "":
	case "all":
		o.Kinds = containers.Kinds
	default:
		o.Kinds = nil
		for kind := range strings.SplitSeq(*soakKinds, ",") {
			require.Contains(t, containers.Kinds, containers.Kind(kind))
			o.Kinds = append(o.Kinds, containers.Kind(kind))
		}
	}
	return o
}

// faulty is the soak's pool, label and prefix of jobs' keys.
const faulty = "faulty"

const faultyPool = `---
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: ` + faulty + `, namespace: ` + runnersNamespace + `}
spec:
  platform: linux
  labels: [` + faulty + `]
  replicas: 4
  resources: {cpu: 100m, memory: 512Mi}
  template:
    image: ` + runnerRef + `
    command: [/usr/local/bin/bullpen, dev, runner, --work, /home/runner]
    jobContainers: {registries: [` + registryHost + `]}
`

// faultyWorkflow is a job beside a service, or in a container beside it.
const faultyWorkflow = `
name: KEY
on: [workflow_dispatch]
jobs:
  KEY:
    runs-on: [` + faulty + `]
    CONTAINER
    services:
      db:
        image: DB
        credentials: ` + puller + `
        env: {GREETING: hello}
        ports: ["5432"]
        options: --health-cmd "/greeter check" --health-interval 1s --health-retries 90
    steps:
      - shell: bash
        run: |
          exec 3<>/dev/tcp/ADDRESS
          read -r line <&3
          test "$line" = hello
          sleep HOLDS
      - run: sleep 0.5; echo made > made
      - run: test "$(cat made)" = made
      ACTION
`

// containerSoak is a soak of jobs with containers.
type containerSoak struct {
	*world
	began    time.Time
	schedule containers.Schedule
	images   map[int][]string // of each job

	mu      sync.Mutex
	strikes []containers.Strike
	exposed map[string]bool
	stops   map[int]time.Time // when jobs were cancelled
}

// breakContainers runs jobs with containers while the registry, couriers, the controller, the server, the kubelet, containerd and the API server fail.
func (w *world) breakContainers() {
	o := soakOptions(w)
	w.Logf("seed %d: %d jobs and %d faults in %s", o.Seed, o.Jobs, o.Faults, o.Length)
	w.startRegistry()
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "faulty.pool.yaml"), []byte(faultyPool), 0o600))
	w.run("kubectl apply -f faulty.pool.yaml")
	w.await("an idle runner", ofPool(faulty), isIdle)
	s := &containerSoak{world: w, schedule: containers.Make(o), images: map[int][]string{}, exposed: map[string]bool{}, stops: map[int]time.Time{}}
	workflows := s.prepare()
	s.began = time.Now()
	var striking sync.WaitGroup
	striking.Go(s.strike)
	for _, job := range s.schedule.Jobs {
		s.until(job.At)
		_, err := w.github.Admin.Submit(w.Context(), standin.Submission{FileName: faulty + ".yaml", Content: workflows[job.Number], Repo: "acme/app"})
		require.NoError(w, err)
	}
	striking.Wait() // bounded: by the test's context
	w.eventually("all jobs end", func() bool { s.tick(); return s.open() == 0 })
	w.run("kubectl delete -f faulty.pool.yaml", "--timeout=10m")
	s.judge()
}

// prepare stores the images of all jobs, and writes their workflows.
func (s *containerSoak) prepare() map[int]string {
	workflows := map[int]string{}
	for _, job := range s.schedule.Jobs {
		own := strconv.Itoa(job.Number)
		db := s.pushOwn("db", "soak/db-"+own)
		images, address, container, action := []string{db}, "localhost/${{ job.services.db.ports['5432'] }}", "", ""
		if job.InContainer {
			tools := s.pushOwn("tools", "soak/tools-"+own)
			images, address = append(images, tools), "db/5432"
			container = fmt.Sprintf("container: {image: %q, credentials: %s}", tools+":v1", puller)
		}
		if job.Action {
			tools := s.pushOwn("tools", "public/action-"+own)
			images = append(images, tools)
			action = fmt.Sprintf("- {uses: %q, with: {entrypoint: /usr/bin/cat, args: made}}", "docker://"+tools+":v1")
		}
		s.images[job.Number] = images
		workflows[job.Number] = strings.NewReplacer("KEY", faulty+"-"+own, "DB", db+":v1", "ADDRESS", address, "CONTAINER", container, "ACTION", action,
			"HOLDS", fmt.Sprintf("%.1f", job.Holds.Seconds())).Replace(faultyWorkflow)
	}
	return workflows
}

// until waits for a moment of the schedule, and does in that time what is due.
func (s *containerSoak) until(at time.Duration) {
	for left := at - time.Since(s.began); left > 0; left = at - time.Since(s.began) {
		s.tick()
		<-time.After(min(left, interval))
	}
}

// tick cancels jobs, and looks for the password.
func (s *containerSoak) tick() {
	now := time.Now()
	for _, job := range s.jobs() {
		number, ok := soakNumber(job)
		if !ok || job.Conclusion != "" || job.StartedAt == nil || !s.stops[number].IsZero() {
			continue
		}
		if after := s.planned(number).CancelAfter; after > 0 && now.Sub(*job.StartedAt) >= after {
			require.NoError(s, s.github.Admin.CancelJob(s.Context(), job.ID))
			s.stops[number] = now
		}
	}
	if pods, err := s.kube.CoreV1().Pods(runnersNamespace).List(s.Context(), metav1.ListOptions{LabelSelector: runnerpod.LabelPool + "=" + faulty}); err == nil {
		for i := range pods.Items {
			s.search("pod "+pods.Items[i].Name, &pods.Items[i])
		}
	}
}

func (s *containerSoak) planned(number int) containers.Job {
	return s.schedule.Jobs[slices.IndexFunc(s.schedule.Jobs, func(j containers.Job) bool { return j.Number == number })]
}

func (s *containerSoak) open() int {
	open := 0
	for _, job := range s.jobs() {
		if _, ok := soakNumber(job); ok && job.Conclusion == "" {
			open++
		}
	}
	return open
}

// search notes where the registry's password is.
func (s *containerSoak) search(where string, in any) {
	text, ok := in.(string)
	if !ok {
		encoded, err := json.Marshal(in)
		require.NoError(s, err)
		text = string(encoded)
	}
	if strings.Contains(text, pullSecret) {
		s.exposed[where] = true
	}
}

func soakNumber(job standin.JobView) (number int, ok bool) {
	_, err := fmt.Sscanf(job.Key, faulty+"-%d", &number)
	return number, err == nil
}

// strike lets the faults happen, one after another.
func (s *containerSoak) strike() {
	for _, f := range s.schedule.Faults {
		select {
		case <-s.Context().Done():
			return
		case <-time.After(f.At - time.Since(s.began)):
		}
		from := time.Now()
		err := s.cause(f)
		s.mu.Lock()
		s.strikes = append(s.strikes, containers.Strike{Kind: f.Kind, From: from, To: time.Now()})
		s.mu.Unlock()
		if err != nil {
			s.Errorf("%s: %v", f, err)
			return
		}
		s.Logf("%s: was over after %s", f, time.Since(from).Round(time.Millisecond))
	}
}

func (s *containerSoak) cause(f containers.Fault) error {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	switch f.Kind {
	case containers.CourierKilled:
		return s.killCourier(ctx, f.Choice)
	case containers.ControllerKilled:
		return s.killPart(ctx, "controller")
	case containers.ServerKilled:
		return s.killPart(ctx, "server")
	case containers.KubeletKilled:
		return s.node.Crash(ctx, realnode.Kubelet)
	case containers.RuntimeKilled:
		return s.node.Crash(ctx, realnode.Containerd)
	case containers.APIStopped:
		if err := s.cluster.Plane().StopComponent(ctx, controlplane.APIServer); err != nil {
			return err
		}
		<-time.After(f.For)
		return s.cluster.Plane().StartComponent(ctx, controlplane.APIServer)
	default:
		s.registry.fail(f.Kind)
		<-time.After(f.For)
		s.registry.repair()
		return nil
	}
}

// killCourier kills the newest courier of a runner, of a busy one if there is any. Between two couriers, a runner has none.
func (s *containerSoak) killCourier(ctx context.Context, choice uint32) error {
	pods, err := s.kube.CoreV1().Pods(runnersNamespace).List(ctx, metav1.ListOptions{LabelSelector: runnerpod.LabelPool + "=" + faulty})
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods.Items, func(a, b corev1.Pod) int {
		return strings.Compare(b.Labels[runnerpod.LabelOwner], a.Labels[runnerpod.LabelOwner])
	})
	busy := 0
	for busy < len(pods.Items) && isBusy(&pods.Items[busy]) {
		busy++
	}
	candidates := pods.Items
	if busy > 0 {
		first := int(choice) % busy
		candidates = append(slices.Clone(pods.Items[first:]), pods.Items[:first]...)
	}
	for i := range candidates {
		killed, err := killProcesses(&candidates[i], "courier")
		if err != nil || killed > 0 {
			s.Logf("killed the courier of %s, one of %d busy runners", candidates[i].Name, busy)
			return err
		}
	}
	return errors.New("no courier runs")
}

// killPart kills the processes of all of a part's replicas.
func (s *containerSoak) killPart(ctx context.Context, part string) error {
	pods, err := s.kube.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + part})
	if err != nil {
		return err
	}
	killed := 0
	for i := range pods.Items {
		n, err := killProcesses(&pods.Items[i], part)
		if err != nil {
			return err
		}
		killed += n
	}
	if killed == 0 {
		return fmt.Errorf("no process of the %s was found", part)
	}
	return nil
}
