// Package machine is a synthetic machine in a process of its own, and the sandbox that a node agent in another process
// speaks to it with. So a soak can kill a node agent at any instant, as often as it likes, and the pods go on (NODE-3);
// and it can kill the machine, which takes its pods with it.
//
// The machine writes down when each runner began, received its configuration and ended, and how: what a checker believes
// about the ends of pods, whatever the fleet says.
//
// Begin with Serve (server.go), and Dial (client.go), which implements sandbox.Sandbox.
package machine
