package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

const rollingDeployment = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerDeployment
metadata: {name: shop, namespace: bullpen-runners}
spec:
  replicas: 3
  template:
    spec:
      repository: acme/app
      labels: [shop]
      template:
        spec:
          terminationGracePeriodSeconds: 600
          containers:
            - name: runner
              image: bullpen
              command: [bullpen, dev, runner, --work, /work]
              env: [{name: ROUND, value: "0"}]
              volumeMounts: [{name: work, mountPath: /work}]
          volumes: [{name: work, emptyDir: {}}]
`

const rollingSet = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerSet
metadata: {name: till, namespace: bullpen-runners}
spec:
  replicas: 2
  ephemeral: false
  repository: acme/app
  labels: [till]
  template:
    spec:
      terminationGracePeriodSeconds: 600
      containers:
        - name: runner
          image: bullpen
          command: [bullpen, dev, runner, --work, /work]
          env: [{name: ROUND, value: "0"}]
          volumeMounts: [{name: work, mountPath: /work}]
      volumes: [{name: work, emptyDir: {}}]
`

// proofs is a workflow of the given number of jobs, each of which writes a line of its own when it begins, and when it ends.
func proofs(label, dir string, jobs int) string {
	var b strings.Builder
	b.WriteString("on: push\njobs:\n")
	for n := range jobs {
		fmt.Fprintf(&b, "  %s-%d:\n    runs-on: [%s]\n    steps:\n      - run: echo begun >> %s/%s-%d\n      - run: sleep %d\n      - run: echo done >> %s/%s-%d\n",
			label, n, label, dir, label, n, 2+7*(n%3), dir, label, n)
	}
	return b.String()
}

// storm rolls an owner's template again and again and deletes pods that are idle or have ended, at random, until it is stopped.
type storm struct {
	t              *testing.T
	w              *where
	kind, name     string
	selector       string
	env            string // a JSON pointer to the value that a roll changes
	rolls, deleted int
}

func (s *storm) kubectl(args ...string) (string, error) {
	return kubectl(s.t, s.w, s.w.Kubeconfig, append([]string{"-n", "bullpen-runners"}, args...)...)
}

func (s *storm) roll() {
	s.rolls++
	patch := fmt.Sprintf(`[{"op":"replace","path":"%s","value":"%d"}]`, s.env, s.rolls)
	output, err := s.kubectl("patch", s.kind, s.name, "--type=json", "-p", patch)
	require.NoError(s.t, err, output)
}

// deleteOne deletes a pod that shows no work, as an administrator would who cleans up. The API server may refuse: then it
// has begun.
func (s *storm) deleteOne(random *rand.Rand) {
	all, err := pods(s.t, s.w, s.selector)
	require.NoError(s.t, err)
	var free []string
	for _, pod := range all {
		ready := false
		for _, c := range pod.Status.Conditions {
			ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		if pod.DeletionTimestamp == nil && (ready || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			free = append(free, pod.Name)
		}
	}
	if len(free) == 0 {
		return
	}
	if _, err := s.kubectl("delete", "pod", free[random.IntN(len(free))], "--wait=false"); err == nil {
		s.deleted++
	}
}

// Rolling updates run every ten seconds while pods that are idle or have ended are deleted at random. Every job proves that
// it was begun once and ended. In the end there is one set, and nothing of it when it is deleted.
func TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion(t *testing.T) {
	dir := stateDir(t)
	audit := filepath.Join(t.TempDir(), "audit.log")
	box, w := up(t, dir, "--runners", "1", "--audit-log", audit)
	t.Cleanup(func() {
		if t.Failed() {
			describeSelfRegistering(t, w, dir)
		}
	})
	for _, c := range []struct {
		name, manifest, label string
		jobs                  int
		storm                 storm
		deep                  bool
	}{
		{"a RunnerDeployment of ephemeral runners", rollingDeployment, "shop", 9, storm{
			kind: "runnerdeployment", name: "shop", selector: "bullpen.dev/runner-deployment=shop", env: "/spec/template/spec/template/spec/containers/0/env/0/value",
		}, false},
		{"a RunnerSet of static runners", rollingSet, "till", 6, storm{
			kind: "runnerset", name: "till", selector: "bullpen.dev/runner-set=till", env: "/spec/template/spec/containers/0/env/0/value",
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.deep {
				deep.Only(t, "the row of ephemeral runners of TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion")
			}
			if !deep.Enabled() {
				c.jobs = 3
			}
			s := c.storm
			s.t, s.w = t, w
			output, err := s.kubectl("apply", "-f", writeFile(t, "owner.yaml", c.manifest))
			require.NoError(t, err, output)
			directory := t.TempDir()
			require.NoError(t, os.Chmod(directory, 0o777)) //nolint:gosec // jobs run as another user
			submit(t, dir, w, proofs(c.label, directory, c.jobs))
			s.until(func() bool { return ended(box, c.label) == c.jobs })
			require.Positive(t, s.rolls)
			t.Logf("%d rolls, %d pods deleted under %d jobs", s.rolls, s.deleted, c.jobs)
			for n := range c.jobs {
				name := fmt.Sprintf("%s-%d", c.label, n)
				box.await(t, "the success of "+name, jobEnded(name, "success"))
				proof, err := os.ReadFile(filepath.Join(directory, name))
				require.NoError(t, err)
				require.Equal(t, "begun\ndone\n", string(proof), name)
			}
			s.settles()
			s.deleteOwner()
		})
	}
	removeVolumes(t, w)
	t.Run("NET8_each right is used and each request is allowed", func(t *testing.T) {
		deep.Only(t, "TestUp, whose parts may do what their roles say and no more: all rights are used only with both kinds")
		checkSelfRegisteringRights(t, audit)
	})
}

// until storms until done: a roll every ten seconds, a deletion every five.
func (s *storm) until(done func() bool) {
	random := rand.New(rand.NewPCG(1, uint64(s.rolls)))
	second := time.NewTicker(time.Second)
	defer second.Stop()
	limit := time.After(4 * patience)
	for n := 1; !done(); n++ {
		select {
		case <-second.C:
		case <-limit:
			require.FailNow(s.t, "the jobs do not end", "%d rolls, %d deletions", s.rolls, s.deleted)
		}
		if n%10 == 0 {
			s.roll()
		}
		if n%5 == 0 { // rarer than a static runner takes to register
			s.deleteOne(random)
		}
	}
}

// settles waits until the last template alone is there (RUN-3).
func (s *storm) settles() {
	if s.kind == "runnerdeployment" {
		require.Eventually(s.t, func() bool {
			sets, err := names(s.t, s.w, "runnerreplicasets", runnerNamespace, "")
			return err == nil && len(sets) == 1
		}, patience, interval, "one set remains")
	}
	require.Eventually(s.t, func() bool {
		output, err := look(s.t, s.w, s.kind+"s", runnerNamespace, s.name, "{.status.replicas} {.status.updatedReplicas} {.status.idle} {.status.desiredReplicas}")
		counts := strings.Fields(output)
		return err == nil && len(counts) == 4 && counts[0] == counts[3] && counts[1] == counts[3] && counts[2] == counts[3]
	}, patience+2*time.Minute, interval, "all are idle runners of the last template") // a static one is known by a list that is read once a minute
}

// deleteOwner deletes the owner, of which nothing is left: no pod, no Secret, no registration.
func (s *storm) deleteOwner() {
	output, err := s.kubectl("delete", s.kind, s.name, "--timeout=90s")
	require.NoError(s.t, err, output)
	require.Eventually(s.t, func() bool {
		for _, kind := range []string{"runners", "runnerreplicasets", "statefulsets.apps", "pods.", "secrets."} {
			if left, err := names(s.t, s.w, kind, runnerNamespace, "bullpen.dev/self-registering=true"); err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	}, patience, interval, "nothing of it is left")
}

// ended counts the jobs whose names begin with the prefix and that have ended.
func ended(box *running, prefix string) int {
	box.mu.Lock()
	defer box.mu.Unlock()
	names := map[string]bool{}
	for _, e := range box.events {
		if e.Job != nil && strings.HasPrefix(e.Job.Name, prefix) && e.Job.Conclusion != "" {
			names[e.Job.Name] = true
		}
	}
	return len(names)
}

func describeSelfRegistering(t *testing.T, w *where, dir string) {
	for _, args := range [][]string{
		{"get", "runnerdeployments,runnerreplicasets,runnersets,runners,statefulsets,pods,secrets", "-o", "wide"}, {"get", "events", "--sort-by=.lastTimestamp"},
		{"get", "pods", "-l", "bullpen.dev/self-registering=true", "-o", "yaml"},
	} {
		output, _ := exec.CommandContext(await.Context(t), w.Kubectl, append([]string{"--kubeconfig", w.Kubeconfig, "-n", "bullpen-runners"}, args...)...).CombinedOutput()
		t.Logf("%.20000s", output)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "logs", "controller.log"))
	t.Logf("%s", log[max(0, len(log)-20000):])
}

const setWithVolumes = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerSet
metadata: {name: cellar, namespace: bullpen-runners}
spec:
  replicas: 1
  repository: acme/app
  labels: [cellar]
  volumeRetention: Delete
  volumeClaimTemplates:
    - name: cache
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template:
    spec:
      containers: [{name: runner, image: bullpen, command: [bullpen, dev, runner, --work, /work]}]
`

// removeVolumes has a set make a volume's claim, and deletes both. Nothing provides volumes here, so its runner never starts.
func removeVolumes(t *testing.T, w *where) {
	t.Helper()
	s := storm{t: t, w: w, kind: "runnerset", name: "cellar"}
	claims := func() string {
		found, err := names(t, w, "persistentvolumeclaims.", runnerNamespace, "")
		require.NoError(t, err)
		return strings.Join(found, " ")
	}
	output, err := s.kubectl("apply", "-f", writeFile(t, "set.yaml", setWithVolumes))
	require.NoError(t, err, output)
	require.Eventually(t, func() bool { return strings.Contains(claims(), "cache-cellar-0-0") }, patience, interval)
	s.deleteOwner()
	require.Eventually(t, func() bool { return !strings.Contains(claims(), "cellar") }, patience, interval, "the volumes go with the set that says so")
}
