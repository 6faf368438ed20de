// Package volume is how the runner's supervisor, a job's hook and the guards of a pod's containers use the volume that they share: the
// lock and the socket by which a guard sees the runner's end, and the files that say which containers are wanted. Begin with want.go and
// hold.go. Why it is both a lock and a socket is in docs/adr/0062.
package volume
