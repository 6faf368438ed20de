// Package jobcontainers runs jobs with containers and services end to end: inputs as GitHub's worker gives them go through the real container
// hook, to the real guards of containers. Each row of what GitHub promises, and of what Bullpen does instead, is a test.
//
// The rows know a Backend and nothing of how it makes containers. The back end processes makes namespaces of this machine, with the machine's
// own programs as images; it takes root on Linux. With the build tag kubelet, the back end kubelets has a kubelet, containerd, couriers and the
// controller (`make test` runs both):
//
//	go test -tags kubelet -parallel 6 ./test/jobcontainers
//
// Begin with backend_linux_test.go, and with TestRecorded in recorded_linux_test.go.
package jobcontainers
