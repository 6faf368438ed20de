// Package process is the sandbox that runs a pod's containers as plain processes of this machine. It works without root, on
// Linux and macOS, and is meant for one-machine mode and tests.
//
// # Isolation: none
//
// A container is a process like any other of the user who runs the node agent. It sees the whole machine: its files, its
// network, its other processes, the folders of other pods. The image is ignored (its file system is not
// unpacked, its entry point not known), so each container must say what to run in `command`. Resources are not
// limited. Security contexts and read-only mounts are not enforced. Never run code of strangers in it.
//
// # The contract for paths
//
// There is no mount namespace: a volume is a folder of the pod on the host, and its mountPath does not exist. Instead every
// occurrence of a container's mountPath (the path itself, or a path below it) is replaced by the real folder in `command`, `args`,
// the values of `env`, `workingDir` and the commands of exec probes. Substitute has the exact rule. A program is thus told its
// paths by arguments or environment; a mountPath that is built into a program or lies in a file is not replaced.
//
// A container's environment holds PATH, HOME and TMPDIR (the last two are folders of its own in the pod's folder) and what the
// pod says: nothing of the node agent's own environment. PATH begins with a folder that holds `bullpen`, this very binary, as the
// product's image does.
//
// # An enclosure
//
// With Options.Enclosure (Linux, as root) a container finds what it would in a cluster: its image's files as its root, volumes at their
// mountPaths, its pod's own network, its user. No path is replaced then. Between shim and container stands RunEnter, which
// makes all of that and becomes the container. It is for tests of an installation, and is no isolation either (ADR 0021).
//
// # How a container outlives the agent
//
// Each container is started by a shim, a process of its own session that waits for it, reaps what it leaves behind
// and writes its exit code to a file with an atomic rename. Two FIFOs join agent and shim and make both process ids and
// polling unnecessary: the shim alone holds the writing end of `alive`, so that end-of-file there means that the shim is gone; and it
// reads orders from `control`, so that a signal can never reach a recycled process id.
//
//	STATE/owner                              who owns this folder: written once, carried by every process as a mark
//	STATE/pods/<uid>/pod.json                the pod's identity
//	STATE/pods/<uid>/logs/<container>.log    standard output and error
//	STATE/pods/<uid>/containers/<container>/ spec.json alive control started.json exit.json times execs home/ tmp/ shim.log
//	STATE/removing/                          pods on their way out
//
// # Commands beside a container
//
// Exec starts its command from the agent, with the container's environment and mark, and in an enclosure in the namespaces of the
// container's main process. The agent ends it with its context or with the container. What a killed agent's commands left behind, or a
// command itself, is found by the mark when the container has ended.
//
// Begin with Sandbox in process.go; the other side is in shim.go.
package process
