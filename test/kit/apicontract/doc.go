// Package apicontract holds what a handler of the administrators' API answers against its description, for the tests that have one. Begin with
// apicontract.go.
package apicontract
