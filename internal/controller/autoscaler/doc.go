// Package autoscaler sizes the pools that autoscale, and passes on to all of them what the server says: every few seconds it
// reads the server's signals, pools and nodes once for all pools, lets package scaling plan, publishes the decisions, and
// wakes the pools whose decision has changed. It decides nothing itself and writes nothing: the pool's controller works
// towards the number and writes it into the pool's status, from which the next leader begins.
//
// Begin with autoscaler.go. observe.go makes the plan's input of what the caches hold, publish.go decisions of its output.
package autoscaler
