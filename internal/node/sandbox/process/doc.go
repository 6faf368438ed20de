// Package process is the sandbox that runs a pod's containers as plain processes of this machine. It works without root, on
// Linux and macOS, and is meant for one-machine mode and tests.
//
// # Isolation: none
//
// A container is a process like any other of the user who runs the node agent. It sees the whole machine: its files, its network, its other
// processes, the directories of other pods. The image is ignored (its file system is not unpacked, its entry point not known), so each
// container must name its program in `command`. Resources are not limited. Security contexts and read-only mounts are not enforced. Never
// run untrusted code in it.
//
// # The contract for paths
//
// There is no mount namespace: a volume is a directory of the pod on the host, and its mountPath does not exist. Instead every occurrence
// of a container's mountPath (the path itself, or a path below it) is replaced by the real directory in `command`, `args`, the values of
// `env`, `workingDir` and the commands of exec probes. Substitute has the exact rule. A program thus receives its paths as arguments or
// environment; a mountPath that is built into a program or stored in a file is not replaced.
//
// A container's environment holds PATH, HOME and TMPDIR (the last two are directories of its own in the pod's directory) and the variables
// of the pod's spec: nothing of the node agent's own environment. PATH begins with a directory that holds `bullpen`, this very binary, as
// the product's image does.
//
// # An enclosure
//
// With Options.Enclosure (Linux, as root) a container finds what it would in a cluster: its image's files as its root, volumes at their
// mountPaths, its pod's own network, its user. No path is replaced then. Between shim and container stands RunEnter, which
// makes all of that and becomes the container. It is for tests of an installation, and is no isolation either (ADR 0021).
//
// # How a container outlives the agent
//
// Each container is started by a shim, a process with a session of its own that waits for the container, reaps orphaned processes and
// writes the exit code to a file with an atomic rename. Two FIFOs join agent and shim and make both process ids and polling unnecessary:
// only the shim holds the writing end of `alive`, so that end-of-file there means that the shim is gone; and it reads orders from
// `control`, so that a signal can never reach a recycled process id.
//
//	STATE/owner                              the owner of this directory: written once, carried by every process as a mark
//	STATE/pods/<uid>/pod.json                the pod's identity
//	STATE/pods/<uid>/logs/<container>.log    standard output and error
//	STATE/pods/<uid>/containers/<container>/ spec.json alive control started.json exit.json times execs home/ tmp/ shim.log
//	STATE/removing/                          pods on their way out
//
// # Commands beside a container
//
// Exec starts its command from the agent, with the container's environment and mark, and in an enclosure in the namespaces of the
// container's main process. The agent kills the command when its context or the container ends. Processes that a command or a killed agent
// left behind are found by the mark when the container has ended.
//
// Begin with Sandbox in process.go; the other side is in shim.go.
package process
