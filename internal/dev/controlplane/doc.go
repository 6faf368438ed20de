// Package controlplane runs a real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler) as child processes with their files in one state directory. The one-machine mode and the test kit
// share it.
//
// A control plane belongs to the process that started it: it ends with that process, even one that is killed, and a
// second one in the same state directory is refused. The directory may be started again: certificates' authority, service
// account key, data and (when free) the API server's port stay the same.
//
// It knows Kubernetes, not Bullpen. Begin with Start; the executables come from package assets.
package controlplane
