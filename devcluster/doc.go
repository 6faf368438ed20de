// Command devcluster is a real Kubernetes control plane in one executable: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
// and kubectl, compiled from their Go modules and chosen by the name that the executable is started under (as busybox does). A directory
// that holds one link per name serves as KUBEBUILDER_ASSETS, and is what `bullpen up` and the tests run.
//
// It is a Go module of its own so that the product's go.mod never carries the server side of Kubernetes, nor this one
// anything of the product. Begin in main.go; the versions are in go.mod, the build in ../scripts.
package main
