// Package agentcmd is the agent's command line: the subcommands poll, run, ready, install and guest, each defined once. The binary
// bullpen-agent is these commands alone (Main). The product has them below `bullpen agent` for Macs, which have one program.
//
// Every readiness probe starts this code, so it initialises nothing at package level, and test/architecture bounds its packages and the
// binary's size. Begin with commands.go.
package agentcmd
