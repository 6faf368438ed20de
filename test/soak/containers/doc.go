// Package containers decides what happens in a soak of jobs with containers, from a seed, and whether it went well. It runs nothing:
// TestRelease/container-faults of test/realnode does, on a kubelet, with the chart as it is installed.
//
// Begin with Make (schedule.go) and Examine (table.go).
package containers
