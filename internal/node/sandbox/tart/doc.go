// Package tart is the sandbox that runs the runner of a pod in a macOS virtual machine, by Cirrus Labs' program tart, which the
// administrator of the Mac installs and which is called as an external program (package tartcli).
//
// # How a pod maps onto a Mac
//
// The containers `agent` and `poller` are processes of the host: they hold the pod's token, which never enters a guest (NET-3). The
// container `runner` is a virtual machine, cloned from the golden base of its image. Two directories are shared with it (package
// guestshare): the pod's volume bullpen-shared, read-only, and a status directory that the guest writes.
//
// # How it is built
//
// The back end embeds the process back end. `tart run`, too, is one of its processes, under a shim of its own: so a VM outlives the agent,
// its exit code is recorded without the agent, and none of its processes is left when its end is reported (NODE-2, NODE-3). Each start of a
// VM is a new process container, runner.1, runner.2, of which at most one ever reaches a guest.
//
//	STATE/vms/<pod uid>/record.json   what was begun for the pod; written before each step that it records
//	STATE/vms/<pod uid>/status/       the status share
//	STATE/goldens/<digest>.json       a golden base, and whether it is whole
//	STATE/pods, STATE/owner, …        the process back end's
//
// A virtual machine is ours if its name carries the owner of the state directory and a record names it; no other is ever stopped or deleted
// (NODE-7).
//
//   - what is decided, in pure functions: names.go, admit.go, exit.go, verdict.go, slots.go
//   - a runner's life: start.go, minder.go, remove.go; with the guest: guest.go
//   - the host: golden.go, session.go, host.go, leases.go
//
// Nothing of it has been run on a Mac by the project: tests run on a fake of tart (internal/dev/tart). Begin with Sandbox in tart.go.
package tart
