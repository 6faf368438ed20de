package realnode

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// held is how many jobs of each run of the workflow hold are held at the gate.
const held = 3

// demoJobs is how many jobs a run of the demonstration has: the fewest that it can have.
const demoJobs = 5

const holdWorkflow = `
name: hold
on: [workflow_dispatch]
jobs:
  hold:
    runs-on: bullpen
    strategy:
      fail-fast: false
      matrix: {n: [1, 2, 3]}
    steps:
      - name: Wait at the gate
        run: |
          exec 3<>/dev/tcp/gate.outside.svc/80
          echo "${{ github.run_number }}-${{ matrix.n }}" >&3
          read -r word <&3
          test "$word" = go
`

// phases are what happens to a release while jobs run. Each begins and ends with an installed release of version v1 whose pool is "first", on
// one node; so one of them can be run alone: -run 'TestRelease/drain$'.
var phases = []struct {
	name    string
	run     func(w *world)
	smaller string // what make test has of a long one; empty: all of it
}{
	{"demonstration", (*world).demonstrate, ""},
	{"doctor", (*world).requireDoctor, ""},
	{"versions", (*world).changeVersions, ""},
	{"restarts", (*world).restartPrograms, ""},
	{"removals", (*world).removeRunners, ""},
	{"stops", (*world).stopRunners, ""},
	{"drain", (*world).duringDrain, ""},
	{"isolation", (*world).requireIsolation, ""},
	{"job-containers", (*world).runJobContainers, ""},
	{"container-faults", (*world).breakContainers, ""},
	{"single-policy", (*world).replacePolicies, "the phase isolation of TestRelease, which needs two policies, but does not show what one would do"},
	{"prepull", (*world).pullImages, "TestPrepull_POOL5_ARollTakesTheNodesThatHaveTheImages"},
	{"machine", (*world).loseMachine, "TestPool_POOL7_RunnersOfAVanishedNode, on our own node agent"},
}

// A release is installed, goes through all phases and is uninstalled while jobs run, and none of them notices.
func TestRelease(t *testing.T) {
	t.Parallel() // it waits half of its time
	w := newWorld(t)
	w.install()
	ran := 0
	for _, phase := range phases {
		if !t.Run(phase.name, func(t *testing.T) {
			ran++
			if phase.smaller != "" {
				deep.Only(t, phase.smaller)
			}
			began := time.Now()
			phase.run(w.in(t))
			t.Logf("took %s", time.Since(began).Round(time.Second))
		}) {
			t.FailNow()
		}
	}
	w.uninstall()
	w.judge()
	if ran == len(phases) { // else -run has left some out
		checkGuide(t, w.account.ran)
	}
}

// in is the same world for a part of the test.
func (w *world) in(t testing.TB) *world {
	inner := *w
	inner.TB = t
	return &inner
}

func (w *world) demonstrate() {
	w.submit("demo.yaml", w.demo(demoJobs), demoJobs)
	w.awaitJobs("the demonstration's workflow", 0)
}

// changeVersions upgrades the release to another image with a renamed pool, and rolls it back.
func (w *world) changeVersions() {
	w.duringJobs("upgrade", func() {
		w.writeValues("v2", "second")
		w.run("helm upgrade bullpen charts/bullpen --namespace bullpen-system --values values.yaml", "--wait --timeout 15m")
		w.requireVersion("v2")
		w.submit("demo.yaml", w.demo(demoJobs), demoJobs) // the new pool serves the label at once
		w.awaitJobs("a workflow on the renamed pool", held)
		w.requirePools("first", "second")
	})
	w.awaitPools("second")

	w.duringJobs("rollback", func() {
		w.run("helm rollback bullpen --namespace bullpen-system", "--wait --timeout 15m")
		w.requireVersion("v1")
		w.submit("demo.yaml", w.demo(demoJobs), demoJobs)
		w.awaitJobs("a workflow on the old pool", held)
		w.requirePools("first", "second")
	})
	w.awaitPools("first")
}

func (w *world) restartPrograms() {
	for _, program := range []string{realnode.Kubelet, realnode.Containerd} {
		w.duringJobs("restart of "+program, func() { require.NoError(w, w.node.Restart(w.Context(), program)) })
	}
}

func (w *world) install() {
	w.run("kubectl create namespace bullpen-system")
	w.run(`kubectl -n bullpen-system create secret generic bullpen-github \
      --from-file=private-key.pem=app.pem --from-file=webhook-secret=webhook-secret`)
	w.run("kubectl -n bullpen-system create secret generic bullpen-database --from-file=url=database-url")
	w.storeRegistryCA()
	w.run("helm install bullpen charts/bullpen --namespace bullpen-system --values values.yaml", "--wait --timeout 15m")
	w.run("helm test bullpen --namespace bullpen-system")
	w.run("kubectl apply --server-side --force-conflicts -f charts/bullpen/crds")
	w.requireVersion("v1")
	require.NoError(w, w.github.Admin.Announce(w.Context(), 7)) // no server ran when the App was installed
	require.Contains(w, w.run("kubectl -n bullpen-runners get runnerpools"), "first")
}

// uninstall begins while jobs run, and ends when they have.
func (w *world) uninstall() {
	w.submit("hold.yaml", holdWorkflow, held)
	w.awaitHeld()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	ended := make(chan error, 1)
	w.background(func(context.Context) {
		_, err := w.try(ctx, "helm uninstall bullpen --namespace bullpen-system --timeout 6h")
		ended <- err
	})
	w.eventually("only the busy runners are left", func() bool { return len(w.runners()) == held })
	require.Len(w, ended, 0, "it waits for jobs that run")
	_, err := w.kube.AppsV1().Deployments(systemNamespace).Get(w.Context(), "bullpen-server", metav1.GetOptions{})
	require.NoError(w, err, "the server goes last")
	require.Equal(w, held, w.gate.count())
	w.gate.open("go")
	require.NoError(w, await.ReceiveWithin(w, 5*time.Minute, ended, "helm uninstall returns"))
	w.awaitJobs("the jobs that held the uninstallation up", 0)
	w.requireNothingLeft()
	w.run("kubectl delete namespace bullpen-runners")
	w.run("kubectl delete -f charts/bullpen/crds")
}

// duringJobs has jobs hold at the gate while something is done, and releases them afterwards: all succeed.
func (w *world) duringJobs(what string, do func()) {
	w.Helper()
	w.submit("hold.yaml", holdWorkflow, held)
	w.awaitHeld()
	busy := w.runners()
	do()
	require.Equal(w, held, w.gate.count(), "%s: connections of jobs that run", what)
	now := map[string]bool{}
	for _, pod := range w.runners() {
		now[string(pod.UID)] = true
	}
	kept := 0
	for _, pod := range busy {
		if now[string(pod.UID)] {
			kept++
		}
	}
	require.GreaterOrEqual(w, kept, held, "%s: pods of jobs that run", what)
	w.gate.open("go")
	w.awaitJobs("the jobs that ran through the "+what, 0)
}

// duringDrain drains the node of runners while jobs run: idle runners leave, and the command waits for the busy ones.
func (w *world) duringDrain() {
	w.submit("hold.yaml", holdWorkflow, held)
	w.awaitHeld()
	drained := make(chan error, 1)
	w.background(func(ctx context.Context) {
		_, err := w.try(ctx, "kubectl drain "+nodeName+" --pod-selector=bullpen.dev/runner=true --delete-emptydir-data --force --timeout=10m")
		drained <- err
	})
	w.eventually("only the busy runners are left on the node", func() bool {
		on := 0
		for _, pod := range w.runners() {
			if pod.Spec.NodeName == nodeName {
				on++
			}
		}
		return on == held
	})
	require.Empty(w, drained, "it waits for jobs that run")
	require.Equal(w, held, w.gate.count(), "connections of jobs on a node that is being drained")
	w.gate.open("go")
	require.NoError(w, await.ReceiveWithin(w, patience, drained, "kubectl drain returns"))
	w.run("kubectl uncordon " + nodeName)
	w.awaitJobs("the jobs of a node that is drained", 0)
}

func (w *world) requireNothingLeft() {
	ctx, kube := w.Context(), w.kube
	for _, namespace := range []string{systemNamespace, runnersNamespace} {
		w.eventually("no pod is left in "+namespace, func() bool {
			pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			return err == nil && len(pods.Items) == 0
		})
	}
	_, err := kube.CoreV1().Namespaces().Get(ctx, runnersNamespace, metav1.GetOptions{})
	require.NoError(w, err, "the runners' namespace stays")
	require.Empty(w, w.pools())
	accounts, err := kube.CoreV1().ServiceAccounts(runnersNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(w, err)
	require.Len(w, accounts.Items, 1, "default: %v", accounts.Items)
	deployments, err := kube.AppsV1().Deployments(systemNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, deployments.Items)
	jobs, err := kube.BatchV1().Jobs(systemNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, jobs.Items)
	roles, err := kube.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=bullpen"})
	require.NoError(w, err)
	require.Empty(w, roles.Items)
	policies, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, policies.Items)
	require.Empty(w, w.liveClaims())
}

// databaseInCluster is the database's URL as pods have it.
func databaseInCluster(t testing.TB, outsideURL string) string {
	t.Helper()
	parsed, err := url.Parse(outsideURL)
	require.NoError(t, err)
	parsed.Host = "database." + outside + ".svc:5432"
	query := parsed.Query()
	query.Del("host")
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

func (w *world) demo(jobs int) string {
	content, err := onebox.DemoWorkflow(examples.Demo(), jobs)
	require.NoError(w, err)
	return string(content)
}

// submit starts a workflow of so many jobs.
func (w *world) submit(file, content string, jobs int) {
	w.account.add(jobs)
	_, err := w.github.Admin.Submit(w.Context(), standin.Submission{FileName: file, Content: content, Repo: "acme/app"})
	require.NoError(w, err)
}

func (w *world) jobs() []standin.JobView {
	jobs, err := w.github.Admin.Jobs(w.Context(), 0, "")
	require.NoError(w, err)
	return jobs
}

func (w *world) awaitHeld() {
	w.eventually("jobs wait at the gate", func() bool { return w.gate.count() == held })
}

// awaitJobs waits until all jobs have ended but the given number.
func (w *world) awaitJobs(what string, but int) {
	w.Helper()
	w.eventually(what, func() bool {
		return w.unfinished() == but
	})
}

func (w *world) unfinished() int {
	unfinished := 0
	for _, job := range w.jobs() {
		if job.Conclusion == "" {
			unfinished++
		}
	}
	return unfinished
}

func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	if !assert.Eventually(w, holds, patience, interval, what) {
		w.tell()
		w.FailNow()
	}
}

func (w *world) runners() []corev1.Pod {
	pods, err := w.kube.CoreV1().Pods(runnersNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: "bullpen.dev/runner=true"})
	require.NoError(w, err)
	return pods.Items
}

func (w *world) pools() []string {
	pools := &v1alpha1.RunnerPoolList{}
	scheme := runtime.NewScheme()
	require.NoError(w, v1alpha1.AddToScheme(scheme))
	all, err := client.New(w.cluster.Plane().AdminConfig(), client.Options{Scheme: scheme})
	if meta.IsNoMatchError(err) {
		return nil
	}
	require.NoError(w, err)
	err = all.List(w.Context(), pools)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	require.NoError(w, err)
	var names []string
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return names
}

func (w *world) requirePools(names ...string) { require.ElementsMatch(w, names, w.pools()) }

func (w *world) awaitPools(names ...string) {
	w.eventually("the pools are "+strings.Join(names, ", "), func() bool {
		have := w.pools()
		return len(have) == len(names) && strings.Join(have, " ") == strings.Join(names, " ")
	})
}
