// Package assets finds, and builds once, the folder of control plane executables that the one-machine mode and the
// tests run: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
//
// The executables come from the devcluster module of this repository. The folder is keyed by that module's sources,
// so an edit there, or another version, gets a folder of its own and an unchanged one is never built twice.
//
// Begin with Find; Build is for the make target.
package assets
