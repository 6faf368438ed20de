// Package jobcontainer has the values that a runner's container hook and the controller exchange: which containers a job wants
// beside its runner, and what was added to the runner's pod for it. They are ephemeral containers of the pod; the first process
// of each is the agent's guard, which runs what the image would have run, and is asked for everything else through a socket.
package jobcontainer
