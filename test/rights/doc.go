// Package rights compares what roles grant with what the API server's audit log shows to be used (NET-8).
//
// It reads roles and bindings as objects and the log as text, and decides by values alone: Compare is a pure function. A
// suite that runs the product with an audit log asks it whether each part had exactly the rights that it used; package soak
// does.
//
// Begin with Compare.
package rights
