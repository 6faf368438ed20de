// Package history is the past that charts show: samples of each pool and of the fleet, once a minute, and the queue times of jobs.
//
// Samples, histograms and series are pure values. Recorder takes the samples as a periodic pass. Begin with sample.go; ADR 0053 says why
// it is made this way.
package history
