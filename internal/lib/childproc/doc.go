// Package childproc starts child processes that do not outlive their owner, and ends what a dead owner left behind: the
// one-machine mode, the control plane and the private Postgres stand on it.
//
//   - child.go: a Child, the leader of a process group of its own, which the kernel ends with its parent
//   - process.go: a Process, known by its pid and its start so that it is not taken for another with the same pid, and
//     the record of processes that whoever comes after a kill -9 reads
//   - lock.go: a folder's lock, which the kernel gives back when its owner dies
//   - system_linux.go, system_other.go: what differs between systems
//
// It knows nothing of what it runs. Begin with Start.
package childproc
