// Package scaling decides how many runners each pool has: signals, nodes and history in, numbers out, for all pools in one
// pass. It is a pure function of its input, clock reading included.
//
// Begin with plan.go. input.go has what goes in and comes out, demand.go turns a pool's signals into wishes, room.go shares
// what the nodes have among the pools that may use them, and history.go keeps a pool from shrinking too soon.
package scaling
