// Package netns makes network namespaces that files keep, and runs code within them. It needs root.
//
// A namespace outlives the process that made it, and ends with its file and the last process in it. Sockets that are opened within one stay in
// it, also when other threads use them.
//
// Begin with Ensure and Within.
package netns
