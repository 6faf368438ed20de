// Package realnode installs the chart with Helm's own program into a cluster whose node runs a kubelet, containerd and a NetworkPolicy engine
// (package internal/dev/realnode), and takes the release through its life while jobs run: upgrade, rollback, restarts of the kubelet and of
// containerd, a drain, uninstallation. Servers and controllers are the production binary, an image for each tag; GitHub is the stand-in.
//
// The commands are those of docs/guides/install.md, word by word, and a test compares. It takes root on Linux: elsewhere it is
// skipped. Begin with TestRelease in life_linux_test.go.
package realnode
