// Package dispatchtest has GitHub and Kubernetes in memory, as package dispatch sees them through its ports: for tests of what the
// server decides, which need no HTTP and no API server. The answers of GitHub itself are tested in internal/github against the
// stand-in, and what a real API server does in internal/server/cluster.
package dispatchtest
