// Package jobcontainers decides on the containers that jobs ask for, and adds them to their runners' pods (docs/adr/0061). A request arrives
// as the termination message of a container, and its response leaves in the arguments of the next one, so no runner connects to anything.
//
// decide.go says what a pod needs now, check.go what a job may have, answer.go what is added for it: pure functions of the pod, which holds
// everything that has happened. reconciler.go does it, and lookups.go resolves images outside of its workers.
// A controller that dies at any point begins again from the pod.
package jobcontainers
