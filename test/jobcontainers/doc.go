// Package jobcontainers runs jobs with containers and services end to end: inputs as GitHub's worker gives them go through the real container
// hook, to the real guards of containers. Each row of what GitHub promises, and of what Bullpen does instead, is a test, here or elsewhere.
//
// The rows know a Backend and nothing of how it makes containers. The back end processes makes namespaces of this machine, with the machine's
// own programs as images; it takes root on Linux. With the build tag kubelet, the back end kubelets has a kubelet, containerd, couriers and the
// controller (`make test` runs both):
//
//	go test -tags kubelet -parallel 6 ./test/jobcontainers
//
// Not all rows run on both:
//
//   - What follows from a workflow and an image's configuration alone is decided by pure functions. Their tests have all cases
//     (internal/jobcontainer/plan, options, health), of which some of each kind are here. Options without a warning or an effect, such as --label, and
//     Windows are only there.
//   - On a kubelet, rows are skipped in which a registry refuses an image (internal/jobcontainer/image), a pull fails (test/realnode), or the kernel
//     kills a guard for memory (internal/controller/jobcontainers): it prefers a guard's children.
//   - In namespaces, the row is skipped in which the kernel kills a step's process at the pod's limit.
//
// Begin with backend_linux_test.go, and with TestRecorded in recorded_linux_test.go.
package jobcontainers
