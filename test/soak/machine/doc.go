// Package machine is a synthetic machine in a process of its own, and the sandbox that a node agent in another process
// uses to control it. So a soak can kill a node agent at any instant, as often as it likes, and the pods continue
// (NODE-3); and it can kill the machine, which takes its pods with it.
//
// The machine writes down when each runner began, received its configuration and ended, and how: the checker trusts this
// about the ends of pods, whatever the fleet says.
//
// Begin with Serve (server.go), and Dial (client.go), which implements sandbox.Sandbox.
package machine
