// Package assets finds, and makes once, the directory of control plane executables that the one-machine mode and the
// tests run: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
//
// The devcluster module of this repository pins their versions. Published programs of exactly these versions are used
// from PATH or downloaded; otherwise the module is compiled. A compiled directory is keyed by the module's sources, so an
// edit there, or another version, gets a directory of its own and an unchanged one is never built twice.
//
// Begin with Find; Build is for the make target.
package assets
