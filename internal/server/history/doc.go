// Package history records what charts show: samples of each pool and of the fleet, once a minute, and queue times of jobs.
//
// Samples, histograms and series are pure values; Recorder is the periodic pass. Begin with sample.go. ADR 0053 has the reasons.
package history
