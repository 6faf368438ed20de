package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// A service mesh: each pod of the pool gets a container that never exits, and ignores SIGTERM.
const mesh = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mesh}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
    - {name: meshed, expression: "object.metadata.?labels[?'mesh'].orValue('') == 'in'"}
  reinvocationPolicy: Never
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          [JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh-proxy", image: "bullpen",
          command: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mesh}
spec: {policyName: mesh}
`

const meshedPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: meshed, namespace: bullpen-runners}
spec:
  platform: linux
  labels: [meshed]
  replicas: 1
  resources: {cpu: 100m, memory: 64Mi}
  template:
    image: bullpen
    command: [bullpen, dev, runner, --work, /bullpen/work]
    metadata: {labels: {mesh: in}}
`

// POD-3: a runner whose pod has a container that never ends is replaced, and its pod is gone within seconds of its job.
func aMeshedRunnerIsGone(t *testing.T, dir string, box *running, w *where) {
	output, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, "mesh.yaml", mesh))
	require.NoError(t, err, output)
	output, err = kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, "meshed.yaml", meshedPool))
	require.NoError(t, err, output)
	runners := w.api(t).Resource(resource("pods.")).Namespace(runnerNamespace)
	first := ""
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"=meshed")
		for _, pod := range all {
			switch {
			case err != nil || !ready(pod) || pod.DeletionTimestamp != nil:
			case len(pod.Spec.Containers) == 4:
				first = pod.Name
			default: // it was made before the API server went by the policy
				_ = runners.Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
			}
		}
		return first != ""
	}, patience, interval, "an idle runner with a sidecar")

	submit(t, dir, w, "on: push\njobs: {meshed: {runs-on: [meshed], steps: [{run: echo}]}}")
	box.await(t, "the end of the job", jobEnded("meshed", "success"))
	var ended time.Time
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"=meshed")
		if err != nil {
			return false
		}
		i := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.Name == first })
		if i >= 0 && ended.IsZero() && podsigns.Stopped(&all[i]) {
			ended = time.Now()
		}
		return i < 0
	}, patience, interval, "its pod is gone")
	if !ended.IsZero() { // it may have been deleted between two readings
		require.Less(t, time.Since(ended), 15*time.Second, "some seconds, on a machine that has other work")
	}
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"=meshed")
		return err == nil && slices.ContainsFunc(all, ready)
	}, patience, interval, "it is replaced")
}
