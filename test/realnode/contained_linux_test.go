package realnode

import (
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const containedPool = `---
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: contained, namespace: ` + runnersNamespace + `}
spec:
  platform: linux
  labels: [contained]
  replicas: 2
  resources: {cpu: 500m, memory: 512Mi}
  template:
    image: ` + runnerRef + `
    command: [/usr/local/bin/bullpen, dev, runner, --work, /home/runner]
    jobContainers: {registries: [` + registryHost + `]}
---
apiVersion: bullpen.dev/v1alpha1
kind: RunnerDeployment
metadata: {name: own, namespace: ` + runnersNamespace + `}
spec:
  template:
    spec:
      repository: acme/app
      labels: [own]
      jobContainers: {registries: [` + registryHost + `], allowedImages: ["` + registryHost + `/contained/*", "` + registryHost + `/public/*"]}
      template:
        spec:
          containers:
            - name: runner
              image: ` + runnerRef + `
              command: [/usr/local/bin/bullpen, dev, runner, --work, /home/runner]
              resources: {requests: {cpu: 50m}, limits: {cpu: 500m, memory: 512Mi}}
`

// containedWorkflow has what common workflows use containers for: a job in one, a database beside it that has to become healthy, a step in an image of
// its own, a user that is not root, and services of a job that runs on the runner.
const containedWorkflow = `
name: contained
on: [workflow_dispatch]
jobs:
  contained:
    runs-on: [contained]
    container: {image: "` + registryHost + `/contained/tools:v1", env: {FROM: workflow}, credentials: &puller ` + puller + `}
    services:
      db: &db
        image: ` + registryHost + `/contained/db:v1
        credentials: *puller
        env: {GREETING: hello}
        ports: ["15432:5432"]
        options: --health-cmd "/greeter check" --health-interval 1s --health-retries 60
    steps:
      - run: test "$FROM" = workflow && test "$(id -u)" = 0 && test "$(cat /etc/image)" = tools
      - id: greet
        shell: bash
        run: |
          exec 3<>/dev/tcp/db/5432
          read -r line <&3
          echo "line=$line" >> "$GITHUB_OUTPUT"
      - run: test "${{ steps.greet.outputs.line }}" = hello && echo made > made
      - uses: docker://` + registryHost + `/public/tools:v1
        with: {entrypoint: /usr/bin/cat, args: made}
  user:
    runs-on: [contained]
    container: {image: "` + registryHost + `/contained/tools:v1", options: --user 1500, credentials: *puller}
    steps:
      - run: test "$(id -u)" = 1500 && echo "MADE=by-1500" >> "$GITHUB_ENV"
      - run: test "$MADE" = by-1500
  beside:
    runs-on: [contained]
    services:
      db: *db
    steps:
      - shell: bash
        run: |
          exec 3<>/dev/tcp/localhost/15432
          read -r line <&3
          test "$line" = hello && test ! -e /etc/image
  own:
    runs-on: [own]
    container: {image: "` + registryHost + `/contained/tools:v1", credentials: *puller}
    services:
      db: *db
    steps:
      - shell: bash
        run: |
          exec 3<>/dev/tcp/db/5432
          read -r line <&3
          test "$line" = hello && test "$(cat /etc/image)" = tools && echo made > made
      - uses: docker://` + registryHost + `/public/tools:v1
        with: {entrypoint: /usr/bin/cat, args: made}
`

// runJobContainers runs jobs whose containers the controller adds to the runners' pods (JOB-1), with images that the node pulls from a registry.
func (w *world) runJobContainers() {
	w.startRegistry()
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "contained.pool.yaml"), []byte(containedPool), 0o600))
	w.run("kubectl apply -f contained.pool.yaml")
	w.submit("contained.yaml", containedWorkflow, 4)
	w.awaitJobs("jobs with containers", 0)
	for _, job := range w.jobs() {
		if slices.Contains(job.Labels, "contained") || slices.Contains(job.Labels, "own") {
			said, err := w.github.Admin.JobLog(w.Context(), job.ID)
			require.NoError(w, err)
			require.Equal(w, "success", job.Conclusion, "job %s\n%s", job.Name, said)
			w.Logf("job %s took %s", job.Name, job.CompletedAt.Sub(*job.StartedAt))
		}
	}
	w.requireContainedIsolation()
	w.run("kubectl delete -f contained.pool.yaml", "--timeout=10m")
}

// tokenScript looks for a token of a service account below each mount, and says whether there is one.
const tokenScript = `test "$(id -u)" = 0
shopt -s globstar dotglob nullglob
found=closed
while read -r _ at _; do
  case $at in /|/proc|/proc/*|/sys|/sys/*|/dev|/dev/*) continue;; esac
  for file in "$at" "$at"/**; do
    case $file in */token|*/serviceaccount*) echo "found $file"; found=open;; esac
    if [[ -f $file && -r $file ]] && { read -r -n 3 start <"$file" || :; } 2>/dev/null && [[ $start == eyJ ]]; then echo "starts as a token: $file"; found=open; fi
  done
done </proc/self/mounts
for at in /var/run/secrets /run/secrets; do [[ ! -e $at ]] || found=open; done
echo "reach token $found"
`

// requireContainedIsolation has root of a job's container try what a step on the runner tries (requireIsolation), and another pod, and look for a
// token.
func (w *world) requireContainedIsolation() {
	w.echoAll()
	d := w.destinations()
	d.stranger = append(d.stranger, w.startNeighbor())
	require.ElementsMatch(w, slices.Concat(d.job, d.stranger), w.reached(w.runStranger("stranger-of-containers", d)), "what a pod without a policy reaches")
	said := w.askFrom("from-container", "runs-on: [contained]\n    container: "+registryHost+"/public/tools:v1", tokenScript+ask(d))
	require.ElementsMatch(w, d.job, w.reached(said), "what a job's container reaches\n%s", said)
	require.Contains(w, said, "reach token closed")
}

// startNeighbor starts another pod that listens, and returns where.
func (w *world) startNeighbor() string {
	w.registry.running.Push(w.TB, "public/db:v1", w.registry.bases["db"])
	pod, err := w.kube.CoreV1().Pods(outside).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "neighbor"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: registryHost + "/public/db:v1"}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.eventually("the neighbor runs", func() bool {
		pod, err = w.kube.CoreV1().Pods(outside).Get(w.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	return "tcp/" + net.JoinHostPort(pod.Status.PodIP, "5432")
}
