// Package childproc starts child processes that do not outlive their owner, and kills what a dead owner left behind.
//
//   - child.go: a Child, the leader of a process group of its own, which the kernel kills with its parent
//   - process.go: a Process, identified by its PID and its start time so that it is not taken for another with the same PID, and
//     the record of processes that the next owner reads after a kill -9
//   - lock.go: a directory's lock, which the kernel releases when its owner dies
//   - system_linux.go, system_other.go: what differs between systems
//
// It knows nothing about what it runs. Begin with Start.
package childproc
