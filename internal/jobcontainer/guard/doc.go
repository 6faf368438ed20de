// Package guard is the first process of each container that is added to a runner's pod for a job. What the image would have run is a
// child of it, and so is each step: it starts them, passes their output on, ends all that they have started, and reaps orphans. It takes
// its orders through a socket in the volume that the pod's containers share; package client has the other side, and package wire the frames.
//
// It is deaf to signals, because the kubelet stops the containers of a pod that is being deleted while their job still runs. It exits as
// soon as the runner has ended (package volume), and its exit kills everything in its container (JOB-2).
//
// A peer is any process of the same job. Nothing that it sends is trusted further than that: a request does in this container what the
// job may do in it, and is bounded. Begin with guard_linux.go; process_linux.go starts processes, tree_linux.go ends them.
package guard
