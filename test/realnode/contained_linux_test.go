package realnode

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
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
	w.run("kubectl delete -f contained.pool.yaml", "--timeout=10m")
}
