// Package machine is a synthetic machine in a process of its own, and the sandbox with which a node agent in another process controls it.
// So a soak can kill a node agent at any instant, any number of times, and the pods continue (NODE-3); and it can kill the machine, which
// ends its pods.
//
// The machine writes down when each runner began, received its configuration and ended, and how: the checker trusts this
// about the ends of pods, whatever the fleet says.
//
// Begin with Serve (server.go), and Dial (client.go), which implements sandbox.Sandbox.
package machine
