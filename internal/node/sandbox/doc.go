// Package sandbox is the port between the node agent and whatever really runs a pod's containers on a machine:
// a process tree (process), a virtual machine, or nothing at all (synthetic, for load tests).
//
// A back end runs containers; it decides nothing. Order of init containers, volumes, environment, probes, grace periods and
// status belong to package node, once for all back ends. Package sandboxtest is the conformance suite that each
// back end runs.
//
// Begin with Sandbox in sandbox.go.
package sandbox
