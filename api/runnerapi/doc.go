// Package runnerapi is the HTTP contract between the server and those who call it from inside the cluster: the agent
// in a runner pod and the controller. It holds paths, bodies, audiences and the meaning of each status.
package runnerapi
