// Package poolcheck validates RunnerPools as an API server with the chart's definitions does, without one: unknown fields, types, limits, and
// the definitions' rules. Begin with check.go.
package poolcheck
