// Package scale exercises a fleet of many synthetic pods while jobs run all the while: it fills, rolls its template, shrinks and is
// drained. `go test` runs a pool of 100, and `make scale` one of 2,000. sustained_test.go keeps every runner busy before a backlog, and
// searches for what grows with the jobs (package growth). Beside it costs_test.go counts what one job costs the API server. It holds tests
// only. Begin with TestScale.
package scale
