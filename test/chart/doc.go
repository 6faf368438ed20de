// Package chart checks what the Helm chart renders to: that the API server takes it, that every switch does what it says,
// that values that cannot be right are refused, and that two releases leave each other alone.
//
// It has tests only. Begin with render_test.go.
package chart
