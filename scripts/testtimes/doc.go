// Command testtimes shows where the time of a run of the tests goes: per package, how long its test binary ran, how much processor
// time it and its child processes took, and how long compiling and linking it took.
//
// It is its own recorder: `go test -exec 'testtimes record FILE'` starts each test binary through it. `testtimes table FILE GRAPH…`
// prints the table, where each GRAPH is what a `go test -debug-actiongraph GRAPH` wrote.
package main
