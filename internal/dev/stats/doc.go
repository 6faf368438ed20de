// Package stats summarizes samples: quantiles by nearest rank and medians, for reports of load, of the demo, of benchmarks and of the
// simulator.
//
// Begin with Quantile.
package stats
