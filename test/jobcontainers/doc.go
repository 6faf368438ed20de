// Package jobcontainers runs jobs with containers and services end to end: inputs as GitHub's worker gives them go through the real container
// hook, to the real guards of containers. Each row of what GitHub promises, and of what Bullpen does instead, is a test.
//
// The rows know a Backend and nothing of how it makes containers. The back end processes makes namespaces of this machine, with the machine's
// own programs as images; it takes root on Linux.
//
// Begin with backend_linux_test.go, and with TestRecorded in recorded_linux_test.go.
package jobcontainers
