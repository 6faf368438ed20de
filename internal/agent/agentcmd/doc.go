// Package agentcmd defines the commands of bullpen-agent, each once (see Commands). The binary is these commands alone (Main). The product
// has them below `bullpen agent` for Macs, which have one program.
//
// Every container that Bullpen adds to a pod starts this program, and so does every readiness probe. So it initialises
// nothing at package level, and test/architecture bounds its packages and the binary's size. Begin with commands.go.
package agentcmd
