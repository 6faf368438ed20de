// Package top shows the fleet on a whole screen, live: pools, jobs and accounts, from what the operators' API answers.
//
// The model is a value, and what it does at a key or an answer is a pure function of both; only Run touches the terminal. Begin with
// model.go.
package top
