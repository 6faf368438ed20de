// Package realnode installs the chart with Helm's own program into a cluster whose node runs a kubelet, containerd and a NetworkPolicy engine
// (package internal/dev/realnode), and takes the release through its life while jobs run: upgrade, rollback, restarts of the kubelet and of
// containerd, deletions, evictions and TERM at every instant, a drain, a shutdown and a loss of power of a node, uninstallation. Servers and controllers
// are the archive of `make images`, one for each tag; GitHub is the stand-in.
//
// The commands are those of docs/guides/install.md, word by word, and a test compares. It takes root on Linux: elsewhere it is
// skipped. Begin with TestRelease in life_linux_test.go: its phases share one node, and each can be run alone. BenchmarkP16 measures starts of pods and
// jobs there.
package realnode
