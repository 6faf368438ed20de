// Package release installs the chart with Helm's own program into the development control plane, whose pods a node agent runs
// with networks and files of their own, and takes the release through its life while jobs run: upgrade, rollback, uninstallation.
// Servers and controllers are the production binary, a directory for each image tag; GitHub is the stand-in.
//
// The commands are those of docs/guides/install.md, word by word, and a test compares. It takes root on Linux: elsewhere it is
// skipped. Begin with TestRelease in release_linux_test.go.
package realnode
