// Package top shows the fleet on a whole screen, live: pools, jobs and accounts, from what the administrators' API returns.
//
// The model is a value, and its reaction to a key or a response is a pure function; only Run touches the terminal. Begin with
// model.go.
package top
